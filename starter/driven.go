package starter

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TaintSnapshot is what is known of the nodes whose taints are to drive a policy's pods off, and that still have some.
type TaintSnapshot struct {
	Mode  v1alpha1.RestartMode
	Nodes map[string]TaintedNode // by name
}

// TaintedNode is such a node.
type TaintedNode struct {
	Taint string    // its key
	Since time.Time // it was seen first
}

// drivenFor is how long a tainted node keeps its pods before that counts. Where no guard is installed the taint
// manager has deleted them by then.
const drivenFor = 2 * time.Second

// TakeTaints makes a snapshot of what taints are to drive off now. before remembers since when that is known.
func TakeTaints(
	mode v1alpha1.RestartMode, driven []kube.DrivenDaemon, before *TaintSnapshot, now time.Time,
) TaintSnapshot {
	s := TaintSnapshot{Mode: mode, Nodes: map[string]TaintedNode{}}
	for _, d := range driven {
		if _, seen := s.Nodes[d.Node]; seen {
			continue
		}
		n := TaintedNode{Taint: d.Taint, Since: now}
		if before != nil && before.Nodes[d.Node].Taint == d.Taint {
			n.Since = before.Nodes[d.Node].Since
		}
		s.Nodes[d.Node] = n
	}
	return s
}

// counting leaves out the nodes that may be empty in a moment.
func (s TaintSnapshot) counting(now time.Time) TaintSnapshot {
	s.Nodes = maps.Clone(s.Nodes)
	maps.DeleteFunc(s.Nodes, func(_ string, n TaintedNode) bool { return now.Sub(n.Since) < drivenFor })
	return s
}

// lookAgain is when the first node that does not count yet will; 0: there is none.
func (s TaintSnapshot) lookAgain(now time.Time) (d time.Duration) {
	for _, n := range s.Nodes {
		if left := drivenFor - now.Sub(n.Since); left > 0 && (d == 0 || left < d) {
			d = left
		}
	}
	return d
}

// DecideTaints says which drains are to be started: of nodes that are newly tainted, if the policy has what waits
// restarted without asking. Otherwise `lockkeeper drain` is how a person says so. One that a person aborted does not
// come back while all remains as it is.
func DecideTaints(told *TaintSnapshot, now TaintSnapshot) (drains []workflows.DrainNodeInput) {
	if now.Mode != v1alpha1.RestartsAutomatic {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(now.Nodes)) {
		n := now.Nodes[name]
		if told != nil && told.Mode == now.Mode && told.Nodes[name].Taint == n.Taint {
			continue
		}
		drains = append(drains, workflows.DrainNodeInput{
			Node: name, Taint: n.Taint, Reason: fmt.Sprintf("%s is tainted %s:NoExecute", name, n.Taint),
		})
	}
	return drains
}
