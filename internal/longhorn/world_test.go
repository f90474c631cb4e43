package longhorn_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

var now = time.Unix(1_800_000_000, 0)

// world is a World under construction: with Longhorn's setting for autoscalers, and its default drain policy.
type world struct{ longhorn.World }

func newWorld(nodes ...string) *world {
	w := &world{longhorn.World{
		Now: now, TaintExpiry: time.Hour,
		Settings: longhorn.Settings{ClusterAutoscaler: true, DrainPolicy: longhorn.BlockIfContainsLastReplica},
	}}
	for _, name := range nodes {
		w.Nodes = append(w.Nodes, longhorn.Node{Name: name, Ready: true})
		w.Managers = append(w.Managers, longhorn.Manager{
			Name: "im-" + name, Node: name, Kind: longhorn.AllInOne, State: longhorn.Running,
		})
	}
	return w
}

func (w *world) node(name string) *longhorn.Node {
	i := slices.IndexFunc(w.Nodes, func(n longhorn.Node) bool { return n.Name == name })
	return &w.Nodes[i]
}

func (w *world) manager(node string) *longhorn.Manager {
	i := slices.IndexFunc(w.Managers, func(m longhorn.Manager) bool { return m.Node == node })
	return &w.Managers[i]
}

func (w *world) cordon(nodes ...string) *world {
	for _, n := range nodes {
		w.node(n).Cordoned = true
	}
	return w
}

func (w *world) taint(nodes ...string) *world {
	for _, n := range nodes {
		w.node(n).HasRemovalTaint, w.node(n).RemovalTaint = true, fmt.Sprint(now.Unix()-1)
	}
	return w
}

// volume adds a detached volume with a healthy replica on each of the nodes.
func (w *world) volume(name string, nodes ...string) *world {
	w.Volumes = append(w.Volumes, longhorn.Volume{Name: name, State: longhorn.Detached})
	for _, n := range nodes {
		w.Replicas = append(w.Replicas, longhorn.Replica{
			Name: name + "-" + n, Volume: name, Node: n, Manager: "im-" + n, Healthy: true,
			Desired: longhorn.Stopped, Current: longhorn.Stopped,
		})
	}
	return w
}

// attach attaches a volume to a node; its replicas run.
func (w *world) attach(name, node string) *world {
	for i := range w.Volumes {
		if w.Volumes[i].Name == name {
			w.Volumes[i].State = "attached"
		}
	}
	for i, r := range w.Replicas {
		if r.Volume == name && !r.Failed {
			w.Replicas[i].Desired, w.Replicas[i].Current = longhorn.Running, longhorn.Running
		}
	}
	m := w.manager(node)
	m.Engines = append(m.Engines, name+"-e-0")
	return w
}

func (w *world) replica(volume, node string) *longhorn.Replica {
	i := slices.IndexFunc(w.Replicas, func(r longhorn.Replica) bool { return r.Volume == volume && r.Node == node })
	return &w.Replicas[i]
}

func (w *world) with(change func(*world)) *world {
	change(w)
	return w
}

func nodeIn(d longhorn.Decision, name string) longhorn.NodeVerdict {
	i := slices.IndexFunc(d.Nodes, func(n longhorn.NodeVerdict) bool { return n.Node == name })
	return d.Nodes[i]
}
