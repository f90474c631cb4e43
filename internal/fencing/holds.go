package fencing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file plans the holds at rest. A hold is a mark on a Machine, or on a Node, that keeps the remediator from
// fencing it. It is noted before it is set, and only what is noted is taken away.

// Machine is what can be held: a Machine and its node, or a Node where the API holds those.
type Machine struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	Node string `json:"node,omitempty"` // "": it has none yet, or no longer
	// Held: it carries a mark that equals ours. Whose it is the notes say.
	Held     bool `json:"held,omitempty"`
	Deleting bool `json:"deleting,omitempty"`
	// DeletingSince is not kept: it says how long nobody has asked for its release.
	DeletingSince time.Time `json:"-"`
	// Labels are what health checks select by. They are not kept.
	Labels map[string]string `json:"-"`
}

// Hold is what is noted of one hold of ours.
type Hold struct {
	Machine string `json:"machine"`
	UID     string `json:"uid"`
	Node    string `json:"node,omitempty"`
}

// Hosted is what the storage cluster has on a node.
type Hosted struct {
	Daemons int `json:"daemons"`
	Running int `json:"running"`       // by the storage cluster's map
	Mon     int `json:"mon,omitempty"` // mons in quorum
	// Spread: its daemons are in more than one failure domain.
	Spread bool `json:"spread,omitempty"`
}

// Rest is what a plan of the holds at rest depends on.
type Rest struct {
	Machines []Machine
	Noted    []Hold
	// Hosted has an entry for each node that hosts daemons. When not Known others may, too, and these may by now not.
	Hosted map[string]Hosted
	// Doubtful: in doubt what may serve is held. Keepers that began earlier left it.
	Doubtful bool
	// Known: the storage cluster answered, with a quorum, so that what it does not mention is not there.
	Known bool
	// Clean: the data is proved whole as of what Hosted says.
	Clean bool
	// Released are the nodes whose Machines a job has released.
	Released []string
	// Ending: the policy goes, or holds nothing any more.
	Ending bool
}

// Plan is what to do about holds: first note what is in Note, then set and take away, then forget what is in Forget.
type Plan struct {
	Note   []Hold    `json:"note,omitempty"`
	Set    []Machine `json:"set,omitempty"`
	Remove []Machine `json:"remove,omitempty"`
	Forget []Hold    `json:"forget,omitempty"`
	// Foreign are Machines with a mark that equals ours and that nobody noted: it stays, whatever becomes of the node.
	Foreign []string `json:"foreign,omitempty"`
	// Again are Machines whose hold somebody took away.
	Again []string `json:"again,omitempty"`
	// Without are nodes that host daemons and have no Machine, so that nothing holds them.
	Without []string `json:"without,omitempty"`
}

// Nothing tells whether there is nothing to write.
func (p Plan) Nothing() bool { return len(p.Note)+len(p.Set)+len(p.Remove)+len(p.Forget) == 0 }

// wants tells whether a node's Machine is to be held. Daemons that are down do not end a hold by themselves, or a
// failure of several nodes would end the holds of all of them in the moment between the storage cluster's word and
// Kubernetes'; it ends when the data is whole without them, or by a release, which is given to one node at a time. A
// hold that is noted stays until then also when the node hosts nothing by now: of a daemon whose pod is gone for a
// moment nobody can tell the node.
func (r Rest) wants(node string, noted bool) bool {
	h := r.Hosted[node]
	switch {
	case r.Ending || node == "" || slices.Contains(r.Released, node):
		return false
	case h.Running > 0 || h.Mon > 0:
		return true
	default:
		return (h.Daemons > 0 || noted) && !r.Clean
	}
}

// PlanHolds says which holds to set and which to take away. While the storage cluster is silent no hold is taken away
// but for a release, and what may serve is held, as far as pods tell.
func PlanHolds(r Rest) Plan {
	var p Plan
	noted := map[string]Hold{}
	for _, h := range r.Noted {
		noted[h.UID] = h
	}
	machines := slices.SortedFunc(slices.Values(r.Machines), func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	there, hosts := map[string]bool{}, map[string]bool{}
	for _, m := range machines {
		there[m.UID], hosts[m.Node] = true, true
		h, ours := noted[m.UID]
		want := r.wants(m.Node, ours)
		if !r.Known && !r.Ending && !slices.Contains(r.Released, m.Node) {
			want = ours || r.Doubtful && want
		}
		switch {
		case want && !m.Held:
			if ours {
				p.Again = append(p.Again, m.Name)
			} else {
				p.Note = append(p.Note, Hold{Machine: m.Name, UID: m.UID, Node: m.Node})
			}
			p.Set = append(p.Set, m)
		case m.Held && !ours:
			p.Foreign = append(p.Foreign, m.Name)
		case !want && ours:
			if m.Held {
				p.Remove = append(p.Remove, m)
			}
			p.Forget = append(p.Forget, h)
		}
	}
	for _, h := range r.Noted {
		if !there[h.UID] {
			p.Forget = append(p.Forget, h)
		}
	}
	if r.Known && !r.Ending {
		nodes := slices.Sorted(maps.Keys(r.Hosted)) //workflowcheck:ignore sorted before anybody sees the order
		for _, node := range nodes {
			if r.Hosted[node].Daemons > 0 && !hosts[node] {
				p.Without = append(p.Without, node)
			}
		}
	}
	return p
}

// MaxUnavailable is what a MachineDisruptionBudget says: one Machine while the data is proved whole and nothing may be
// disrupted elsewhere, none otherwise.
func MaxUnavailable(f Facts) int {
	if f.View.Unavailable != "" || f.View.NotInCharge != "" || !f.Clean || len(f.Hurt) > 0 || !f.Open.IsZero() ||
		len(f.Lease.Holders) > 0 || len(f.Released) > 0 || len(f.View.Problems) > 0 || len(f.View.Intolerant) > 0 {
		return 0
	}
	for _, m := range f.View.Mons {
		left, need := f.quorumWithout(func(x storage.Mon) bool {
			return x.Name == m.Name || m.Node != "" && x.Node == m.Node
		}, f.MonsGoing)
		if m.InQuorum && left < need {
			return 0
		}
	}
	return 1
}

// MachineBudget is a MachineDisruptionBudget.
type MachineBudget struct {
	// Max is how many Machines it says may be unavailable. Nil: there is none of ours; less than 0: what it says is not
	// to be said.
	Max *int
	// Never: it is to let nobody go. A health check may want a node fenced that is ready: by one of the arithmetics that
	// were published such a node is healthy, so that it goes while no other one is missing, and a second one with it,
	// whatever the maximum. Or disks go with a Machine that only its own release asks about.
	Never bool
}

func (m Machine) String() string { return fmt.Sprintf("%s (%s)", m.Name, cmp.Or(m.Node, "no node")) }
