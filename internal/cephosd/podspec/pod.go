package podspec

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is what a pod is worth. The first four are written into its annotation.
type State string

// States of pods.
const (
	// UpToDate: it was made from the present template, and was released.
	UpToDate State = "up-to-date"
	// OutOfDate: it was made from another template, or with another DB or WAL. It will be made anew.
	OutOfDate State = "out-of-date"
	// Unready: it was made from the present template, and nobody has seen it ready yet. As long as there is one nothing
	// further goes down.
	Unready State = "unready"
	// Ready: the same, and Kubernetes says that it is ready. It waits to be released.
	Ready State = "ready"
	// Invalid: it is a duplicate, has the wrong name, lacks annotations, or has ended. It has to go.
	Invalid State = "invalid"
	// Superfluous: the spec does not name its OSD any more. It goes when Ceph can do without the OSD.
	Superfluous State = "superfluous"
	// Terminating: it is on its way; its process may still write.
	Terminating State = "terminating"
	// Foreign: it has the owner label, but somebody else made it or looks after it. It is left alone.
	Foreign State = "foreign"
)

// Pod is one of a CephOSD's pods, and what it is worth.
type Pod struct {
	*corev1.Pod
	// OSD is what the pod's annotations say that it is; without a host or a device nobody knows.
	OSD   OSD
	State State
	// Why says it for people; "" if nothing is wrong.
	Why string
	// Ready is what Kubernetes says of it, whatever its state.
	Ready bool
	// Up: Ceph says that its OSD is up, in this pod. Whoever asks Ceph writes it here; Classify does not know.
	Up bool
	// Overridden: a person has said not to wait for it, by removing the state from its annotations or by writing
	// up-to-date there, and it has not served since, ready and up.
	Overridden bool
	// Serving: to delete it takes down the one daemon of an OSD that the spec wants.
	Serving bool
	// MayServe: the same, unless it does so in another pod. Nobody knows yet.
	MayServe bool
}

// Annotations are those that have to be written so that the pod says what it is worth; nil: it does already. An
// override stays as the person left it until the OSD serves: a pod that is ready proves nothing yet.
func (p Pod) Annotations(at time.Time) map[string]string {
	switch p.State {
	case UpToDate:
		switch {
		case p.Ready && p.Up && (p.Overridden || !p.released()):
			return Release(at)
		case p.Overridden:
			return nil
		case p.released() && (!p.Ready || !p.Up):
			// The release is taken back, so that a person can give it again.
			return map[string]string{StateAnnotation: string(Unready), ReleasedAnnotation: ""}
		case p.fell():
			return nil
		}
	case OutOfDate, Ready, Unready:
	default:
		return nil
	}
	if p.annotated() == p.State {
		return nil
	}
	return map[string]string{StateAnnotation: string(p.State)}
}

// Release is the annotations of a pod that has been seen ready in Kubernetes and up in Ceph.
func Release(at time.Time) map[string]string {
	return map[string]string{StateAnnotation: string(UpToDate), ReleasedAnnotation: at.UTC().Format(time.RFC3339)}
}

func (p Pod) annotated() State { return State(p.Pod.Annotations[StateAnnotation]) }

func (p Pod) released() bool { return p.Pod.Annotations[ReleasedAnnotation] != "" }

// ours tells whether lockkeeper made it.
func (p Pod) ours() bool { return p.Name == PodName(p.OSD) }

// fell tells whether the pod was released, and is known to serve no more since: it is up to date, and whoever waits for
// it waits for the OSD.
func (p Pod) fell() bool {
	_, takenBack := p.Pod.Annotations[ReleasedAnnotation]
	return p.annotated() == Unready && takenBack && !p.released()
}

// waits tells whether a pod of the present template still has to be released. The original operator wrote
// wait-for-ready, and its documents say waiting; what nobody can have meant is no release. One of ours that was called
// out-of-date before its template came back had not been released then.
func (p Pod) waits() bool {
	if p.fell() {
		return false
	}
	switch p.annotated() {
	case "", UpToDate:
		return false
	case OutOfDate:
		return p.ours() && !p.released()
	default:
		return true
	}
}

// overridden tells whether a person released it.
func (p Pod) overridden() bool {
	_, takenBack := p.Pod.Annotations[ReleasedAnnotation]
	return p.annotated() == "" || p.annotated() == UpToDate && (p.ours() || takenBack) && !p.released()
}

// osdOf is what a pod's annotations say that it is.
func osdOf(pod *corev1.Pod) OSD {
	a := pod.Annotations
	return OSD{Host: a[HostAnnotation], Data: a[DataAnnotation], DB: a[DBAnnotation], WAL: a[WALAnnotation]}
}

// known tells whether the pod says which OSD it is.
func (p Pod) known() bool { return p.OSD.Host != "" && p.OSD.Data != "" }

// ended tells whether nothing runs in the pod any more, nor ever will: it was evicted by its node, say.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}
