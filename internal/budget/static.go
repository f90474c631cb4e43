package budget

import "github.com/lockkeeper/lockkeeper/internal/storage"

// GroupMinAvailable is how many of a group of interchangeable daemons (mgr, mds, rgw, rbd-mirror) must stay: all but one.
// A single one has no budget: it could never be drained, and it comes back elsewhere by itself.
//
// homeless daemons have nowhere to run: every node that could take them is leaving, too. They come back when one of those
// nodes has been emptied. So as long as it is one of their own group that keeps such a node from becoming empty, they do not
// count: a gateway that is away for the time of a reboot is better than two drains that wait for each other for ever. No
// data depends on these daemons.
func GroupMinAvailable(replicas, homeless int) (minAvailable int, ok bool) {
	if replicas < 2 {
		return 0, false
	}
	return max(replicas-1-homeless, 0), true
}

// Emptying lists the leaving nodes of the open domain whose storage daemons are all gone, so that nothing but other pods
// keeps them, and with them everybody else, from going on.
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
