package budget

import (
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// GroupMinAvailable is how many of a group of interchangeable daemons (mgr, mds, rgw, rbd-mirror) must stay: all but
// one. A single one has no budget: it could never be drained, and it comes back elsewhere by itself. The manager is
// another matter, see SoleMinAvailable.
//
// homeless daemons have nowhere to run: every node that could take them is leaving, too. They come back when one of
// those nodes has been emptied. So as long as it is one of their own group that keeps such a node from becoming empty,
// they do not count: a gateway that is away for the time of a reboot is better than two drains that wait for each other
// for ever. No data depends on these daemons.
func GroupMinAvailable(replicas, homeless int) (minAvailable int, ok bool) {
	if replicas < 2 {
		return 0, false
	}
	return max(replicas-1-homeless, 0), true
}

// Home is where the only pod of a group could run if it had to go.
type Home string

// The answers.
const (
	HomeSettled    Home = ""            // its node stays: nobody has said that it has to go
	HomeElsewhere  Home = "Elsewhere"   // its node is leaving, and another one could take it
	HomeNowhereNow Home = "NowhereNow"  // its node is leaving, and so is every other one that could take it
	HomeOnlyThere  Home = "OnlyOneNode" // its node is leaving, and no other one could ever take it
)

// SoleMinAvailable is how many of one manager must stay. Without it nobody knows whether the data is whole, so nothing
// opens. If all nodes are leaving and it goes first, it comes back on none, and no node becomes empty. So it stays
// until another node can take it, or until it alone keeps its own node from becoming empty. It also stays as long as
// its node does: who drains all nodes at once cordons and evicts faster than anybody can look.
func SoleMinAvailable(home Home, emptied bool) int {
	if emptied || home == HomeElsewhere || home == HomeOnlyThere {
		return 0
	}
	return 1
}

// GrantedNodes are those that jobs were allowed to empty and have not finished with. Their other daemons need not wait
// for a cordon. A job that takes named daemons down empties no node.
func GrantedNodes(l lease.State) (out []string) {
	for _, c := range l.Holders {
		if c.Node != "" && len(c.Daemons) == 0 && !c.Finishing && !c.Reserved() {
			out = append(out, c.Node)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Emptying lists the leaving nodes of the open domain whose storage daemons are all gone, so that nothing but other
// pods keeps them, and with them everybody else, from going on.
func Emptying(in Input, d Decision) []string {
	if d.Mode != ModeOpen {
		return nil
	}
	var out []string
	for _, n := range in.View.Nodes {
		if daemons, down := n.Counts(); n.Leaving() && n.In(d.Open.Name) && down == daemons {
			out = append(out, n.Name)
		}
	}
	return out
}

// Homeless counts the pods of a group that wait for a node while one of them still is on a node that is being emptied.
func Homeless(pods []GroupPod, emptying []string) int {
	homeless, inTheWay := 0, false
	for _, p := range pods {
		if p.Unschedulable {
			homeless++
		}
		for _, n := range emptying {
			inTheWay = inTheWay || p.Node == n && p.State != storage.PodTerminating
		}
	}
	if !inTheWay {
		return 0
	}
	return homeless
}

// GroupPod is one pod of a group of interchangeable daemons.
type GroupPod struct {
	Node  string
	State storage.PodState
	// Unschedulable: the scheduler found no node for it.
	Unschedulable bool
}
