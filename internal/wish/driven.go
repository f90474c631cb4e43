package wish

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedule "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// Driven is a pod that a taint of its node is to drive off, and that is still there. The taint manager of Kubernetes
// deletes such a pod as soon as it sees the taint. Where it is refused it tries four times more within a moment, and
// then never again, so that somebody else has to see to it.
type Driven struct {
	Pod   string    `json:"pod"`
	UID   types.UID `json:"uid"`
	Node  string    `json:"node"`
	Taint string    `json:"taint"` // its key
}

// FindDriven finds those of some pods that are to be driven off, by their names. It does not name those that tolerate
// the taint for a time, whose end nobody has written down.
func FindDriven(pods []corev1.Pod, nodes []corev1.Node) (out []Driven) {
	tainted := map[string]*corev1.Node{}
	for i := range nodes {
		if len(leaving.DrivesOff(&nodes[i])) > 0 {
			tainted[nodes[i].Name] = &nodes[i]
		}
	}
	for i := range pods {
		p := &pods[i]
		n := tainted[p.Spec.NodeName]
		if n == nil || !Runs(p) {
			continue
		}
		if taint := DrivenOff(p, n, ""); taint != "" {
			out = append(out, Driven{Pod: p.Name, UID: p.UID, Node: n.Name, Taint: taint})
		}
	}
	slices.SortFunc(out, func(a, b Driven) int { return cmp.Compare(a.Pod, b.Pod) })
	return out
}

// DrivenOff is the key of the first taint of its node that drives a pod off; "": none does. key is the one that is
// asked for; "": any. A pod that a kubelet has from a file is none that anybody could delete.
func DrivenOff(p *corev1.Pod, n *corev1.Node, key string) string {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror || !lives(p) && p.DeletionTimestamp == nil {
		return ""
	}
	taints := slices.DeleteFunc(leaving.DrivesOff(n), func(t corev1.Taint) bool { return key != "" && t.Key != key })
	taint, untolerated := schedule.FindMatchingUntoleratedTaint(klog.Background(), taints, p.Spec.Tolerations, nil, false)
	if !untolerated {
		return ""
	}
	return taint.Key
}
