package podspec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
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
// itself and the pod, and the ReplicaSet is gone. Such a pod says which OSD it is, but not from which template it was
// made: the label template-hash there is that of a ReplicaSet.
func madeForReplicaSet(p Pod) bool { return p.known() && p.Labels[replicaSetHashLabel] != "" }

const replicaSetHashLabel = "ceph.elemental.net/template-hash"

// controlledByOther is who looks after the pod, if that is no CephOSD: whoever deletes the pod gets another one from
// there.
func controlledByOther(pod *corev1.Pod, kind string) *metav1.OwnerReference {
	if ref := metav1.GetControllerOf(pod); ref != nil && ref.Kind != kind {
		return ref
	}
	return nil
}

// owns tells whether the pod has the owner references that the deletion policy asks for.
func (s Set) owns(pod *corev1.Pod) bool {
	want := s.OwnerReferences()
	controller := metav1.GetControllerOf(pod)
	if len(want) > 0 {
		return controller != nil && controller.UID == want[0].UID
	}
	return controller == nil && !slices.ContainsFunc(pod.OwnerReferences, isCephOSD)
}

// isCephOSD: Kubernetes deletes a pod together with any owner that it has, whether that controls it or not.
func isCephOSD(ref metav1.OwnerReference) bool { return ref.Kind == v1alpha1.Kind }

// OwnersOf are the owner references that one of our pods should have: those that the deletion policy asks for, and
// those of its own that are no CephOSD's.
func (s Set) OwnersOf(pod *corev1.Pod) []metav1.OwnerReference {
	others := slices.DeleteFunc(slices.Clone(pod.OwnerReferences), isCephOSD)
	return append(others, s.OwnerReferences()...)
}

// outdated says why a pod of the OSD has to be made anew; "": it need not. How it was rendered does not count: a pod of
// the original operator, or of an older lockkeeper, stays as long as what people wrote is the same. That is the
// template and, since its hash does not know the devices, DB and WAL.
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
	if podutils.IsPodReady(pod) {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
				return fmt.Sprintf("its container %s waits: %s%s", statuses[i].Name, w.Reason, failure(&statuses[i]))
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "it has no node: " + c.Message
		}
	}
	for i := range pod.Status.ContainerStatuses {
		switch s := &pod.Status.ContainerStatuses[i]; {
		case s.State.Running == nil:
			return fmt.Sprintf("its container %s does not run%s", s.Name, failure(s))
		case !s.Ready:
			return fmt.Sprintf("its container %s runs and does not serve yet%s", s.Name, failure(s))
		}
	}
	if len(pod.Status.ContainerStatuses) > 0 {
		return "its containers are ready, and the kubelet has not said so of the pod"
	}
	return "its containers do not run yet"
}

// failure says how a container last failed, in its own words where its spec lets it have some; "": it has not.
func failure(s *corev1.ContainerStatus) string {
	last := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	if last == nil || last.ExitCode == 0 {
		return ""
	}
	how := fmt.Sprintf("; it ended with %d", last.ExitCode)
	if s.State.Running != nil {
		how = fmt.Sprintf("; before this start it ended with %d", last.ExitCode)
	}
	switch {
	case last.Reason != "" && last.Reason != "Error": // OOMKilled, say, of which its log knows nothing
		return how + " (" + last.Reason + ")"
	case strings.TrimSpace(last.Message) != "":
		return how + ": " + lastLines(last.Message)
	case last.ExitCode == refusedKey:
		return how + ", its log says why: after a rotation of keys it may have an old one"
	}
	return how + ", its log says why"
}

// refusedKey is with what an OSD ends, among other reasons, whose key the monitors refuse.
const refusedKey = 1

// logged is what Ceph writes before each line of a log: the word "debug" (in Rook's pods), a time, a thread, a level.
var logged = regexp.MustCompile(`^(debug ?)?\d{4}-\d\d-\d\dT\S+ [0-9a-f]+ +-?\d+ `)

// lastLines are the last lines of a message, as many as a status has room for. Times are left out: with them it would
// change at each restart.
func lastLines(message string) (said string) {
	const most = 300
	lines := strings.Split(strings.TrimSpace(message), "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(logged.ReplaceAllString(line, ""))
		switch {
		case line == "" || strings.HasPrefix(said, line+"; ") || said == line: // the same line again
		case said == "":
			said = strings.ToValidUTF8(line[max(0, len(line)-most):], "")
		case len(line)+len("; ")+len(said) > most:
			return said
		default:
			said = line + "; " + said
		}
	}
	return said
}

// Differs tells how a live pod differs from what Render makes of the present spec, in what people can write; "" if it
// does not. It is outdated for whoever has two pods in hand and no Set.
func Differs(live, rendered *corev1.Pod) string {
	want := osdOf(rendered)
	if osdOf(live).Key() != want.Key() {
		return fmt.Sprintf("it is %s, not %s", osdOf(live).Key(), want.Key())
	}
	set := Set{Hash: rendered.Annotations[HashAnnotation]}
	return set.outdated(want, Pod{Pod: live, OSD: osdOf(live)})
}

// daemon is how a pod's first container runs, which is the daemon's, ready or not; nil: it does not.
func daemon(pod *corev1.Pod) *corev1.ContainerStateRunning {
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; len(pod.Spec.Containers) > 0 && c.Name == pod.Spec.Containers[0].Name {
			return c.State.Running
		}
	}
	return nil
}

// longer puts the pod whose daemon has run for longer first, and what does not run last.
func longer(a, b *corev1.Pod) int {
	x, y := daemon(a), daemon(b)
	if x == nil || y == nil {
		return first(x != nil, y != nil)
	}
	return x.StartedAt.Compare(y.StartedAt.Time)
}

// youngUntil is how old a pod that has ended must be before it is made anew. One that its kubelet rejects at once, for
// lack of space, say, is rejected again as long as the cause lasts.
const youngUntil = 30 * time.Second

// MayGoAt is when a pod that has ended may be deleted, so that its successor is made; zero: at any time.
func (p Pod) MayGoAt() time.Time {
	if !ended(p.Pod) || p.CreationTimestamp.IsZero() {
		return time.Time{}
	}
	return p.CreationTimestamp.Add(youngUntil)
}
