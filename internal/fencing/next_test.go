package fencing_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestHoldsAtRest: what hosts daemons is held, noted first, and nothing else is; all goes with the policy.
func TestHoldsAtRest(t *testing.T) {
	f := newFleet()
	s := f.step(true, false, false)
	require.Len(t, s.Ledger.Held, 6)
	require.Empty(t, f.held(), "noted before it is set")
	f.step(true, true, true)
	require.Equal(t, nodes[:6], f.held())
	require.Empty(t, f.step(true, true, true).Set)

	f.wanted = nil
	f.step(true, true, true)
	require.Empty(t, f.held())
	f.step(true, true, true)
	require.Nil(t, f.ledger)
}

// TestHoldsInDoubt: a Machine that takes the place of another one while Ceph is silent is held as soon as pods of OSDs
// are on its node, and when Ceph answers again it stays so. One whose node has none is not.
func TestHoldsInDoubt(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	f.gone("node-d")
	f.silent = true
	f.step(true, true, true)
	f.machines = append(f.machines, fencing.Machine{Name: "another", UID: uid(9), Node: "node-d"})
	f.step(true, true, true)
	require.Equal(t, []string{"node-a", "node-b", "node-c", "node-e", "node-f", "node-d"}, f.held())
	require.Contains(t, f.ledger.Held, fencing.Key(uid(9)))
	f.silent = false
	f.step(true, true, true)
	require.Contains(t, f.held(), "node-d")
	require.NotContains(t, f.held(), "node-g")
}

// TestWhoMayReturnIsLookedAtAgain: when those that live had time to say so nothing need happen.
func TestWhoMayReturnIsLookedAtAgain(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	f.fail("node-d")
	f.answers = 3 * time.Second
	f.want("node-d", fencing.WhyUnhealthy)
	s := f.step(true, true, true)
	require.Equal(t, fencing.ReasonMayReturn, s.Ledger.Cases[0].Reason)
	require.Equal(t, f.now.Add(2*time.Second), s.Next)
	f.answers = 5 * time.Second
	require.Equal(t, fencing.StageReleased, f.step(true, true, true).Ledger.Cases[0].Stage)
}

// TestAnotherIsReleasedWhenNobodyFences: a release that nobody makes use of is taken back, and the next one waiting has
// its turn.
func TestAnotherIsReleasedWhenNobodyFences(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	f.fail("node-d")
	f.fail("node-e")
	f.want("node-d", fencing.WhyUnhealthy)
	f.now = f.now.Add(time.Second)
	f.want("node-e", fencing.WhyUnhealthy)
	f.step(true, true, true)
	c, _ := f.of("node-d")
	require.Equal(t, fencing.StageReleased, c.Stage)
	require.NotContains(t, f.held(), "node-d")
	c, _ = f.of("node-e")
	require.Equal(t, fencing.ReasonAnotherReleased, c.Reason)

	f.now = f.now.Add(20 * time.Minute)
	s := f.step(true, true, true)
	c, _ = f.of("node-e")
	require.Equal(t, fencing.StageReleased, c.Stage)
	c, _ = f.of("node-d")
	require.Equal(t, fencing.StageHeld, c.Stage)
	require.Equal(t, 1, c.Returns)
	require.Contains(t, f.held(), "node-d")
	require.Equal(t, f.now.Add(20*time.Minute), s.Next)
}

// TestWhatAFenceWaitsFor: the data may be long in healing, and whoever looks is told what is missing.
func TestWhatAFenceWaitsFor(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	f.fail("node-d")
	f.want("node-d", fencing.WhyUnhealthy)
	says := func(want string) {
		t.Helper()
		f.step(true, true, true)
		c, _ := f.of("node-d")
		require.Equal(t, fencing.StageHealing, c.Stage)
		require.Regexp(t, "^Machine [^ ;]+ is gone; "+want+"$", c.Message)
	}
	f.step(true, true, true)
	f.gone("node-d")
	says(`still missing: osd\.[0-9]+(, osd\.[0-9]+)*`)
	f.silent = true
	says("nothing is known: .+")
	f.silent = false
	f.serve("node-d")
	f.clean = false
	says("the data is not proved whole yet")
	f.clean = true
	f.step(true, true, true)
	_, there := f.of("node-d")
	require.False(t, there)
}

// TestWhoWasNotFencedGivesItsLeaseBack: a node that serves is not released twice under one lease, or nobody else would
// ever have it. To ask again does not give back the place in the queue either.
func TestWhoWasNotFencedGivesItsLeaseBack(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	f.want("node-d", fencing.WhyUnhealthy)
	asked := f.now
	f.hold("fence/node-d", zoneOf("node-d"))
	f.holders[0].Granted = f.now
	f.step(true, true, true)
	c, _ := f.of("node-d")
	require.Equal(t, fencing.ReasonDomainOpen, c.Reason)
	require.NotContains(t, f.held(), "node-d")

	f.now = f.now.Add(20 * time.Minute)
	for range 3 {
		f.step(true, true, true)
		c, _ = f.of("node-d")
		require.Equal(t, fencing.StageHeld, c.Stage)
		require.Equal(t, fencing.ReasonNotFenced, c.Reason)
		require.Contains(t, f.held(), "node-d")
		again := target("node-d")
		again.Since = asked
		f.ledger.Request(f.now, again)
		f.now = f.now.Add(time.Second)
	}
	f.holders, f.open = nil, ""
	f.step(true, true, true)
	c, _ = f.of("node-d")
	require.Equal(t, fencing.ReasonAwaitsLease, c.Reason)
	f.hold("fence/node-d", zoneOf("node-d"))
	f.holders[0].Granted = f.now
	f.step(true, true, true)
	c, _ = f.of("node-d")
	require.Equal(t, fencing.StageReleased, c.Stage)
	require.Equal(t, 1, c.Returns)
}

// TestWhoseMonWasNotFencedLetsOthersGo: while a node with a mon is released no other mon may go. If nobody fences it,
// drains and other fences have their turn before it is released once more.
func TestWhoseMonWasNotFencedLetsOthersGo(t *testing.T) {
	f := newFleet()
	f.mons[0].Node = "node-g"
	f.step(true, true, true)
	f.want("node-g", fencing.WhyUnhealthy)
	is := func(stage fencing.Stage, reason string) fencing.Step {
		t.Helper()
		s := f.step(true, true, true)
		c, _ := f.of("node-g")
		require.Equal(t, stage, c.Stage, c.Message)
		require.Equal(t, reason, c.Reason)
		return s
	}
	is(fencing.StageReleased, fencing.ReasonDomainOpen)
	f.now = f.now.Add(20 * time.Minute)
	s := is(fencing.StageHeld, fencing.ReasonNotFenced)
	require.Equal(t, f.now.Add(20*time.Minute), s.Next)
	f.fail("node-d")
	f.doom("node-d")
	is(fencing.StageHeld, fencing.ReasonNotFenced)
	d, _ := f.of("node-d")
	require.Equal(t, fencing.StageReleased, d.Stage)
	f.gone("node-d")
	f.serve("node-d")
	f.clean, f.now = true, s.Next.Add(-time.Second)
	is(fencing.StageHeld, fencing.ReasonNotFenced)
	f.now = s.Next
	is(fencing.StageReleased, fencing.ReasonDomainOpen)
}

// TestReleasedByHandIsARelease: of a node that is released without Ceph's word nobody knows what it hosts. It counts
// all the same: nobody else is released beside it.
func TestReleasedByHandIsARelease(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	f.fail("node-d")
	f.silent = true
	f.byHand("node-d")
	f.step(true, true, true)
	c, _ := f.of("node-d")
	require.Equal(t, fencing.ReasonOverridden, c.Reason)
	require.NotContains(t, f.held(), "node-d")

	f.byHand("node-e")
	f.step(true, true, true)
	c, _ = f.of("node-e")
	require.Equal(t, fencing.ReasonAnotherReleased, c.Reason, "not even by hand")

	f.silent = false
	f.fail("node-f")
	f.want("node-f", fencing.WhyUnhealthy)
	f.step(true, true, true)
	c, _ = f.of("node-f")
	require.Equal(t, fencing.ReasonAnotherReleased, c.Reason)
	require.Contains(t, f.held(), "node-f")
}

// TestWhatTakesNothingGoesAtOnce: and what takes something, or disks, waits for all else that was decided.
func TestWhatTakesNothingGoesAtOnce(t *testing.T) {
	for name, want := range map[string]struct {
		serves, disksGo, byHand bool
		atOnce                  int
	}{
		"nothing serves": {atOnce: 1},
		"it serves":      {serves: true},
		"disks go":       {disksGo: true},
		"by hand":        {serves: true, byHand: true, atOnce: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			f.step(true, true, true)
			switch {
			case want.byHand:
				f.byHand("node-d")
			case want.serves:
				f.want("node-d", fencing.WhyUnhealthy)
				f.hold("fence/node-d", "zone-x")
			default:
				f.want("node-d", fencing.WhyUnhealthy)
				f.fail("node-d")
			}
			f.ledger.Cases[0].DisksGo, f.clean = want.disksGo, true
			s := f.step(true, true, true)
			require.Len(t, s.AtOnce, want.atOnce)
			require.Len(t, s.Remove, 1-want.atOnce)
		})
	}
}

// TestAReleaseIsRegretted: whoever fences may be slow. What was dead when its Machine was let go may serve again by
// then, or another failure domain may be hurt; then it is held again, if it is not doomed.
func TestAReleaseIsRegretted(t *testing.T) {
	for name, c := range map[string]struct {
		opened, silent, serves, elsewhere, doomed, byHand, done, lent bool
		keeps                                                         bool
	}{
		"nothing has changed":                         {keeps: true},
		"another node fails":                          {elsewhere: true, keeps: true},
		"it serves again, all else is whole":          {serves: true, keeps: true},
		"it serves again, and somebody has the lease": {serves: true, lent: true},
		"it serves again, and another node fails":     {serves: true, elsewhere: true},
		"it is doomed":                                {serves: true, elsewhere: true, doomed: true, keeps: true},
		"a person said so":                            {serves: true, elsewhere: true, byHand: true, keeps: true},
		"nothing serves, and Ceph is silent":          {silent: true, keeps: true},
		"its domain is open":                          {opened: true, keeps: true},
		"its domain is open, and another is hurt":     {opened: true, elsewhere: true},
		"its domain is open, and Ceph is silent":      {opened: true, silent: true},
		"its domain is closed for a look":             {opened: true, done: true, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			f.step(true, true, true)
			switch {
			case c.byHand:
				f.fail("node-d")
				f.byHand("node-d")
			case c.opened:
				f.want("node-d", fencing.WhyUnhealthy)
				f.hold("fence/node-d", zoneOf("node-d"))
			default:
				f.fail("node-d")
				f.want("node-d", fencing.WhyUnhealthy)
			}
			f.step(true, true, true)
			require.NotContains(t, f.held(), "node-d")
			if c.serves {
				f.serve("node-d")
			}
			if c.elsewhere {
				f.fail("node-e")
			}
			if c.lent {
				f.hold("drain/node-e", zoneOf("node-e"))
			}
			if c.doomed {
				f.doom("node-d")
			}
			if c.done {
				f.open = ""
			}
			f.silent = c.silent
			f.step(true, true, true)
			of, _ := f.of("node-d")
			if c.keeps {
				require.Equal(t, fencing.StageReleased, of.Stage)
				require.NotContains(t, f.held(), "node-d")
				return
			}
			require.Equal(t, fencing.StageHeld, of.Stage)
			require.Contains(t, f.held(), "node-d")
		})
	}
}

// TestForeignHold: a mark that equals ours, and that nobody noted, is nobody's to take away.
func TestForeignHold(t *testing.T) {
	f := newFleet()
	f.machines[6].Held = true // node-g hosts nothing
	f.machines[0].Held = true
	for range 3 {
		f.step(true, true, true)
	}
	require.NotContains(t, f.ledger.Held, fencing.Key(uid(6)))
	f.wanted = nil
	f.step(true, true, true)
	require.Equal(t, []string{"node-a", "node-g"}, f.held())
}

// TestBudgetFollows: the MachineDisruptionBudget says 1 only while the data is whole and nothing is released, and it
// goes with the policy.
func TestBudgetFollows(t *testing.T) {
	f := newFleet()
	mdb := storage.Fencing{API: fencing.APIBudget, Namespace: "machines"}
	never, spread := false, ""
	next := func(wanted *storage.Fencing, most *int) fencing.Step {
		survey := fencing.Survey{Fencing: mdb, Known: true, Max: most, Never: never, Spread: spread}
		s := fencing.Next(fencing.Input{
			Now: f.now, Ledger: f.ledger, Wanted: wanted, Facts: f.facts(), Survey: survey, Timeout: time.Hour,
		})
		f.ledger = s.Ledger
		return s
	}
	one, none := 1, 0
	require.Equal(t, &one, next(&mdb, nil).Max)
	require.True(t, f.ledger.Budget)
	require.Nil(t, next(&mdb, &one).Max, "it says so already")
	never = true // somebody has nodes fenced that are ready
	require.Equal(t, &none, next(&mdb, &one).Max)
	never, spread = false, "node-b"
	require.Nil(t, next(&mdb, &none).Max, "a node is in two failure domains")
	spread = ""
	require.Equal(t, &one, next(&mdb, &none).Max)
	f.fail("node-a")
	require.Equal(t, &none, next(&mdb, &one).Max)
	require.True(t, next(nil, &none).Drop)
	next(nil, nil)
	require.Nil(t, f.ledger)
}

// TestARequestWithoutATime: the API server takes no case without one. A job whose node has recovered knows none.
func TestARequestWithoutATime(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	l := &fencing.Ledger{}
	ask := func(why fencing.Why, since time.Time) time.Time {
		l.Request(now, fencing.Target{Node: "node-a", WorkflowID: "fence/node-a", RunID: "run", Why: why, Since: since})
		require.Len(t, l.Cases, 1)
		return l.Cases[0].Since
	}
	require.Equal(t, now, ask(fencing.WhyRecovered, time.Time{}))
	require.Equal(t, now.Add(-time.Hour), ask(fencing.WhyUnhealthy, now.Add(-time.Hour)))
	require.Equal(t, now.Add(-time.Hour), ask(fencing.WhyUnhealthy, now), "it keeps its place")
	require.Equal(t, now.Add(-time.Hour), ask(fencing.WhyRecovered, time.Time{}))
}

// TestUnderAnotherAPI: what was set under the old one goes before anything is set under the new one.
func TestUnderAnotherAPI(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	other := storage.Fencing{API: "OpenShift", Namespace: "machines"}
	f.wanted = &other
	s := fencing.Next(fencing.Input{
		Now: f.now, Ledger: f.ledger, Wanted: &other, Facts: f.facts(),
		Survey: func() fencing.Survey {
			x := fencing.Sift(fencing.Found{
				Ledger: f.ledger, Machines: f.machines, Hosted: f.hosted(), Known: true, Ending: true,
			})
			x.Fencing = capi
			return x
		}(),
	})
	require.Len(t, s.Remove, 6)
	require.Empty(t, s.Set)
	require.Equal(t, capi, s.Ledger.Fencing)
}

// TestAnotherHoldWaits: the policy says another way to hold Machines while a node is to be fenced. Between the two
// nothing would hold it, so it is held as before until that is over.
func TestAnotherHoldWaits(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	other := storage.Fencing{API: "ClusterAPI", Namespace: "machines", Hold: "SkipRemediation"}
	f.ledger.Request(f.now, target("node-a"))
	look := func(waits bool) fencing.Step {
		under, waitsFor := fencing.InForce(&other, f.ledger)
		x := fencing.Sift(fencing.Found{
			Ledger: f.ledger, Machines: f.machines, Hosted: f.hosted(), Known: true, Ending: waitsFor == "",
			Nodes: f.ledger.Nodes(),
		})
		x.Fencing = f.ledger.Fencing
		if waitsFor != "" {
			require.Equal(t, capi, *under)
		}
		facts := f.facts()
		facts.AskedFor = f.ledger.Nodes()
		return fencing.Next(fencing.Input{
			Now: f.now, Ledger: f.ledger, Wanted: &other, Facts: facts, Survey: x, HoldsAnew: true, Waits: waits,
		})
	}
	require.NotEmpty(t, look(false).Remove, "a keeper that began earlier gives it up")
	s := look(true)
	require.Empty(t, s.Remove)
	require.Equal(t, fencing.StageHeld, s.Ledger.Cases[0].Stage)
	require.Equal(t, fencing.ReasonAwaitsLease, s.Ledger.Cases[0].Reason, "it is judged as ever")
	_, waitsFor := fencing.InForce(nil, f.ledger)
	require.Empty(t, waitsFor, "that nothing is to be held any more is somebody's word")

	// Its job has ended, of which the look that was under way has not heard.
	seen := f.ledger.Clone()
	f.ledger.Drop("fence/node-a", "run")
	x := fencing.Sift(fencing.Found{
		Ledger: seen, Machines: f.machines, Hosted: f.hosted(), Known: true, Nodes: seen.Nodes(),
	})
	x.Fencing = capi
	s = fencing.Next(fencing.Input{
		Now: f.now, Ledger: f.ledger, Wanted: &other, Facts: f.facts(), Survey: x, HoldsAnew: true, Waits: true,
	})
	require.NotEmpty(t, append(s.Remove, s.AtOnce...))
	f.mark(s.Remove, false)
	f.ledger = s.Ledger
	s = look(true)
	require.Len(t, s.Remove, 5)
	f.mark(s.Remove, false)
	f.ledger = s.Ledger
	s = look(true)
	require.Empty(t, s.Remove)
	require.NotZero(t, s.Next, "to hold them anew")
	require.Nil(t, s.Ledger)
}

// TestHeldAnewAtOnce: the policy says another way to hold Machines. When all old holds are gone nothing may happen for
// hours, and nobody holds them: so they are looked at again at once.
func TestHeldAnewAtOnce(t *testing.T) {
	f := newFleet()
	f.step(true, true, true)
	other := storage.Fencing{API: "ClusterAPI", Namespace: "machines", Hold: "SkipRemediation"}
	look := func(under storage.Fencing) fencing.Step {
		x := fencing.Sift(fencing.Found{
			Ledger: f.ledger, Machines: f.machines, Hosted: f.hosted(), Known: true, Ending: under != other,
		})
		x.Fencing = under
		s := fencing.Next(fencing.Input{
			Now: f.now, Ledger: f.ledger, Wanted: &other, Facts: f.facts(), Survey: x, HoldsAnew: true,
		})
		f.ledger = s.Ledger
		return s
	}
	s := look(capi)
	require.Len(t, s.Remove, 6)
	require.Zero(t, s.Next)
	f.mark(s.Remove, false)
	s = look(capi)
	require.Empty(t, s.Remove)
	require.NotZero(t, s.Next)
	require.Less(t, s.Next.Sub(f.now), time.Second)
	s = look(other)
	require.Len(t, s.Ledger.Held, 6)
	require.Equal(t, other, s.Ledger.Fencing)
	require.Zero(t, s.Next)
}

// TestLedgerModel plays a keeper that dies at any moment, remediators that fence whatever is not held and unhealthy,
// people who take holds away, and failures of all kinds. What must hold is said in terms of Machines and daemons.
func TestLedgerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet()
		f.step(true, true, true)
		node := rapid.SampledFrom(nodes[:6])
		wasReleased := map[string]bool{}
		check := func() {
			released := 0
			for i := range f.machines {
				m := f.machines[i]
				c, _ := f.of(m.Node)
				running, all := f.running(m.Node)
				if !m.Held && c.Stage == fencing.StageReleased && all > 0 {
					released++
				}
				if !m.Held && !wasReleased[m.Node] && running > 0 && c.Stage != fencing.StageReleased {
					t.Fatalf("%s hosts %d daemons that serve, and is not held (%+v)", m.Node, running, c)
				}
			}
			if released > 1 {
				t.Fatalf("%d Machines are released (I7)", released)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"keeper": func(t *rapid.T) {
				before := f.facts()
				hurt := f.hurt()
				was := map[string]fencing.Stage{}
				for _, n := range f.ledger.Nodes() {
					c, _ := f.of(n)
					was[n] = c.Stage
				}
				f.step(rapid.Bool().Draw(t, "writes"), rapid.Bool().Draw(t, "sets"), rapid.Bool().Draw(t, "removes"))
				f.step(true, true, true) // the next keeper, or the next pass
				for _, n := range f.ledger.Nodes() {
					c, _ := f.of(n)
					if c.Stage != fencing.StageReleased || c.Override != nil {
						continue
					}
					again := was[n] == fencing.StageReleased
					if m := slices.IndexFunc(f.machines, func(m fencing.Machine) bool { return m.Node == n }); again &&
						(f.silent || m < 0 || f.machines[m].Deleting) { // nobody knows, or nobody can take it back
						continue
					}
					running, _ := f.running(n)
					elsewhere := slices.ContainsFunc(hurt, func(z string) bool { return z != zoneOf(n) })
					if running > 0 && elsewhere {
						t.Fatalf("%s is released with %d daemons that serve while %v is hurt", n, running, hurt)
					}
					if before.View.Unavailable != "" {
						t.Fatalf("%s is released, and Ceph is silent", n)
					}
				}
				check()
			},
			"dies":      func(t *rapid.T) { n := node.Draw(t, "node"); f.fail(n); f.want(n, fencing.WhyUnhealthy) },
			"is cut":    func(t *rapid.T) { f.want(node.Draw(t, "node"), fencing.WhyUnhealthy) },
			"by hand":   func(t *rapid.T) { f.byHand(node.Draw(t, "node")) },
			"deleted":   func(t *rapid.T) { f.doom(node.Draw(t, "node")) },
			"serves":    func(t *rapid.T) { f.serve(node.Draw(t, "node")) },
			"granted":   func(t *rapid.T) { n := node.Draw(t, "node"); f.holders = nil; f.hold("fence/"+n, zoneOf(n)) },
			"lease end": func(*rapid.T) { f.holders, f.open = nil, "" },
			"silent":    func(t *rapid.T) { f.silent = rapid.Bool().Draw(t, "silent") },
			"fenced": func(t *rapid.T) {
				for _, n := range f.ledger.Nodes() {
					if c, _ := f.of(n); c.Stage == fencing.StageReleased && !slices.Contains(f.held(), n) &&
						slices.ContainsFunc(f.machines, func(m fencing.Machine) bool { return m.Node == n }) {
						f.gone(n)
						f.fail(n)
						return
					}
				}
			},
			"replaced": func(*rapid.T) {
				for i, n := range nodes {
					if !slices.ContainsFunc(f.machines, func(m fencing.Machine) bool { return m.Node == n }) {
						f.machines = append(f.machines, fencing.Machine{
							Name: "machine-" + n, UID: uid(i)[:9] + f.now.Format("1504") + uid(i)[13:], Node: n,
						})
						f.serve(n)
						wasReleased[n] = true // its new Machine is held by the next pass
						f.step(true, true, true)
						delete(wasReleased, n)
						return
					}
				}
			},
			"whole": func(*rapid.T) { f.clean = !slices.ContainsFunc(f.osds, func(o osd) bool { return !o.up }) },
			"later": func(t *rapid.T) { f.now = f.now.Add(time.Duration(rapid.IntRange(1, 25).Draw(t, "min")) * time.Minute) },
			"job ends": func(t *rapid.T) {
				n := node.Draw(t, "node")
				f.ledger.Drop("fence/"+n, "run")
			},
			"tampering": func(t *rapid.T) {
				i := rapid.IntRange(0, len(f.machines)-1).Draw(t, "machine")
				f.machines[i].Held = false
				f.step(true, true, true) // the watcher tells the keeper
			},
		})
		// When Ceph answers and jobs ask, a fence that costs nothing has its turn.
		f.silent, f.holders, f.open = false, nil, ""
		for _, n := range f.ledger.Nodes() {
			f.ledger.Drop("fence/"+n, "run")
		}
		f.step(true, true, true)
		n := f.machines[0].Node
		f.fail(n)
		for i := range f.mons {
			f.mons[i].InQuorum = f.mons[i].Node != n
		}
		f.want(n, fencing.WhyUnhealthy)
		f.step(true, true, true)
		if c, _ := f.of(n); c.Stage != fencing.StageReleased {
			t.Fatalf("nothing on %s serves, and it is not released: %s %s", n, c.Reason, c.Message)
		}
	})
}

// TestRenew: what heals is forgotten when the same job asks because its node has failed since, and not when it repeats
// what it asked before, whose time is noted to the second.
func TestRenew(t *testing.T) {
	since := time.Unix(1000, 500_000_000)
	of := func(run string, why fencing.Why, since time.Time) fencing.Target {
		return fencing.Target{Node: "node-a", WorkflowID: "fence/node-a", RunID: run, Why: why, Since: since}
	}
	word := of("run", fencing.WhyUnhealthy, since)
	word.Override = &fencing.Override{By: "ann", Reason: "burnt", At: since.Add(time.Minute)}
	for _, c := range []struct {
		what  string
		stage fencing.Stage
		asks  fencing.Target
		anew  bool
	}{
		{"a person released it", fencing.StageHealing, word, false},
		{"it failed again", fencing.StageHealing, of("run", fencing.WhyUnhealthy, since.Add(time.Minute)), true},
		{"the same", fencing.StageHealing, of("run", fencing.WhyUnhealthy, since), false},
		{"another run", fencing.StageHealing, of("other", fencing.WhyUnhealthy, since.Add(time.Minute)), false},
		{"it is to be deleted", fencing.StageHealing, of("run", fencing.WhyDeleting, since.Add(time.Minute)), false},
		{"it knows no time", fencing.StageHealing, of("run", fencing.WhyUnhealthy, time.Time{}), false},
		{"it was let go", fencing.StageReleased, of("run", fencing.WhyUnhealthy, since.Add(time.Minute)), false},
	} {
		noted := of("run", fencing.WhyUnhealthy, since.Truncate(time.Second))
		l := &fencing.Ledger{Cases: []fencing.Case{{Target: noted, Stage: c.stage}}}
		l.Renew(c.asks)
		require.Equal(t, c.anew, len(l.Cases) == 0, c.what)
	}
}
