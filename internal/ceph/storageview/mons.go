package storageview

import (
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Mons is what is known of the mons: Ceph's own word, and the pods that run them.
type Mons struct {
	Map      []string // names in the monmap
	InQuorum []string
	Pods     []MonPod
	// Label is the pod label with a mon's name.
	Label string
}

// MonPod is one pod that the policy's selector selects as a mon.
type MonPod struct {
	Mon   string // "" without a label that says so
	State storage.PodState
	Node  string // as Pod.Node
	// Managed: a controller stands behind it.
	Managed bool
	// Image is that of the mon's own container.
	Image string
	// Name and UID are the pod's, and LetGo as Pod's.
	Name, UID string
	LetGo     bool
}

// mixed tells whether some pods have a controller and some have none.
func (m Mons) mixed() bool {
	managed := 0
	for _, p := range m.Pods {
		if p.Managed {
			managed++
		}
	}
	return managed > 0 && managed < len(m.Pods)
}

// named tells whether every pod says which mon it is.
func (m Mons) named() bool {
	return !slices.ContainsFunc(m.Pods, func(p MonPod) bool { return p.Mon == "" })
}

// idle counts the pods that are ready although their mon is not in quorum. A budget takes them for healthy ones.
func (m Mons) idle() int {
	ready, known := 0, 0
	for _, p := range m.Pods {
		if p.State == storage.PodReady {
			ready++
			if p.Mon != "" && slices.Contains(m.InQuorum, p.Mon) {
				known++
			}
		}
	}
	if m.named() {
		return ready - known
	}
	return max(ready-len(m.InQuorum), 0)
}

// pod returns the pod of a mon: of several, as while one is replaced by another, the one that serves best.
func (m Mons) pod(name string) MonPod {
	best := MonPod{Mon: name, State: storage.PodNone}
	for _, p := range m.Pods {
		if p.Mon != name {
			continue
		}
		if node := best.Node; podRank(p.State) >= podRank(best.State) {
			best = p
			if best.Node == "" {
				best.Node = node
			}
		} else if node == "" {
			best.Node = p.Node
		}
	}
	return best
}

func podRank(s storage.PodState) int {
	return slices.Index([]storage.PodState{
		storage.PodNone, storage.PodPending, storage.PodTerminating,
		storage.PodNotReady, storage.PodReady,
	}, s)
}

// stray lists the mons that have pods and are not in the monmap. A pod on its way out needs nobody's leave any more.
func (m Mons) stray() (out []string) {
	if len(m.Map) == 0 || !m.named() {
		return nil
	}
	for _, p := range m.Pods {
		if p.State != storage.PodTerminating && !slices.Contains(m.Map, p.Mon) && !slices.Contains(out, p.Mon) {
			out = append(out, p.Mon)
		}
	}
	slices.Sort(out)
	return out
}

// describeMons joins the monmap with pods and nodes.
func describeMons(in Mons, ns *nodes) []storage.Mon {
	var out []storage.Mon
	for _, name := range in.Map {
		m := storage.Mon{Name: name, InQuorum: slices.Contains(in.InQuorum, name), Pod: storage.PodNone}
		if in.named() {
			p := in.pod(name)
			m.Pod, m.Node = p.State, p.Node
		}
		if n := ns.byName[m.Node]; n != nil {
			m.Node, m.Domain, m.Leaving = n.Name, n.domain(), n.leaving()
		} else if m.Node != "" {
			m.Leaving = true // its Node object is deleted
		}
		out = append(out, m)
	}
	return out
}
