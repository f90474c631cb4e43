package storageview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// MarkLabel is the label of a pod that was proved. It must never be in a pod template.
const MarkLabel = "lockkeeper.io/proved"

// maxForeign bounds Marks.Foreign: a View is small whatever the cluster.
const maxForeign = 5

// Mark is the value of MarkLabel that names this pod, in its present life.
func (p Pod) Mark() string { return fmt.Sprintf("%s.%d", p.UID, p.Restarts) }

// Marked tells whether the pod carries a mark, whosever.
func (p Pod) Marked() bool {
	_, marked := p.Labels[MarkLabel]
	return marked
}

// Proved tells whether the pod carries the mark that names it.
func (p Pod) Proved() bool { return p.Labels[MarkLabel] == p.Mark() }

// foreign tells whether the mark names another pod, and not an earlier life of this one.
func (p Pod) foreign() bool { return p.Marked() && !strings.HasPrefix(p.Labels[MarkLabel], p.UID+".") }

// Markable lists the pods that may carry a mark: each is ready and the only pod of a daemon that serves. The others
// have to be without one before a budget counts the marks.
func Markable(in Input) []*Pod {
	osds, _ := join(in, "", &problems{})
	var out []*Pod
	for _, o := range osds {
		if o.markable() {
			out = append(out, o.pods[0])
		}
	}
	return out
}

func (o *osd) markable() bool {
	return o.expected && bool(o.Up) && o.departed == 0 && len(o.pods) == 1 && o.pods[0].State == storage.PodReady
}

// marks counts the marks. A pod that is terminating never comes back, so nobody has to take its mark away.
func marks(in Input, osds []*osd) *storage.Marks {
	var m storage.Marks
	markable := map[*Pod]bool{}
	for _, o := range osds {
		if o.markable() {
			markable[o.pods[0]] = true
		}
	}
	managed := 0
	for i := range in.Pods {
		p := &in.Pods[i]
		if p.Managed {
			managed++
		}
		if p.foreign() && len(m.Foreign) < maxForeign {
			m.Foreign = append(m.Foreign, p.Name)
		}
		switch {
		case markable[p] && p.Proved():
			m.Proved++
		case markable[p]:
			m.Unproved++
		case p.Marked() && p.State != storage.PodTerminating:
			m.Stale++
		}
	}
	slices.Sort(m.Foreign)
	m.Mixed = managed > 0 && managed < len(in.Pods)
	return &m
}
