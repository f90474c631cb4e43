package storageview_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestAgainstDumbModel breaks a cluster at random, and compares the View with what is plain about each OSD by itself:
// whoever Ceph or Kubernetes says is down is told, in its failure domain, on its node.
func TestAgainstDumbModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := size{
			rapid.IntRange(1, 4).Draw(t, "zones"), rapid.IntRange(1, 3).Draw(t, "hosts"),
			rapid.IntRange(1, 3).Draw(t, "osds"),
		}
		w := newWorld(s)
		if rapid.Bool().Draw(t, "by host") {
			w.spreadOver("host")
		}
		breakAtRandom(t, w, s)
		v := w.view()

		up, told := 0, 0
		domains := map[string]int{}
		for _, m := range modelOf(w, s, v.FailureDomainType) {
			if !m.expected {
				continue
			}
			domains[m.domain]++
			if m.daemon.Up {
				up++
			}
			if m.troubled {
				told++
				require.Contains(t, v.Domain(m.domain).Troubled, m.daemon)
				node, ok := v.Node(m.daemon.Node)
				require.True(t, ok)
				require.Contains(t, node.Daemons, m.daemon.Name)
				require.Equal(t, m.leaving, node.Leaving())
				if m.daemon.Down() {
					require.Contains(t, node.Down, m.daemon.Name)
				}
			}
		}
		all := 0
		for _, d := range v.Domains {
			all += len(d.Troubled)
			require.Equal(t, domains[d.Name], d.Daemons)
		}
		require.Equal(t, told, all, "nobody else is told")
		require.Equal(t, up, v.Up)
		require.Equal(t, sum(domains), v.Daemons)
	})
}

func breakAtRandom(t *rapid.T, w *world, s size) {
	states := []storage.PodState{storage.PodReady, storage.PodNotReady, storage.PodPending, storage.PodTerminating}
	var pods []storageview.Pod
	for id := range w.input.Map.OSDs {
		switch rapid.IntRange(0, 4).Draw(t, "osd") {
		case 0:
			w.stop(id, 21)
		case 1:
			o := w.osd(id)
			o.Up, o.UpFrom, o.State = false, 0, []string{"exists", "new"}
		}
		for range rapid.IntRange(1, 2).Draw(t, "pods") {
			p := newPod(id, w.pod(id).Node, fmt.Sprintf("zone-%d", id/(s.hosts*s.osds)))
			p.State = rapid.SampledFrom(states).Draw(t, "state")
			p.Replacing = rapid.IntRange(0, 9).Draw(t, "replacing") == 0
			pods = append(pods, p)
		}
	}
	w.input.Pods = rapid.Permutation(pods).Draw(t, "order")
	for n := range w.input.Nodes {
		w.node(n).Unschedulable = rapid.Bool().Draw(t, "cordoned")
	}
	if rapid.Bool().Draw(t, "gone") {
		w.deleteNode(rapid.IntRange(0, len(w.input.Nodes)-1).Draw(t, "node"))
	}
}

// modelled is what is plain about one OSD.
type modelled struct {
	expected, troubled, leaving bool
	domain                      string
	daemon                      storage.Daemon
}

func modelOf(w *world, s size, typeName string) []modelled {
	leaving := map[string]bool{}
	for n := range s.zones * s.hosts {
		leaving[fmt.Sprintf("node-%d", n)] = true // gone, unless it is found
	}
	for _, n := range w.input.Nodes {
		leaving[n.Name] = n.Unschedulable
	}
	var all []modelled
	for id, o := range w.input.Map.OSDs {
		has := map[storage.PodState]bool{}
		replacing := false
		for _, p := range w.input.Pods {
			if p.OSD == id {
				has[p.State] = true
				replacing = replacing || p.Replacing
			}
		}
		node := fmt.Sprintf("node-%d", id/s.osds)
		m := modelled{
			domain: node, leaving: leaving[node], daemon: storage.Daemon{Name: o.Name(), Node: node, Up: bool(o.Up)},
		}
		if !m.daemon.Up {
			m.daemon.DownAt = o.DownAt
		}
		if typeName == "zone" {
			m.domain = fmt.Sprintf("zone-%d", id/(s.hosts*s.osds))
		}
		switch {
		case has[storage.PodReady]:
			m.daemon.Pod = storage.PodReady
		case has[storage.PodNotReady]:
			m.daemon.Pod = storage.PodNotReady
		case has[storage.PodPending]:
			m.daemon.Pod = storage.PodPending
		default:
			m.daemon.Pod = storage.PodTerminating
		}
		fine := bool(o.Up) && has[storage.PodReady]
		m.troubled = !fine
		m.expected = o.UpFrom > 0 && (fine || !replacing)
		all = append(all, m)
	}
	return all
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}
