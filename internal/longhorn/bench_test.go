package longhorn_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// BenchmarkDecide decides about 500 nodes, 5,000 volumes and 15,000 replicas; every tenth node is leaving. Once every
// third volume is attached, and once none is: then it reports how many nodes keep a budget, and how many the plain
// greedy choice would have.
func BenchmarkDecide(b *testing.B) {
	const nodes, volumes = 500, 5000
	for name, attached := range map[string]bool{"attached": true, "detached": false} {
		b.Run(name, func(b *testing.B) {
			w := large(nodes, volumes, attached)
			w.Kept = longhorn.Decide(w.World).Kept
			b.ReportAllocs()
			for b.Loop() {
				longhorn.Decide(w.World)
			}
			if !attached {
				b.ReportMetric(float64(len(w.Kept)), "kept-nodes")
				b.ReportMetric(float64(w.plainCover()), "greedy-nodes")
			}
		})
	}
}

// TestLargeCover: no more nodes keep a budget for detached volumes than the plain greedy choice would have.
func TestLargeCover(t *testing.T) {
	for nodes := 10; nodes <= 100; nodes += 10 {
		w := large(nodes, nodes*10, false)
		kept := longhorn.Decide(w.World).Kept
		require.NotEmpty(t, kept)
		require.LessOrEqual(t, len(kept), w.plainCover(), "%d nodes", nodes)
	}
}

// plainCover is how many nodes it takes to have a replica of every volume, if again and again the first node is taken
// that has one of most of the volumes that are left. Nodes that are cordoned do not count, nor do volumes that are on
// no other.
func (w *world) plainCover() (nodes int) {
	on, left := map[string][]string{}, map[string]bool{}
	for _, r := range w.Replicas {
		if !w.node(r.Node).Cordoned && !slices.Contains(on[r.Node], r.Volume) {
			on[r.Node], left[r.Volume] = append(on[r.Node], r.Volume), true
		}
	}
	for ; len(left) > 0; nodes++ {
		var best []string
		for _, node := range slices.Sorted(maps.Keys(on)) {
			has := slices.DeleteFunc(slices.Clone(on[node]), func(v string) bool { return !left[v] })
			if len(has) > len(best) {
				best = has
			}
		}
		for _, v := range best {
			delete(left, v)
		}
	}
	return nodes
}

func large(nodes, volumes int, attached bool) *world {
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%03d", i))
	}
	w := newWorld(names...)
	for i := range nodes / 10 {
		w.cordon(names[i*10])
	}
	engines := map[string][]string{}
	for v := range volumes {
		name, state, current := fmt.Sprintf("pvc-%05d", v), longhorn.Detached, longhorn.Stopped
		if attached && v%3 == 0 && v%30 != 0 {
			state, current = "attached", longhorn.Running
			on := names[v%nodes]
			engines[on] = append(engines[on], name+"-e")
		}
		w.Volumes = append(w.Volumes, longhorn.Volume{Name: name, State: state})
		for r := range 3 {
			w.Replicas = append(w.Replicas, longhorn.Replica{
				Name: fmt.Sprintf("%s-r-%d", name, r), Volume: name, Node: names[(v*7+r*(1+v%13))%nodes], Healthy: true,
				Desired: current, Current: current,
			})
		}
	}
	for i, m := range w.Managers {
		w.Managers[i].Engines = engines[m.Node]
	}
	return w
}
