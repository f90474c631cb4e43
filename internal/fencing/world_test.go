package fencing_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// osd is one daemon of the world.
type osd struct {
	name, node string
	up         bool
}

// world is a storage cluster of six nodes in three zones, with two OSDs on each and mons on the first three, and what
// is known of it. node-g has nothing.
type world struct {
	osds     []osd
	mons     []storage.Mon
	clean    bool
	silent   bool
	answers  time.Duration // for so long; 0: for ever
	since    []string      // who went down since then
	open     string        // zone
	holders  []lease.Claim
	released []string
	going    []string // mons
}

var nodes = []string{"node-a", "node-b", "node-c", "node-d", "node-e", "node-f", "node-g"}

func zoneOf(node string) string {
	return []string{"zone-x", "zone-y", "zone-z"}[slices.Index(nodes, node)%3]
}

func zone(name string) storage.FailureDomain {
	if name == "" {
		return storage.FailureDomain{}
	}
	return storage.FailureDomain{Type: "zone", Name: name}
}

func newWorld() *world {
	w := &world{clean: true}
	for i, node := range nodes[:6] {
		for j := range 2 {
			w.osds = append(w.osds, osd{fmt.Sprintf("osd.%d", 2*i+j), node, true})
		}
	}
	for i, node := range nodes[:3] {
		w.mons = append(w.mons, storage.Mon{Name: string(rune('a' + i)), Node: node, InQuorum: true, Pod: storage.PodReady})
	}
	return w
}

// fail takes OSDs of a node down, all of them if none is named.
func (w *world) fail(node string, names ...string) {
	for i, o := range w.osds {
		if o.node == node && (len(names) == 0 || slices.Contains(names, o.name)) {
			w.osds[i].up, w.clean = false, false
		}
	}
}

func (w *world) running(node string) (running, all int) {
	for _, o := range w.osds {
		if o.node == node {
			all++
			if o.up {
				running++
			}
		}
	}
	return running, all
}

// hurt are the zones with a daemon that is down, unless the data is whole without it.
func (w *world) hurt() (zones []string) {
	if w.clean {
		return nil
	}
	for _, o := range w.osds {
		if z := zoneOf(o.node); !o.up && !slices.Contains(zones, z) {
			zones = append(zones, z)
		}
	}
	return zones
}

func (w *world) facts() fencing.Facts {
	f := fencing.Facts{
		AskedFor: nodes, Clean: w.clean && !w.silent, Lease: lease.State{Holders: w.holders}, Open: zone(w.open),
		Released: w.released, View: storage.View{FailureDomainType: "zone"}, MonsGoing: w.going,
	}
	if w.silent {
		f.View.Unavailable, f.Open = "no quorum", storage.FailureDomain{}
		return f
	}
	if f.View.At = now; w.answers > 0 {
		f.Silent, f.SilentAsOf = now.Add(-w.answers), 100
	}
	for _, z := range w.hurt() {
		f.Hurt = append(f.Hurt, zone(z))
	}
	f.View.Mons = w.mons
	for _, z := range []string{"zone-x", "zone-y", "zone-z"} {
		d := storage.Domain{Name: z}
		for _, o := range w.osds {
			if zoneOf(o.node) == z && !o.up {
				// The pod of a daemon that died with its node says what it said last.
				x := storage.Daemon{Name: o.name, Node: o.node, Pod: storage.PodReady, DownAt: 99}
				if slices.Contains(w.since, o.name) {
					x.DownAt = 101
				}
				d.Troubled = append(d.Troubled, x)
			}
		}
		f.View.Domains = append(f.View.Domains, d)
	}
	for _, node := range nodes[:6] {
		n := storage.Node{Name: node, Domain: zoneOf(node)}
		for _, o := range w.osds {
			if o.node == node {
				n.Daemons = append(n.Daemons, o.name)
			}
		}
		f.View.Nodes = append(f.View.Nodes, n)
	}
	return f
}

// hold has a job hold the lease, and the keeper open its domain for it.
func (w *world) hold(workflowID, zoneName string) {
	w.holders = append(w.holders, lease.Claim{
		WorkflowID: workflowID, RunID: "run", Domain: zone(zoneName), Reason: "maintenance",
	})
	w.open = zoneName
}

func target(node string) fencing.Target {
	return fencing.Target{Node: node, Why: fencing.WhyUnhealthy, Since: now, WorkflowID: "fence/" + node, RunID: "run"}
}
