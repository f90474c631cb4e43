package osdpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mandatory are the annotations that every pod of an OSD has.
var mandatory = []string{HostAnnotation, DataAnnotation, HashAnnotation}

// lacking are the mandatory annotations that a pod does not have.
func lacking(pod *corev1.Pod) (names []string) {
	for _, name := range mandatory {
		if pod.Annotations[name] == "" {
			names = append(names, name)
		}
	}
	return names
}

// madeForReplicaSet tells whether the pod was made by the original operator at a time when it put a ReplicaSet between
// itself and the pod, and the ReplicaSet is gone. Such a pod says which OSD it is, but not from which template it was made:
// the label template-hash there is that of a ReplicaSet.
func madeForReplicaSet(p Pod) bool { return p.known() && p.Labels[replicaSetHashLabel] != "" }

const replicaSetHashLabel = "ceph.elemental.net/template-hash"

// controlledByOther is who looks after the pod, if that is no CephOSD: whoever deletes the pod gets another one from there.
func controlledByOther(pod *corev1.Pod, kind string) *metav1.OwnerReference {
	if ref := metav1.GetControllerOf(pod); ref != nil && ref.Kind != kind {
		return ref
	}
	return nil
}

// owns tells whether the pod has the owner references that the deletion policy asks for.
func (s Set) owns(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	want := s.OwnerReferences()
	return controller == nil && len(want) == 0 || controller != nil && len(want) == 1 && controller.UID == want[0].UID
}

// outdated says why a pod of the OSD has to be made anew; "": it need not. How it was rendered does not count: a pod of the
// original operator, or of an older lockkeeper, stays as long as what people wrote is the same. That is the template and,
// since its hash does not know the devices, DB and WAL.
func (s Set) outdated(o OSD, p Pod) string {
	hash, of := p.Pod.Annotations[HashAnnotation], func(device string) string {
		if device == "" {
			return "none"
		}
		return device
	}
	switch {
	case hash == "":
		return "nobody knows from which template it was made"
	case hash != s.Hash:
		return fmt.Sprintf("its template has the hash %s, not %s", hash, s.Hash)
	case p.OSD.DB != o.DB:
		return fmt.Sprintf("its DB is %s, not %s", of(p.OSD.DB), of(o.DB))
	case p.OSD.WAL != o.WAL:
		return fmt.Sprintf("its WAL is %s, not %s", of(p.OSD.WAL), of(o.WAL))
	}
	return ""
}

// Trouble says why a pod is not ready, as far as Kubernetes tells; "" for one that is.
func Trouble(pod *corev1.Pod) string {
	if ready(pod) {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
				return fmt.Sprintf("its container %s waits: %s", statuses[i].Name, w.Reason)
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "it has no node: " + c.Message
		}
	}
	return "it is not ready"
}

// busy finds out which wanted OSDs have a device that the pod of another OSD has as well.
func busy(desired []OSD, pods []*corev1.Pod) map[string]string {
	type place struct{ host, device string }
	users := map[place][]*corev1.Pod{}
	for _, pod := range pods {
		o := osdOf(pod)
		if ended(pod) || o.Host == "" || o.Data == "" {
			continue
		}
		for _, device := range o.devices() {
			users[place{o.Host, device}] = append(users[place{o.Host, device}], pod)
		}
	}
	out := map[string]string{}
	for _, o := range desired {
		for _, device := range o.devices() {
			for _, pod := range users[place{o.Host, device}] {
				if osdOf(pod).Key() != o.Key() {
					out[o.Key()] = fmt.Sprintf("the pod %s still has %s", pod.Name, device)
				}
			}
		}
	}
	return out
}

// devices are all that the OSD has.
func (o OSD) devices() []string {
	out := []string{o.Data}
	for _, device := range []string{o.DB, o.WAL} {
		if device != "" {
			out = append(out, device)
		}
	}
	return out
}

// Differs tells how a live pod differs from what Render makes of the present spec, in what people can write; "" if it does
// not. It is outdated for whoever has two pods in hand and no Set.
func Differs(live, rendered *corev1.Pod) string {
	want := osdOf(rendered)
	if osdOf(live).Key() != want.Key() {
		return fmt.Sprintf("it is %s, not %s", osdOf(live).Key(), want.Key())
	}
	set := Set{Hash: rendered.Annotations[HashAnnotation]}
	return set.outdated(want, Pod{Pod: live, OSD: osdOf(live)})
}
