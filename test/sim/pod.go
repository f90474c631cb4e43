package sim

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is a pod, as the API server shows it.

// pod is one pod of a workload.
type pod struct {
	name  string
	of    *workload
	node  string // "": none yet
	bound bool   // to the node
	state storage.PodState
	ready bool // what a terminating one was
	// failing is since when its readiness probe fails although its daemon serves; zero: it does not.
	failing time.Time
	unheard bool      // it is to end, and its kubelet has not heard of it
	runs    bool      // its process
	started time.Time // when it was last
	began   bool      // its container was started: until the pod is gone, it may be again at any moment

	writes int // to the object: what is written, taken back and written again is another version each time
	// the label that lockkeeper sets; "": none. Of one with a controller, whose other labels are its workload's
	mark     string
	marked   map[string]string // the labels with that mark
	restarts int               // of its container
	word     string            // a person's, by which it may go out of turn; "": none

	// by whom no controller stands behind; nil: by that of its Deployment. Whoever changes it puts another one here
	made     *corev1.Pod
	read     *corev1.Pod // the made that said was taken from
	said     string      // all of it that changes
	revision int64       // of its Deployment's template
	has      string      // the image of that

	// Of one without a controller: what its daemon opens on its node, when it was made, whether by lockkeeper, and the
	// annotations and labels that somebody else wrote last.
	devices []string
	since   time.Time
	ours    bool
	theirs  map[string]bool
}

// labels are those that the pod has.
func (p *pod) labels() map[string]string {
	switch {
	case p.made != nil:
		return p.made.Labels
	case p.mark == "":
		return p.of.labels
	}
	if p.marked[storageview.MarkLabel] != p.mark {
		p.marked = maps.Clone(p.of.labels)
		p.marked[storageview.MarkLabel] = p.mark
	}
	return p.marked
}

// version stands for all of a pod that changes. Its spec never does.
func (p *pod) version() string {
	v := p.name + " " + string(p.state) + " " + strconv.FormatBool(p.bound) + " " + strconv.FormatBool(p.ready) + " " +
		strconv.Itoa(p.restarts) + " " + p.mark + " " + p.word + " " + strconv.Itoa(p.writes)
	if p.made != p.read {
		p.said, p.read = fmt.Sprint(p.made.UID, p.made.Labels, p.made.Annotations, p.made.OwnerReferences), p.made
	}
	return v + p.said
}

func (p *pod) boundTo() string {
	if p.bound {
		return p.node
	}
	return ""
}

func (p *pod) leaving() bool { return p.state == storage.PodTerminating }

// object is the pod as the API server hands it out.
func (p *pod) object() corev1.Pod {
	out := p.shared()
	return *out.DeepCopy()
}

// shared is the pod for those who only read.
func (p *pod) shared() corev1.Pod {
	if p.made != nil {
		out := *p.made
		out.Spec.NodeName = p.boundTo()
		p.describe(&out)
		return out
	}
	yes := true
	out := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(p.of.namespace, Key.Namespace), Name: p.name, UID: types.UID(p.name), Labels: p.labels(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: p.of.name(),
				Controller: &yes,
			}},
		},
		Spec: corev1.PodSpec{NodeName: p.boundTo(), NodeSelector: p.of.nodeSelector()},
	}
	if p.word != "" {
		out.Annotations = map[string]string{kube.GoNowAnnotation: p.word}
	}
	p.describe(&out)
	return out
}

// container is the name of the daemon's.
func (p *pod) container() string {
	if p.made != nil && len(p.made.Spec.Containers) > 0 {
		return p.made.Spec.Containers[0].Name
	}
	return p.of.kind
}

// describe fills in what the kubelet and the API server say of a pod.
func (p *pod) describe(out *corev1.Pod) {
	out.ResourceVersion = p.version()
	out.Status.Phase = corev1.PodRunning
	container := corev1.ContainerStatus{Name: p.container(), RestartCount: int32(p.restarts)} //nolint:gosec // few
	if p.runs {
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.started)}
	}
	out.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	ready := p.state == storage.PodReady
	switch p.state {
	case storage.PodNone, storage.PodReady, storage.PodNotReady:
	case storage.PodPending:
		out.Status.Phase = corev1.PodPending
	case storage.PodTerminating:
		at := now()
		out.DeletionTimestamp = &at
		ready = p.ready
	}
	if ready {
		out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}
