package budget_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// pdb is the disruption controller and the eviction API for one PodDisruptionBudget with an integer minAvailable and
// IfHealthyBudget, with a controller that is never late.
type pdb struct {
	spec budget.Spec
	pods []*pod
}

type pod struct {
	osd    string
	zone   string // its label
	state  storage.PodState
	serves bool // the OSD behind it is up
}

func (b *pdb) covers(p *pod) bool { return !slices.Contains(b.spec.Except, p.zone) }

func (b *pdb) healthy() int {
	n := 0
	for _, p := range b.pods {
		if b.covers(p) && p.state == storage.PodReady {
			n++
		}
	}
	return n
}

// evict asks for the eviction of a pod, and tells whether it was granted.
func (b *pdb) evict(p *pod) bool {
	switch {
	case p.state == storage.PodTerminating || p.state == storage.PodNone:
		return false
	case !b.covers(p) || p.state == storage.PodPending:
	case p.state == storage.PodNotReady:
		if healthy := b.healthy(); healthy < b.spec.MinAvailable || b.spec.MinAvailable == 0 {
			return false
		}
	case b.healthy()-b.spec.MinAvailable < 1:
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
			out = append(out, &pod{osd: o.Name, zone: zones[i/perZone], state: o.Pod, serves: o.Up && !o.Pod.Leaving()})
		}
	}
	return out
}

// TestWhatABudgetLetsGo has a crowd of clients evict whatever they can under one decision, while the keeper sleeps.
func TestWhatABudgetLetsGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		d := budget.Decide(w.input())
		b := &pdb{spec: d.Budget, pods: podsOf(w)}
		if d.Mode != budget.ModeDefault {
			// Whatever appears after the decision lends nobody an eviction.
			for range rapid.IntRange(0, 2).Draw(t, "new pods") {
				b.pods = append(b.pods, &pod{osd: "osd.9", zone: rapid.SampledFrom(append([]string{""}, zones...)).Draw(t, "zone"), state: storage.PodReady})
			}
		}
		stopped := map[string]bool{} // zones
		count := 0
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(b.pods)-1), 0, 20).Draw(t, "evictions") {
			if p := b.pods[i]; b.evict(p) && p.serves {
				stopped[p.zone] = true
				count++
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
			if count > 1 {
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
				o.Pod = rapid.SampledFrom([]storage.PodState{storage.PodReady, storage.PodNotReady, storage.PodPending, storage.PodNone}).Draw(t, "pod")
			}
		}
		d := budget.Decide(w.input())
		b := &pdb{spec: d.Budget, pods: podsOf(w)}
		if d.Mode != budget.ModeDefault || !b.evict(b.pods[0]) {
			t.Fatalf("osd.0 may not go: %+v, %d healthy", d, b.healthy())
		}
	})
}

// TestOpenHoldsNobodyBack: in the open domain all may go.
func TestOpenHoldsNobodyBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		d := budget.Decide(w.input())
		b := &pdb{spec: d.Budget, pods: podsOf(w)}
		for _, p := range b.pods {
			if d.Mode == budget.ModeOpen && p.zone == d.Open.Name && p.state != storage.PodTerminating && !b.evict(p) {
				t.Fatalf("%s is open, but %s may not go", d.Open, p.osd)
			}
		}
	})
}

// TestGroupsDoNotHoldDrainsUp: three nodes are drained at once. One gateway has gone and finds no node; the other is all that
// keeps the first node from being empty.
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
