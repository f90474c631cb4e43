package cephmon

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// otherImages warns of adopted mons whose image is not the spec's, and for which nobody restarts them.
func (w *world) otherImages(s monplan.Seen) (warnings []string) {
	for _, mon := range s.Mons {
		d := w.deployment(w.isMon(mon.Name))
		if d == nil || d.Spec.Template.Annotations[monspec.TemplateAnnotation] != "" || mon.Template != s.Want.Template {
			continue
		}
		has := monspec.MonContainer(&d.Spec.Template.Spec)
		if want := w.set.Spec.PodTemplate.Image; has != nil && has.Image != want {
			warnings = append(warnings, fmt.Sprintf("mon.%s has image %s, as it had before lockkeeper looked after it, "+
				"instead of spec.podTemplate.image %s; it gets that when the spec changes to another one, or when it moves",
				mon.Name, has.Image, want))
		}
	}
	return warnings
}

// respawning are the kinds of daemons that start themselves anew inside their container, with the environment that it
// was started with: a manager when the modules change that are always on, as they do with the mons' release, and an MDS
// that is failed.
var respawning = []string{"mgr", "mds"}

// outOfTouch warns of daemons that were started before every mon of now was made. Whoever tells them where the mons are
// by their environment, as Rook does, told them of none that is left.
func (w *world) outOfTouch(s monplan.Seen) (warnings []string) {
	var first time.Time
	for _, mon := range s.Mons {
		d := w.deployment(w.isMon(mon.Name))
		if d == nil {
			return nil // nobody knows since when it is there
		}
		if made := d.CreationTimestamp.Time; first.IsZero() || made.Before(first) {
			first = made
		}
	}
	for _, kind := range kube.DaemonKinds {
		if !slices.Contains(respawning, kind.Name) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(kind.Selector(w.daemons()))
		if err != nil {
			continue // the keeper says so
		}
		for i := range w.pods {
			pod := &w.pods[i]
			if selector.Matches(labels.Set(pod.Labels)) && startedBefore(pod, first) {
				warnings = append(warnings, fmt.Sprintf("pod %s was started before every mon that there is: if it has their "+
					"addresses in its environment, as Rook's daemons have, it finds none of them should it start itself anew, "+
					"and ends after five minutes; delete it, one such pod after the other", pod.Name))
			}
		}
	}
	return warnings
}

func (w *world) daemons() v1alpha1.DaemonSelections {
	if w.policy.Spec.Ceph == nil {
		return v1alpha1.DaemonSelections{}
	}
	return w.policy.Spec.Ceph.Daemons
}

// startedBefore: the pod runs, and each of its containers has since before then.
func startedBefore(pod *corev1.Pod, then time.Time) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil || !c.State.Running.StartedAt.Time.Before(then) {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0 && pod.DeletionTimestamp == nil
}
