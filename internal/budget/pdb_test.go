package budget_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// pdbs are the disruption controller and the eviction API for the two PodDisruptionBudgets of the OSDs, with a
// controller that is never late.
type pdbs struct {
	proved, unproved budget.Spec
	pods             []*pod
}

type pod struct {
	osd    string
	zone   string // its label
	marked bool
	state  storage.PodState
	serves bool // the OSD behind it is up
}

func (b *pdbs) of(p *pod) budget.Spec {
	if p.marked {
		return b.proved
	}
	return b.unproved
}

func (b *pdbs) covers(p *pod) bool { return !slices.Contains(b.of(p).Except, p.zone) }

// healthy counts the ready pods under the same budget, and expected what their controllers want: one each.
func (b *pdbs) healthy(as *pod) (healthy, expected int) {
	for _, p := range b.pods {
		if p.marked != as.marked || !b.covers(p) {
			continue
		}
		expected++
		if p.state == storage.PodReady {
			healthy++
		}
	}
	return healthy, expected
}

// evict asks for the eviction of a pod, and tells whether it was granted.
func (b *pdbs) evict(p *pod) bool {
	healthy, expected := b.healthy(p)
	desired := b.of(p).MinAvailable
	if b.of(p).Quiet {
		desired = expected
	}
	switch {
	case p.state == storage.PodTerminating || p.state == storage.PodNone:
		return false
	case !b.covers(p) || p.state == storage.PodPending:
	case p.state == storage.PodNotReady:
		if healthy < desired || desired == 0 { // IfHealthyBudget
			return false
		}
	case healthy-desired < 1:
		return false
	}
	p.state = storage.PodTerminating
	return true
}

// podsOf makes the pods that a world's OSDs have.
func podsOf(w *world) []*pod {
	var out []*pod
	for i, o := range w.osds {
		if o.Pod != storage.PodNone {
			out = append(out, &pod{
				osd: o.Name, zone: zones[i/perZone], marked: !w.unmarked[o.Name], state: o.Pod,
				serves: o.Up && !o.Pod.Leaving(),
			})
		}
	}
	return out
}

// carryOut has the keeper do what a decision calls for: the marks that have to go go first, and those that were proved
// come last. Where it stops is drawn, as if it died there.
func carryOut(t *rapid.T, w *world, d budget.Decision) *pdbs {
	b := &pdbs{proved: d.Budget, unproved: budget.Spec{MinAvailable: budget.Everything}, pods: podsOf(w)}
	if d.Unproved != nil {
		b.unproved = *d.Unproved
	}
	plan := budget.PlanMarks(w.input(), d)
	for _, p := range b.pods {
		switch serves := p.serves && p.state == storage.PodReady; {
		case plan.UnsetAll, plan.Unset && !serves:
			p.marked = false
		case plan.Set && serves && !p.marked:
			p.marked = rapid.Bool().Draw(t, "marked")
		}
	}
	return b
}

// TestWhatABudgetLetsGo has a crowd of clients evict whatever they can under one decision, while the keeper sleeps.
// Pods that went are replaced and ready before anybody looks, and new ones appear: none of them lends anybody an
// eviction.
func TestWhatABudgetLetsGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		d := budget.Decide(w.input())
		b := carryOut(t, w, d)
		stopped := map[string]bool{} // zones
		count := 0
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			p := rapid.SampledFrom(b.pods).Draw(t, "pod")
			switch rapid.SampledFrom([]string{"evict", "evict", "evict", "replace", "appear"}).Draw(t, "what") {
			case "evict":
				if b.evict(p) && p.serves {
					stopped[p.zone] = true
					count++
				}
			case "replace":
				if p.state == storage.PodTerminating {
					*p = pod{osd: p.osd, zone: p.zone, state: storage.PodReady}
				}
			case "appear":
				b.pods = append(b.pods, &pod{
					osd: "osd.9", zone: rapid.SampledFrom(append([]string{""}, zones...)).Draw(t, "zone"),
					state: storage.PodReady, serves: true,
				})
			}
		}
		switch d.Mode {
		case budget.ModeClosed:
			if count > 0 {
				t.Fatalf("closed (%s), but %d went", d.Message, count)
			}
		case budget.ModeOpen:
			delete(stopped, d.Open.Name)
			if len(stopped) > 0 {
				t.Fatalf("%s is open (%s), but some went in %v", d.Open, d.Message, stopped)
			}
		case budget.ModeDefault:
			most := 1
			if w.in.Settings.AtRest == storage.AtRestNone {
				most = 0
			}
			if count > most {
				t.Fatalf("at rest (%s), but %d went", d.Message, count)
			}
		}
	})
}

// TestAtRestOneMayGo: at rest nobody is held back who comes alone, whatever died long ago.
func TestAtRestOneMayGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := atRest()
		for i := range w.osds[1:] {
			if rapid.Bool().Draw(t, "dead") {
				o := &w.osds[i+1]
				o.Up = false
				o.Pod = rapid.SampledFrom([]storage.PodState{
					storage.PodReady, storage.PodNotReady, storage.PodPending,
					storage.PodNone,
				}).Draw(t, "pod")
			}
		}
		d := budget.Decide(w.input())
		b := carryOut(t, w, d)
		if d.Mode != budget.ModeDefault || !b.evict(b.pods[0]) {
			t.Fatalf("osd.0 may not go: %+v", d)
		}
	})
}

// TestOpenHoldsNobodyBack: in the open domain all may go.
func TestOpenHoldsNobodyBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		d := budget.Decide(w.input())
		b := carryOut(t, w, d)
		for _, p := range b.pods {
			if d.Mode == budget.ModeOpen && p.zone == d.Open.Name && p.state != storage.PodTerminating && !b.evict(p) {
				t.Fatalf("%s is open, but %s may not go", d.Open, p.osd)
			}
		}
	})
}

// TestGroupsDoNotHoldDrainsUp: three nodes are drained at once. One gateway has gone and finds no node; the other is
// all that keeps the first node from being empty.
func TestGroupsDoNotHoldDrainsUp(t *testing.T) {
	w := atRest()
	w.say("cordoned=a,c,e")
	w.say("touched=x")
	w.say("health=behind")
	w.say("osd.0=down/Pending")
	in := w.input()
	d := budget.Decide(in)
	require.Equal(t, zone("x"), d.Open)
	emptying := budget.Emptying(in, d)
	require.Equal(t, []string{"a"}, emptying)
	pods := []budget.GroupPod{{State: storage.PodPending, Unschedulable: true}, {Node: "a", State: storage.PodReady}}
	require.Equal(t, 1, budget.Homeless(pods, emptying))
	least, ok := budget.GroupMinAvailable(2, 1)
	require.True(t, ok)
	require.Zero(t, least)
	pods[1].Node = "b"
	require.Zero(t, budget.Homeless(pods, emptying), "it is in nobody's way")
	require.Empty(t, budget.Emptying(in, budget.Decision{Mode: budget.ModeClosed}))
}

func TestGroupBudget(t *testing.T) {
	for replicas, want := range []int{-1, -1, 1, 2, 3} {
		least, ok := budget.GroupMinAvailable(replicas, 0)
		if ok != (want >= 0) || ok && least != want {
			t.Errorf("%d replicas: %d must stay (%t), want %d", replicas, least, ok, want)
		}
	}
}
