package longhorn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// TestAdmit: who may be emptied by a job, beside those that are, and in the order of the queue.
func TestAdmit(t *testing.T) {
	abc := func() *world { return newWorld("a", "b", "c") }
	off := func(w *world) { w.Settings.ClusterAutoscaler = false }
	for name, c := range map[string]struct {
		world *world
		turns longhorn.Turns
		want  string
		open  string
	}{
		"nothing there, and a stranger": {abc(), longhorn.Turns{Asked: []string{"a", "x"}}, "a:ok x:ok", ""},
		"its volume has another replica": {
			abc().volume("v", "a", "b"), longhorn.Turns{Asked: []string{"a"}}, "a:ok", "",
		},
		"two that share a volume": {
			abc().volume("v", "a", "b", "c"), longhorn.Turns{Asked: []string{"a", "b"}}, "a:ok b:SharesVolume/a", "",
		},
		"two that share none": {
			abc().volume("v", "a", "c").volume("w", "b", "c"), longhorn.Turns{Asked: []string{"a", "b"}}, "a:ok b:ok", "",
		},
		"the last replica": {abc().volume("v", "a"), longhorn.Turns{Asked: []string{"a"}}, "a:LastReplica/v", ""},
		"a volume is attached: it goes with the workloads": {
			abc().volume("v", "a", "b").attach("v", "a"), longhorn.Turns{Asked: []string{"a"}}, "a:ok", "",
		},
		"a job that holds the lease, and one that waits": {
			abc().volume("v", "a", "b", "c"),
			longhorn.Turns{Held: []string{"b"}, Asked: []string{"a"}},
			"b:ok a:SharesVolume/b", "b",
		},
		"a holder whose volume is attached does not open": {
			abc().volume("v", "a", "b").attach("v", "a"), longhorn.Turns{Held: []string{"a"}}, "a:ok", "",
		},
		"the queue does not count as leaving": {
			abc().volume("v", "a", "b").volume("w", "b", "c"),
			longhorn.Turns{Asked: []string{"a", "b", "c"}},
			"a:ok b:LastReplica/v c:ok", "",
		},
		"what is cordoned opens by itself, in turn": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b"), longhorn.Turns{}, "", "a",
		},
		"whose turn it is goes on, and one that is not leaving any more does not": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b"), longhorn.Turns{First: []string{"b", "c"}}, "", "b",
		},
		"who went and is not back yet still has its turn": {
			newWorld("a", "b", "c", "d").volume("v", "a", "b", "c", "d").cordon("a").
				with(func(w *world) { w.manager("b").State = "stopped" }),
			longhorn.Turns{Went: []string{"b"}, Asked: []string{"c"}},
			"c:SharesVolume/b", "",
		},
		"nor does anybody go beside one from which it was evicted at rest": {
			abc().volume("v", "a", "b", "c").cordon("a").with(func(w *world) { w.manager("b").State = "stopped" }),
			longhorn.Turns{},
			"", "",
		},
		"nor beside one that went and is leaving still, though it may not leave any more": {
			abc().volume("v", "a", "b", "c").volume("w", "b").cordon("a").cordon("b").with(func(w *world) {
				w.manager("b").State = "stopped"
			}), longhorn.Turns{}, "", "",
		},
		"not even who waits in the queue": {
			abc().volume("v", "a", "b", "c").cordon("b").with(func(w *world) { w.manager("b").State = "stopped" }),
			longhorn.Turns{Asked: []string{"a"}, Went: []string{"b"}},
			"a:SharesVolume/b", "b",
		},
		"of a machine that reboots it is known": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b").with(func(w *world) {
				w.manager("b").State, w.node("b").Ready = "stopped", false
			}), longhorn.Turns{Went: []string{"b"}}, "", "b",
		},
		"until its turn is over": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b").with(func(w *world) {
				w.manager("b").State = "stopped"
			}), longhorn.Turns{Went: []string{"b"}, Last: []string{"b"}, Over: []string{"b"}}, "", "a",
		},
		"also if its job still holds the lease": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b").with(func(w *world) {
				w.manager("b").State = "stopped"
			}), longhorn.Turns{Held: []string{"b"}, Went: []string{"b"}, Over: []string{"b"}}, "b:ok", "a",
		},
		"and cannot end, since something else is on it": {
			abc().volume("v", "a", "b", "c").volume("w", "b").cordon("a").cordon("b").with(func(w *world) {
				w.manager("b").State = "stopped"
			}), longhorn.Turns{Held: []string{"b"}, Went: []string{"b"}, Over: []string{"b"}}, "b:LastReplica/w", "a",
		},
		"which begins anew when it goes": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b").with(func(w *world) {
				w.manager("b").State = "stopped"
			}), longhorn.Turns{Went: []string{"b"}, Last: []string{"b"}}, "", "b",
		},
		"of one that is leaving it is not known whether it died": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b").with(func(w *world) {
				w.manager("b").State, w.node("b").Ready = "stopped", false
			}), longhorn.Turns{}, "", "b",
		},
		"a machine that died holds up nobody": {
			abc().volume("v", "a", "b", "c").cordon("a").with(func(w *world) {
				w.manager("b").State, w.node("b").Ready = "stopped", false
			}), longhorn.Turns{}, "", "a",
		},
		"nobody goes who is away himself, and comes back before another one": {
			newWorld("a", "b", "c", "d").volume("v", "a", "c", "d").cordon("d").with(func(w *world) {
				w.manager("c").State, w.manager("d").State = "stopped", "its pod is not ready"
			}), longhorn.Turns{First: []string{"d"}}, "", "",
		},
		"nor do two that come back, both cordoned": {
			abc().volume("v", "a", "b", "c").cordon("b").cordon("c").with(func(w *world) {
				w.manager("b").State, w.manager("c").State = "starting", "starting"
			}), longhorn.Turns{}, "", "",
		},
		"of those the one begins of which nothing is left to evict": {
			abc().volume("v", "a", "b", "c").cordon("b").cordon("c").with(func(w *world) {
				w.manager("b").State, w.manager("c").State, w.manager("c").Ended = "starting", "stopped", true
			}), longhorn.Turns{}, "", "c",
		},
		"of two dead machines the first": {
			abc().volume("v", "a", "b", "c").cordon("b").cordon("c").with(func(w *world) {
				w.manager("b").State, w.node("b").Ready = "unknown", false
				w.manager("c").State, w.node("c").Ready = "unknown", false
			}), longhorn.Turns{}, "", "b",
		},
		"nor does a dead one begin, which may be back in a moment, before one of which nothing is left": {
			abc().volume("v", "a", "b", "c").cordon("b").cordon("c").with(func(w *world) {
				w.manager("b").State, w.node("b").Ready = "unknown", false
				w.manager("c").State, w.manager("c").Ended = "stopped", true
			}), longhorn.Turns{}, "", "c",
		},
		"but not beside one that went in its turn": {
			abc().volume("v", "a", "b", "c").volume("w", "c").cordon("b").cordon("c").with(func(w *world) {
				w.manager("b").State, w.node("b").Ready = "unknown", false
				w.manager("c").State = "stopped"
			}), longhorn.Turns{Went: []string{"c"}}, "", "",
		},
		"who had its turn comes last": {
			abc().volume("v", "a", "b", "c").cordon("a").cordon("b"), longhorn.Turns{Last: []string{"a"}}, "", "b",
		},
		"the autoscaler's taint is not to be known, but a cordon is": {
			abc().volume("v", "a", "b").taint("a").cordon("a").with(off), longhorn.Turns{Asked: []string{"a"}}, "a:ok", "a",
		},
		"nor does a job open what is tainted alone": {
			abc().volume("v", "a", "b").taint("a").with(off), longhorn.Turns{}, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, admissions := longhorn.DecideInTurn(c.world.World, c.turns)
			require.Equal(t, c.want, admitted(admissions))
			require.Equal(t, c.open, strings.Join(open(d), " "))
		})
	}
}

func admitted(all []longhorn.Admission) string {
	var out []string
	for _, a := range all {
		said := "ok"
		if !a.OK {
			said = fmt.Sprintf("%s/%s", a.Reason, a.Subject)
		}
		out = append(out, a.Node+":"+said)
	}
	return strings.Join(out, " ")
}

func open(d longhorn.Decision) []string { return inState(d, longhorn.Open) }

func spare(d longhorn.Decision) []string { return inState(d, longhorn.Spare) }

func inState(d longhorn.Decision, s longhorn.State) (names []string) {
	for _, n := range d.Nodes {
		if n.State == s {
			names = append(names, n.Node)
		}
	}
	return names
}

// TestNobodyGoesBesideOneThatIsAway: whoever is open, and has an instance manager that can be evicted, shares no volume
// with another one that went and is not back.
func TestNobodyGoesBesideOneThatIsAway(t *testing.T) {
	nodes := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(nodes...)
		copies := map[string][]string{}
		for _, v := range []string{"u", "v", "w"} {
			copies[v] = rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 0, 4, rapid.ID).Draw(t, "copies of "+v)
			w.volume(v, copies[v]...)
		}
		away := map[string]bool{}
		for _, n := range nodes {
			if rapid.IntRange(0, 2).Draw(t, n+" is cordoned") == 0 {
				w.cordon(n)
			}
			w.node(n).Ready = rapid.IntRange(0, 5).Draw(t, n+" is dead") > 0
			m := w.manager(n)
			m.State = rapid.SampledFrom([]string{longhorn.Running, longhorn.Running, "stopped"}).Draw(t, n)
			m.Ended = m.State == "stopped" && rapid.Bool().Draw(t, n+" has no pod")
			away[n] = m.State == "stopped" && (w.node(n).Ready || w.node(n).Cordoned)
		}
		d, _ := longhorn.DecideInTurn(w.World, longhorn.Turns{})
		for _, n := range open(d) {
			if w.manager(n).Ended {
				continue
			}
			for v, on := range copies {
				for _, other := range on {
					begins := !w.node(n).Ready && !w.manager(other).Ended
					if slices.Contains(on, n) && other != n && away[other] && !begins {
						t.Fatalf("%s is open, and %s is not back, and has %s, too", n, other, v)
					}
				}
			}
		}
	})
}

// TestAdmittedTogether: those that are admitted share no volume, and each volume on them has a healthy replica on a
// node that is none of them and is not leaving.
func TestAdmittedTogether(t *testing.T) {
	nodes := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(nodes...)
		copies := map[string][]string{}
		for _, v := range []string{"u", "v", "w"} {
			copies[v] = rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 0, 3, rapid.ID).Draw(t, "copies of "+v)
			w.volume(v, copies[v]...)
		}
		for _, n := range nodes {
			if rapid.IntRange(0, 3).Draw(t, n+" is cordoned") == 0 {
				w.cordon(n)
			}
			w.node(n).Ready = rapid.IntRange(0, 4).Draw(t, n+" is dead") > 0
		}
		asked := rapid.SliceOfDistinct(rapid.SampledFrom(nodes), rapid.ID).Draw(t, "asked")
		held := asked[:min(len(asked), rapid.IntRange(0, 1).Draw(t, "held"))]
		_, admissions := longhorn.DecideInTurn(w.World, longhorn.Turns{Held: held, Asked: asked})
		goes := map[string]bool{}
		for _, a := range admissions {
			if a.OK {
				goes[a.Node] = true
			}
		}
		for v, on := range copies {
			going, stays := 0, false
			for _, n := range on {
				if goes[n] {
					going++
				}
				node := w.node(n)
				stays = stays || !goes[n] && node.Ready && !node.Cordoned
			}
			if going > 1 || going == 1 && !stays {
				t.Fatalf("%s is on %v, and %v may go: %v", v, on, going, admitted(admissions))
			}
		}
	})
}
