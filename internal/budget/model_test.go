package budget_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// drawWorld draws a world that a keeper could meet, calm ones more often than wild ones.
func drawWorld(t *rapid.T) *world {
	w := atRest()
	often := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) == 0 }
	zoneOf := func(label string) string { return rapid.SampledFrom(zones).Draw(t, label) }
	states := []storage.PodState{
		storage.PodReady, storage.PodReady, storage.PodNotReady, storage.PodPending,
		storage.PodTerminating, storage.PodNone,
	}
	for i := range w.osds {
		if often("trouble") {
			w.osds[i].Up = rapid.Bool().Draw(t, "up")
			w.osds[i].Pod = rapid.SampledFrom(states).Draw(t, "pod")
		}
		if often("unmarked") {
			w.say("unmarked=" + strconv.Itoa(i))
		}
		if often("cordoned") {
			w.cordoned = append(w.cordoned, w.osds[i].Node)
		}
		if often("announced") {
			w.in.Announced[w.osds[i].Node] = budget.Announcement{
				Node: w.osds[i].Node, Opened: now.Add(-time.Duration(rapid.IntRange(0, 90).Draw(t, "ago")) * time.Second),
				Spent: rapid.Bool().Draw(t, "spent"),
			}
		}
	}
	w.touched = rapid.SliceOfDistinct(rapid.SampledFrom(zones), rapid.ID[string]).Draw(t, "touched")
	for _, z := range zones {
		if rapid.Bool().Draw(t, "asked") {
			w.okToStop[z] = rapid.SampledFrom([]string{"yes", "yes", "no", "already", "unknown"}).Draw(t, "ok")
		}
	}
	w.say("health=" + rapid.SampledFrom([]string{"clean", "clean", "unclean", "stale", "behind", "broken"}).Draw(t,
		"health"))
	w.in.Health.Clean = w.in.Health.Clean && (w.in.Health.Fresh || rapid.Bool().Draw(t, "stale clean"))
	if often("other proof") {
		w.say("proof=" + rapid.SampledFrom([]string{"none", "other"}).Draw(t, "proof"))
	}
	if rapid.Bool().Draw(t, "held") {
		w.say("lease=" + zoneOf("lease"))
	}
	if often("life") {
		w.say("life=" + rapid.SampledFrom([]string{"none", "x", "y", "z", "x:1", "y:7"}).Draw(t, "who lives"))
	}
	if often("waiting") {
		w.say("queue=" + zoneOf("queue"))
	}
	if rapid.Bool().Draw(t, "was open") {
		w.say(rapid.SampledFrom([]string{"open=", "opened="}).Draw(t, "by") + zoneOf("open"))
	}
	if often("healing for long") {
		w.in.Settings.PGHealthCheckTimeout = time.Minute
		w.in.HealingSince = now.Add(-time.Duration(rapid.IntRange(0, 120).Draw(t, "healing")) * time.Second)
	}
	for _, word := range []string{"unavailable", "problem", "intolerant", "type=host", "unlabelled=x"} {
		if rapid.IntRange(0, 19).Draw(t, word) == 0 {
			w.say(word)
		}
	}
	return w
}

// known is what may be said of the data without any cleverness.
type known struct {
	clean bool            // a fresh word as of the very view, and nobody on the way out
	hurt  map[string]bool // zones with an OSD that went since the data was whole, or since nobody knows when
}

func whatIsKnown(w *world) known {
	in := w.input()
	proof := provedBefore(in)
	k := known{clean: in.View.Unavailable == "" && in.Health.Fresh && in.Health.Clean &&
		in.Health.ChangeEpoch >= in.View.ChangeEpoch, hurt: map[string]bool{}}
	for i, o := range w.osds {
		leaving := o.Pod == storage.PodPending || o.Pod == storage.PodTerminating
		if o.Up && leaving {
			k.clean = false
		}
		z := zones[i/perZone]
		proved := proof && !slices.Contains(w.touched, z)
		if o.Up && leaving || !o.Up && !proved {
			k.hurt[z] = true
		}
	}
	if k.clean {
		k.hurt = map[string]bool{}
	}
	return k
}

// provedBefore: the data was whole once, and what is known of it now does not speak against that.
func provedBefore(in budget.Input) bool {
	if in.Proof == nil || in.Proof.Shape != in.View.Shape {
		return false
	}
	badByItself := in.Health.Fresh && !in.Health.Clean && in.Health.ChangeEpoch >= in.View.ChangeEpoch &&
		in.View.ChangeEpoch == in.Proof.ChangeEpoch
	return !badByItself
}

// TestDecide compares decisions with the invariants, not with themselves.
func TestDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in, k := w.input(), whatIsKnown(w)
		d := budget.Decide(in)
		if d.Message == "" || d.Reason == "" {
			t.Fatalf("says nothing: %+v", d)
		}
		if (d.Mode == budget.ModeOpen) != !d.Open.IsZero() {
			t.Fatalf("mode and domain disagree: %+v", d)
		}
		if d.Mode != budget.ModeClosed && (in.View.Unavailable != "" || len(in.View.Problems) > 0) {
			t.Fatalf("not closed, though nothing can be known: %+v", d)
		}
		switch d.Mode {
		case budget.ModeDefault:
			if !k.clean && (in.Settings.PGHealthCheckTimeout == 0 || len(k.hurt) > 0) {
				t.Fatalf("at rest, though nobody knows the data to be clean: %+v", d)
			}
		case budget.ModeOpen:
			mayBeOpen(t, w, k, d)
		}
	})
}

func mayBeOpen(t *rapid.T, w *world, k known, d budget.Decision) {
	in := w.input()
	if in.View.FailureDomainType != d.Open.Type || len(in.View.Intolerant) > 0 || w.unlabelled == d.Open.Name {
		t.Fatalf("open, though it cannot be: %+v", d)
	}
	if in.Opened != d.Open && !in.Life.Covers(d.Open) {
		t.Fatalf("%s opens, and nobody knows whether all others live: %v", d.Open, in.Life)
	}
	for z := range k.hurt {
		if z != d.Open.Name {
			t.Fatalf("%s is open, while OSDs are down in %s", d.Open, z)
		}
	}
	if len(in.Health.Unexplained) > 0 {
		t.Fatalf("%s is open, while PGs are %v", d.Open, in.Health.Unexplained)
	}
	// I3: either it is known now, or nothing else was touched since it was.
	proved := provedBefore(in)
	for _, z := range w.touched {
		proved = proved && z == d.Open.Name
	}
	fresh := in.Health.Fresh && in.Health.ChangeEpoch >= in.View.ChangeEpoch
	if !k.clean && !proved && (!fresh || w.okToStop[d.Open.Name] != "yes") {
		t.Fatalf("%s is open on stale knowledge", d.Open)
	}
	if said := w.okToStop[d.Open.Name]; said == "no" || fresh && said == "already" {
		t.Fatalf("%s is open, though the storage cluster knows that it must not be", d.Open)
	}
	// I8: it has a reason that can end.
	announced, ok := in.View.Node(d.Announcement)
	announced.Domain = map[bool]string{true: announced.Domain, false: ""}[ok && announced.Leaving()]
	if !k.hurt[d.Open.Name] && in.Lease.Domain() != d.Open && announced.Domain != d.Open.Name {
		t.Fatalf("%s is open for no reason: %+v", d.Open, d)
	}
	if a, had := in.Announced[d.Announcement]; d.Announcement != "" && had &&
		(a.Spent || now.Sub(a.Opened) >= in.Settings.AnnouncementTimeout) {
		t.Fatalf("%s is open for an announcement whose time is over", d.Open)
	}
}

// TestProgress: while OSDs are down in one zone alone and the data was whole before, that zone is open (I8), whoever
// holds the lease and whoever else is cordoned. So the one who took them down can go on.
func TestProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := atRest()
		at := rapid.IntRange(0, len(zones)-1).Draw(t, "zone")
		w.say("touched=" + zones[at])
		for i := range rapid.IntRange(1, perZone).Draw(t, "down") {
			o := &w.osds[at*perZone+i]
			o.Up, o.Pod = rapid.Bool().Draw(t, "up"),
				rapid.SampledFrom([]storage.PodState{storage.PodPending, storage.PodTerminating}).Draw(t, "pod")
		}
		dead := &w.osds[(at+1)%len(zones)*perZone]
		if rapid.Bool().Draw(t, "one is dead elsewhere") {
			dead.Up, dead.Pod = false, storage.PodNotReady
		}
		w.say("health=" + rapid.SampledFrom([]string{"clean", "unclean", "stale", "behind"}).Draw(t, "health"))
		w.okToStop[zones[at]] = rapid.SampledFrom([]string{"yes", "unknown", "already"}).Draw(t, "ok")
		if w.in.Health.Fresh && w.in.Health.ChangeEpoch >= w.in.View.ChangeEpoch && w.okToStop[zones[at]] == "already" {
			w.okToStop[zones[at]] = "yes" // then it has to wait
		}
		for _, word := range []string{"lease", "queue", "open"} {
			if rapid.Bool().Draw(t, word) {
				w.say(word + "=" + rapid.SampledFrom(zones).Draw(t, word+" zone"))
			}
		}
		w.cordoned = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}),
			rapid.ID[string]).Draw(t, "cordoned")
		in := w.input()
		if whatIsKnown(w).clean {
			return // Ceph does not miss them
		}
		if d := budget.Decide(in); d.Open != zone(zones[at]) {
			t.Fatalf("only %s is hurt, but the decision is %+v", zones[at], d)
		}
	})
}

// TestGrantedMeansOpen: who gets the lease while nobody has it finds the domain open, or will when what is down is
// back.
func TestGrantedMeansOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in := w.input()
		in.Lease = lease.State{}
		c := lease.Claim{
			WorkflowID: "drain/a", Domain: zone(rapid.SampledFrom(zones).Draw(t, "claim")),
			Observing: rapid.Bool().Draw(t, "observing"), Granted: now,
		}
		a := budget.LeaseGate(in, c)
		if !a.OK {
			if a.Reason == "" {
				t.Fatalf("refused without a reason")
			}
			return
		}
		in.Lease.Holders = []lease.Claim{c}
		if d := budget.Decide(in); d.Open != c.Domain {
			t.Fatalf("granted, but %+v", d)
		}
	})
}

// TestQuestion: what is asked is what keeps something from opening or from being granted, and nothing else.
func TestQuestion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in := w.input()
		if rapid.Bool().Draw(t, "somebody wants the lease") {
			in.Lease.Queue = append(in.Lease.Queue,
				lease.Claim{WorkflowID: "drain/w", RunID: "w", Domain: zone(rapid.SampledFrom(zones).Draw(t, "wants"))})
		}
		d, asked := budget.Question(in)
		decide := func(life *storage.Life) (budget.Decision, int) {
			in := in
			in.Life = life
			l, granted := in.Lease.Grant(lease.Rules{
				Together: lease.SameDomain, Gate: func(c lease.Claim) storage.Answer { return budget.LeaseGate(in, c) },
			}, in.Now)
			in.Lease = l
			return budget.Decide(in), len(granted)
		}
		if !asked {
			if x, granted := decide(&storage.Life{}); granted > 0 || x.Mode == budget.ModeOpen && x.Open != in.Opened {
				t.Fatalf("nobody asks, and %d grants and %+v depend on it", granted, x)
			}
			return
		}
		if x, granted := decide(&storage.Life{Outside: d}); granted == 0 && (x.Mode != budget.ModeOpen || x.Open != d) {
			t.Fatalf("%s is asked about for nothing: %+v", d, x)
		}
		if x, granted := decide(nil); granted > 0 || x.Mode == budget.ModeOpen && x.Open != in.Opened {
			t.Fatalf("nobody has answered, and %d are granted and %+v", granted, x)
		}
	})
}

// TestNothingHappensBeforeTheTimer: the keeper may sleep until NextTimer, since no decision changes before.
func TestNothingHappensBeforeTheTimer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in := w.input()
		in.HealingSince = budget.NextHealingSince(in)
		before := budget.Decide(in)
		in.Announced = budget.NextAnnounced(in, before)
		in.Open = before.Open
		before = budget.Decide(in) // an announcement that is spent at once shows at once
		in.Announced = budget.NextAnnounced(in, before)
		in.Proof = budget.NextProof(in)
		next := budget.NextTimer(in, in.Announced, nil)
		if !next.IsZero() && !next.After(in.Now) {
			t.Fatalf("the timer is in the past: %s", in.Now.Sub(next))
		}
		wait := time.Duration(rapid.IntRange(0, 7200).Draw(t, "seconds")) * time.Second
		if later := in.Now.Add(wait); next.IsZero() || later.Before(next) {
			in.Now = later
			in.Open = before.Open
			if d := budget.Decide(in); d.Mode != before.Mode || d.Open != before.Open {
				t.Fatalf("after %s, before the timer, %+v became %+v", wait, before, d)
			}
		}
	})
}

// TestProof: it is renewed by nothing but clean data, and never speaks of a later time than it was made at.
func TestProof(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in, k := w.input(), whatIsKnown(w)
		p := budget.NextProof(in)
		switch {
		case k.clean:
			if p == nil || p.ChangeEpoch != in.View.ChangeEpoch || p.Shape != in.View.Shape {
				t.Fatalf("clean, but the proof is %+v", p)
			}
		case p != in.Proof && p != nil:
			t.Fatalf("made up a proof: %+v", p)
		}
	})
}

func TestProofIsVoidWhenDataGoesBadByItself(t *testing.T) {
	w := atRest()
	w.say("health=unclean")
	if p := budget.NextProof(w.input()); p != nil {
		t.Fatalf("nothing went down, PGs are unclean, and yet %+v", p)
	}
	w = atRest()
	w.say("health=stale")
	if p := budget.NextProof(w.input()); p == nil {
		t.Fatal("no news is no reason to forget")
	}
	w = atRest()
	w.say("unavailable")
	w.in.Health = storage.Health{}
	if p := budget.NextProof(w.input()); p == nil {
		t.Fatal("a quorum that is away for a moment is no reason to forget")
	}
}
