package longhorn_test

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// BenchmarkDecide decides about 500 nodes, 5,000 volumes and 15,000 replicas: every tenth node is leaving, every third
// volume is attached.
func BenchmarkDecide(b *testing.B) {
	const nodes, volumes = 500, 5000
	w := large(nodes, volumes)
	w.Kept = longhorn.Decide(w.World).Kept
	b.ReportAllocs()
	for b.Loop() {
		longhorn.Decide(w.World)
	}
}

func large(nodes, volumes int) *world {
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
		if v%3 == 0 && v%30 != 0 {
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
