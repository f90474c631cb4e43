package fencing_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

func machine(name, node string, held bool) fencing.Machine {
	return fencing.Machine{Name: name, UID: "uid-" + name, Node: node, Held: held}
}

func noted(name string) fencing.Hold {
	return fencing.Hold{Machine: name, UID: "uid-" + name, Node: "node-a"}
}

var serves = map[string]fencing.Hosted{"node-a": {Daemons: 2, Running: 2}}

func TestPlanHolds(t *testing.T) {
	m, held := machine("m", "node-a", false), machine("m", "node-a", true)
	down := map[string]fencing.Hosted{"node-a": {Daemons: 2}}
	for _, test := range []struct {
		name string
		rest fencing.Rest
		want fencing.Plan
	}{
		{
			"hosts OSDs",
			fencing.Rest{Machines: []fencing.Machine{m}, Hosted: serves, Known: true},
			fencing.Plan{Note: []fencing.Hold{noted("m")}, Set: []fencing.Machine{m}},
		},
		{
			"hosts a mon",
			fencing.Rest{
				Machines: []fencing.Machine{m}, Hosted: map[string]fencing.Hosted{"node-a": {Mon: 1}}, Known: true,
			},
			fencing.Plan{Note: []fencing.Hold{noted("m")}, Set: []fencing.Machine{m}},
		},
		{"hosts nothing", fencing.Rest{Machines: []fencing.Machine{m}, Known: true}, fencing.Plan{}},
		{"has no node", fencing.Rest{Machines: []fencing.Machine{machine("m", "", false)}, Known: true}, fencing.Plan{}},
		{
			"noted and not set, by a crash",
			fencing.Rest{
				Machines: []fencing.Machine{m}, Noted: []fencing.Hold{noted("m")}, Hosted: serves, Known: true,
			},
			fencing.Plan{Set: []fencing.Machine{m}, Again: []string{"m"}},
		},
		{
			"is held", fencing.Rest{
				Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}, Hosted: serves, Known: true,
			}, fencing.Plan{},
		},
		{
			"is held by somebody else",
			fencing.Rest{Machines: []fencing.Machine{held}, Hosted: serves, Known: true},
			fencing.Plan{Foreign: []string{"m"}},
		},
		{
			"is held by somebody else, and hosts nothing",
			fencing.Rest{Machines: []fencing.Machine{held}, Known: true},
			fencing.Plan{Foreign: []string{"m"}},
		},
		{
			"its OSDs are down", fencing.Rest{
				Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}, Hosted: down, Known: true,
			}, fencing.Plan{},
		},
		{
			"its OSDs are down, and nobody needs them", fencing.Rest{
				Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}, Hosted: down, Known: true, Clean: true,
			}, fencing.Plan{Remove: []fencing.Machine{held}, Forget: []fencing.Hold{noted("m")}},
		},
		{
			"its OSDs are down, and their pods are gone", fencing.Rest{
				Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}, Known: true,
			}, fencing.Plan{},
		},
		{
			"nothing is on it, and nothing is missing", fencing.Rest{
				Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}, Known: true, Clean: true,
			}, fencing.Plan{Remove: []fencing.Machine{held}, Forget: []fencing.Hold{noted("m")}},
		},
		{
			"is released", fencing.Rest{
				Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}, Hosted: serves, Known: true,
				Released: []string{"node-a"},
			}, fencing.Plan{Remove: []fencing.Machine{held}, Forget: []fencing.Hold{noted("m")}},
		},
		{
			"Ceph is silent", fencing.Rest{Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}}, fencing.Plan{},
		},
		{
			"Ceph is silent, and somebody takes the hold away",
			fencing.Rest{Machines: []fencing.Machine{m}, Noted: []fencing.Hold{noted("m")}},
			fencing.Plan{Set: []fencing.Machine{m}, Again: []string{"m"}},
		},
		{
			"released by hand while Ceph is silent", fencing.Rest{
				Machines: []fencing.Machine{held}, Noted: []fencing.Hold{noted("m")}, Released: []string{"node-a"},
			}, fencing.Plan{Remove: []fencing.Machine{held}, Forget: []fencing.Hold{noted("m")}},
		},
		{
			"the Machine is gone",
			fencing.Rest{Noted: []fencing.Hold{noted("m")}, Known: true},
			fencing.Plan{Forget: []fencing.Hold{noted("m")}},
		},
		{
			"another of the same name",
			fencing.Rest{
				Machines: []fencing.Machine{{Name: "m", UID: "other", Node: "node-a"}}, Noted: []fencing.Hold{noted("m")},
				Hosted: serves, Known: true,
			},
			fencing.Plan{
				Note:   []fencing.Hold{{Machine: "m", UID: "other", Node: "node-a"}},
				Set:    []fencing.Machine{{Name: "m", UID: "other", Node: "node-a"}},
				Forget: []fencing.Hold{noted("m")},
			},
		},
		{
			"the policy goes",
			fencing.Rest{
				Machines: []fencing.Machine{held, machine("n", "node-b", true)}, Noted: []fencing.Hold{noted("m")}, Hosted: serves,
				Ending: true,
			},
			fencing.Plan{
				Remove: []fencing.Machine{held}, Forget: []fencing.Hold{noted("m")}, Foreign: []string{"n"},
			},
		},
		{"a node without a Machine", fencing.Rest{Hosted: serves, Known: true}, fencing.Plan{Without: []string{"node-a"}}},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, fencing.PlanHolds(test.rest)) })
	}
}

// TestPlansConverge carries plans out, any number of steps of each, as crashes leave them.
func TestPlansConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := fencing.Rest{
			Known: rapid.Bool().Draw(t, "known"), Clean: rapid.Bool().Draw(t, "clean"), Ending: rapid.Bool().Draw(t, "ending"),
			Hosted: map[string]fencing.Hosted{},
		}
		var foreign []string
		for _, node := range nodes {
			m := machine("m-"+node, node, rapid.Bool().Draw(t, "held"))
			r.Machines = append(r.Machines, m)
			if rapid.Bool().Draw(t, "noted") {
				r.Noted = append(r.Noted, fencing.Hold{Machine: m.Name, UID: m.UID, Node: node})
			} else if m.Held {
				foreign = append(foreign, m.Name)
			}
			if r.Known {
				daemons := rapid.IntRange(0, 2).Draw(t, "daemons")
				r.Hosted[node] = fencing.Hosted{Daemons: daemons, Running: rapid.IntRange(0, daemons).Draw(t, "running")}
			}
			if rapid.IntRange(0, 6).Draw(t, "released") == 0 && len(r.Released) == 0 {
				r.Released = []string{node}
			}
		}
		for range 2 { // a plan that is carried out half-way, and another one
			carryOut(&r, fencing.PlanHolds(r), rapid.IntRange(0, 30).Draw(t, "steps"))
			for _, m := range r.Machines {
				ours := slices.ContainsFunc(r.Noted, func(h fencing.Hold) bool { return h.UID == m.UID })
				require.True(t, !m.Held || ours || slices.Contains(foreign, m.Name), "%s is held, and nobody noted it", m)
			}
		}
		carryOut(&r, fencing.PlanHolds(r), 1000)
		last := fencing.PlanHolds(r)
		require.True(t, last.Nothing(), "%+v", last)
		for _, m := range r.Machines {
			if slices.Contains(foreign, m.Name) {
				require.True(t, m.Held, "%s: another's hold is gone", m)
			} else if r.Known && !r.Ending && !slices.Contains(r.Released, m.Node) && r.Hosted[m.Node].Running > 0 {
				require.True(t, m.Held, "%s hosts daemons that serve, and is not held", m)
			}
		}
	})
}

func carryOut(r *fencing.Rest, p fencing.Plan, steps int) {
	set := func(m fencing.Machine, held bool) {
		for i := range r.Machines {
			if r.Machines[i].UID == m.UID {
				r.Machines[i].Held = held
			}
		}
	}
	var todo []func()
	for _, h := range p.Note {
		todo = append(todo, func() { r.Noted = append(r.Noted, h) })
	}
	for _, m := range p.Set {
		todo = append(todo, func() { set(m, true) })
	}
	for _, m := range p.Remove {
		todo = append(todo, func() { set(m, false) })
	}
	for _, h := range p.Forget {
		todo = append(todo, func() {
			r.Noted = slices.DeleteFunc(slices.Clone(r.Noted), func(x fencing.Hold) bool { return x == h })
		})
	}
	for _, do := range todo[:min(steps, len(todo))] {
		do()
	}
}

func TestMaxUnavailable(t *testing.T) {
	for _, test := range []struct {
		name  string
		given func(*world)
		want  int
	}{
		{"all is well", func(*world) {}, 1},
		{"an OSD is down", func(w *world) { w.fail("node-a", "osd.0") }, 0},
		{"and the data is whole without it", func(w *world) { w.fail("node-a", "osd.0"); w.clean = true }, 1},
		{"Ceph is silent", func(w *world) { w.silent = true }, 0},
		{"a zone is open", func(w *world) { w.open = "zone-x" }, 0},
		{"the lease is held", func(w *world) { w.holders = []lease.Claim{{WorkflowID: "drain/node-a"}} }, 0},
		{"a Machine is released", func(w *world) { w.released = []string{"node-a"} }, 0},
		{"no mon may go", func(w *world) { w.mons[0].InQuorum = false }, 0},
		{"another mon may be evicted now", func(w *world) { w.going = []string{"b"} }, 0},
	} {
		w := newWorld()
		test.given(w)
		require.Equal(t, test.want, fencing.MaxUnavailable(w.facts()), test.name)
	}
}
