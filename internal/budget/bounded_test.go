package budget_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// drawLarge draws what a keeper of a large cluster could see, from nothing down to everything, and the claims on it.
func drawLarge(t *rapid.T) (budget.Input, []lease.Claim) {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)) //nolint:gosec // not a secret
	domains, perDomain := rapid.IntRange(1, 150).Draw(t, "domains"), rapid.IntRange(1, 6).Draw(t, "OSDs per domain")
	likely := func(label string) float64 {
		return rapid.SampledFrom([]float64{0, 0, 0.01, 0.3, 1}).Draw(t, label)
	}
	down, unready, leaving, touched, cordoned := likely("down"), likely("unready"), likely("leaving"), likely("touched"),
		likely("cordoned")
	in := budget.Input{
		Now:    now,
		View:   storage.View{FailureDomainType: "zone", LabelKey: zoneLabel, ChangeEpoch: 110, Shape: "same"},
		Health: storage.Health{Fresh: true, Clean: true, ChangeEpoch: 110, PGs: 32, PGsClean: 32},
		Proof:  &storage.CleanProof{ChangeEpoch: 100, Shape: "same", At: now},
		Settings: storage.Settings{
			ManagePodBudgets: true, MaintenanceTimeout: 30 * time.Minute, AnnouncementTimeout: time.Minute,
			PGHealthCheckTimeout: rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "timeout"),
		},
		HealingSince: now.Add(-2 * time.Minute), Unheard: rapid.Bool().Draw(t, "unheard"),
		Announced: map[string]budget.Announcement{},
	}
	switch rapid.IntRange(0, 3).Draw(t, "health") {
	case 0:
		in.Health.Clean = false
	case 1:
		in.Health.Fresh = false
	}
	if rapid.Bool().Draw(t, "no proof") {
		in.Proof = nil
	}
	var claims []lease.Claim
	for i := range domains {
		d := storage.Domain{
			Name: fmt.Sprintf("zone-%03d", i), Daemons: perDomain, Touched: r.Float64() < touched,
			LabelValues: []string{fmt.Sprintf("zone-%03d", i)},
		}
		if r.IntN(3) > 0 {
			d.OKToStop = &storage.Answer{OK: r.IntN(2) == 0, Reason: "no"}
		}
		if r.IntN(4) == 0 {
			d.LabelValues = nil
		}
		n := storage.Node{
			Name: fmt.Sprintf("node-%03d", i), Domain: d.Name, Host: fmt.Sprintf("node-%03d", i),
			Cordoned: r.Float64() < cordoned,
		}
		for j := range perDomain {
			x := storage.Daemon{
				Name: fmt.Sprintf("osd.%d", i*perDomain+j), Node: n.Name, Up: r.Float64() >= down,
				Pod: storage.PodReady,
			}
			switch {
			case r.Float64() < unready:
				x.Pod = storage.PodNotReady
			case r.Float64() < leaving:
				x.Pod = []storage.PodState{storage.PodPending, storage.PodTerminating, storage.PodNone}[r.IntN(3)]
			}
			in.View.Daemons++
			in.View.Up += map[bool]int{true: 1}[x.Up]
			n.Daemons = append(n.Daemons, x.Name)
			if x.Down() {
				n.Down = append(n.Down, x.Name)
			}
			if !x.Up || x.Pod != storage.PodReady {
				d.Troubled = append(d.Troubled, x)
			}
		}
		in.View.Domains, in.View.Nodes = append(in.View.Domains, d), append(in.View.Nodes, n)
		if r.IntN(20) == 0 {
			claims = append(claims, lease.Claim{
				WorkflowID: "drain/" + n.Name, RunID: n.Name, Domain: storage.FailureDomain{Type: "zone", Name: d.Name},
				Node: n.Name, FlagHosts: []string{n.Name}, Granted: now.Add(-time.Duration(r.IntN(60)) * time.Minute),
				Observing: r.IntN(2) == 0, Finishing: r.IntN(2) == 0,
			})
		}
	}
	if len(claims) > 0 && r.IntN(2) == 0 {
		in.Lease.Holders = claims[:1]
	}
	if r.IntN(2) == 0 {
		in.Open = storage.FailureDomain{Type: "zone", Name: in.View.Domains[r.IntN(domains)].Name}
	}
	return in, claims
}

// TestBoundedView: what is decided on a View that names only so many is what is decided on all of it, or more careful.
func TestBoundedView(t *testing.T) {
	large := 0
	rapid.Check(t, func(t *rapid.T) {
		all, claims := drawLarge(t)
		first := storage.Interest{Domains: []string{all.Open.Name}}
		for _, c := range claims {
			first.Domains, first.Nodes = append(first.Domains, c.Domain.Name), append(first.Nodes, c.Node)
		}
		few := all
		few.View = all.View.Bounded(first)
		troubled := 0
		for _, d := range all.View.Domains {
			troubled += len(d.Troubled)
		}
		if len(all.View.Domains) <= storage.MostDomains && len(all.View.Nodes) <= storage.MostNodes &&
			troubled <= storage.MostTroubled {
			if !reflect.DeepEqual(all.View, few.View) {
				t.Fatalf("small enough, and yet changed")
			}
			return
		}
		large++
		if budget.Clean(all) != budget.Clean(few) || len(budget.Affected(all)) > 0 != (len(budget.Affected(few)) > 0) {
			t.Fatalf("clean or affected differ")
		}
		if !reflect.DeepEqual(budget.NextProof(all), budget.NextProof(few)) ||
			budget.NextUnheard(all) != budget.NextUnheard(few) ||
			!budget.NextHealingSince(all).Equal(budget.NextHealingSince(few)) {
			t.Fatalf("what is remembered differs")
		}
		asCareful(t, all, few)
		for _, c := range claims {
			claimAsCareful(t, all, few, c)
		}
	})
	if large == 0 {
		t.Fatal("no View was large")
	}
}

// TestTakenTogether: failure domains that are too many to be named are judged together. An OSD that was down before the
// proof is not missed, also when another of these domains was touched since.
func TestTakenTogether(t *testing.T) {
	for _, c := range []struct {
		name    string
		touched bool // the domain that lost an OSD
		missed  int
	}{
		{"down before the proof", false, 0},
		{"down since", true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := budget.Input{
				Now:   now,
				View:  storage.View{FailureDomainType: "zone", LabelKey: zoneLabel, ChangeEpoch: 110, Shape: "same"},
				Proof: &storage.CleanProof{ChangeEpoch: 100, Shape: "same", At: now},
			}
			for i := range storage.MostDomains + 2 {
				in.View.Domains = append(in.View.Domains, storage.Domain{Name: fmt.Sprintf("zone-%03d", i), Daemons: 1})
			}
			quiet, lost := &in.View.Domains[storage.MostDomains], &in.View.Domains[storage.MostDomains+1]
			quiet.Touched, lost.Touched = !c.touched, c.touched
			lost.Troubled = []storage.Daemon{{Name: "osd.1", Pod: storage.PodReady}}

			all := len(budget.Affected(in))
			in.View = in.View.Bounded(storage.Interest{})
			require.Equal(t, 2, in.View.Others.Merged)
			require.Equal(t, c.missed, all)
			require.Len(t, budget.Affected(in), c.missed)
		})
	}
}

// asCareful compares decisions about everybody.
func asCareful(t *rapid.T, all, few budget.Input) {
	a, f := budget.Decide(all), budget.Decide(few)
	switch f.Mode {
	case budget.ModeClosed:
	case budget.ModeDefault:
		switch {
		case a.Mode == budget.ModeOpen && a.Announcement != "": // nobody could be announced
		case a.Mode != budget.ModeDefault || f.Budget.MinAvailable != a.Budget.MinAvailable:
			t.Fatalf("at rest: %+v, but %+v", f, a)
		}
	case budget.ModeOpen:
		if gate := budget.LeaseGate(all, lease.Claim{Domain: f.Open, Observing: true}); f.Open != a.Open &&
			(f.Announcement == "" || !gate.OK) {
			t.Fatalf("open: %+v, but %+v: %s", f, a, gate.Reason)
		}
		if f.Open == a.Open && !reflect.DeepEqual(f.Budget, a.Budget) {
			t.Fatalf("%+v, but %+v", f.Budget, a.Budget)
		}
	}
	for _, n := range budget.Emptying(few, a) {
		if !slices.Contains(budget.Emptying(all, a), n) {
			t.Fatalf("%s is not empty", n)
		}
	}
}

// claimAsCareful compares decisions about one claim.
func claimAsCareful(t *rapid.T, all, few budget.Input, c lease.Claim) {
	if budget.LeaseGate(few, c).OK && !budget.LeaseGate(all, c).OK {
		t.Fatalf("granted: %+v", budget.LeaseGate(all, c))
	}
	for _, osd := range budget.DownBefore(few, c) {
		if !slices.Contains(budget.DownBefore(all, c), osd) {
			t.Fatalf("%s was not down before", osd)
		}
	}
	if budget.Healed(few, c).OK && !budget.Healed(all, c).OK {
		t.Fatalf("healed: %+v", budget.Healed(all, c))
	}
	if budget.Parked(few, c) && !budget.Parked(all, c) {
		t.Fatalf("parked")
	}
}
