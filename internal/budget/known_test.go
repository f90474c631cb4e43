package budget_test

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/guard/cephguard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// told is all that a keeper tells of itself, as it arrives at whoever asks.
type told struct {
	Known  budget.Known
	View   storage.View
	Health storage.Health
	Lease  lease.State
}

// TestWhoeverIsToldJudgesAsTheKeeper: what the keeper tells is enough to decide as it decides and to grant as it
// grants, whatever its state.
func TestWhoeverIsToldJudgesAsTheKeeper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in := w.input()
		if rapid.IntRange(0, 3).Draw(t, "unheard") == 0 {
			in.Unheard = true
		}
		for i := range in.Lease.Holders {
			in.Lease.Holders[i].Finishing = rapid.Bool().Draw(t, "finishing")
		}
		in.HealingSince = budget.NextHealingSince(in)
		keeper := told{
			Known: budget.Known{
				Settings: in.Settings, Proof: in.Proof, Announced: in.Announced, HealingSince: in.HealingSince, Unheard: in.Unheard,
				Open: in.Open, Opened: in.Opened, LeftOut: in.LeftOut, Life: in.Life,
			},
			View: in.View, Health: in.Health, Lease: in.Lease,
		}
		text, err := json.Marshal(keeper)
		if err != nil {
			t.Fatal(err)
		}
		var heard told
		if err := json.Unmarshal(text, &heard); err != nil {
			t.Fatal(err)
		}
		judged := heard.Known.Input(in.Now, heard.View, heard.Health, heard.Lease)
		if a, b := budget.Decide(in), budget.Decide(judged); !sameJSON(a, b) {
			t.Fatalf("the keeper decides %+v, who was told %+v", a, b)
		}
		claim := lease.Claim{
			WorkflowID: "drain/new", RunID: "1", Domain: zone(rapid.SampledFrom(zones).Draw(t, "wanted")),
			Node: "a", Priority: lease.PriorityDrain, Requested: in.Now,
		}
		explained := guard.WouldGrant(ceph, guarded(judged), claim)
		if granted := keeperGrants(in, claim); granted != explained.OK {
			t.Fatalf("explained %+v, and the keeper grants it: %t", explained, granted)
		}
		if !explained.OK && explained.Reason == "" {
			t.Fatal("says no, and not why")
		}
	})
}

var ceph = cephguard.Guard{}

func guarded(in budget.Input) guard.Input { return guard.Input{Input: in} }

// keeperGrants plays the keeper's passes in the order in which the keeper has them: the claim comes in, foreign claims
// are revoked, what is healed is taken back, whoever has to is asked for a sign of life and gives one unless somebody
// is known to be silent, and then there are grants.
func keeperGrants(in budget.Input, c lease.Claim) bool {
	in.Lease = in.Lease.Request(c)
	for range 3 {
		for _, f := range guard.Revoked(ceph, guarded(in)) {
			in.Lease = in.Lease.Release(f.WorkflowID, f.RunID)
		}
		in.Lease, _ = guard.TakeBack(ceph, guarded(in))
		if d, asks := budget.Question(in); asks && (in.Life == nil || in.Life.Silent == 0) {
			in.Life = &storage.Life{Outside: d}
		}
		in.Lease, _ = guard.Grant(ceph, guarded(in), func(lease.Claim) bool { return true })
	}
	_, holds, _ := in.Lease.Find(c.WorkflowID, c.RunID)
	return holds
}

func sameJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// TestWithoutTheProofTheAnswerIsAnother: what used to be missing matters.
func TestWithoutTheProofTheAnswerIsAnother(t *testing.T) {
	claim := lease.Claim{WorkflowID: "drain/new", RunID: "1", Domain: zone("x"), Node: "a", Priority: lease.PriorityDrain}
	for name, c := range map[string]struct {
		words  []string
		forget func(*budget.Known)
		ok     bool // by all that is known
	}{
		"an OSD of the zone went since the proof": {
			[]string{"touched=x", "osd.0=down/Pending", "health=stale"},
			func(k *budget.Known) { k.Proof = nil }, true,
		},
		"unclean for longer than the policy waits": {
			[]string{"health=unclean", "proof=none", "okToStop=x:yes", "timeout=60", "healing=90"},
			func(k *budget.Known) { k.HealingSince = time.Time{} }, true,
		},
		"somebody hangs": {[]string{"life=x:1"}, func(k *budget.Known) { k.Life = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest()
			for _, word := range c.words {
				w.say(word)
			}
			in := w.input()
			k := budget.Known{Settings: in.Settings, Proof: in.Proof, HealingSince: in.HealingSince, Life: in.Life}
			if a := guard.WouldGrant(ceph, guarded(k.Input(in.Now, in.View, in.Health, in.Lease)), claim); a.OK != c.ok {
				t.Errorf("%+v", a)
			}
			c.forget(&k)
			if a := guard.WouldGrant(ceph, guarded(k.Input(in.Now, in.View, in.Health, in.Lease)), claim); a.OK == c.ok {
				t.Errorf("without it: %+v", a)
			}
		})
	}
}
