package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a CephOSD.
const (
	// ConditionValid: the spec makes sense. If not, the refusals say why. With the reason HostsUnknown only the OSDs of those
	// hosts are left out; otherwise nothing is touched.
	ConditionValid = "Valid"
	// ConditionUpToDate: every OSD that nobody skipped has a pod of the present template, and serves. Unknown as long as the
	// storage cluster does not answer, or the spec makes no sense.
	ConditionUpToDate = "UpToDate"
	// ConditionProgressing: a rollout is under way, and goes on by itself. Its turn to have the lease, the pause between two
	// batches and the canary's time come by themselves; what is paused, waits for a window, for a person's word or for a
	// storage cluster that does not answer does not progress.
	ConditionProgressing = "Progressing"
	// ConditionHalted: a batch failed; nothing further goes down until it is mended, or a person says otherwise.
	ConditionHalted = "Halted"
)

// CephOSDStatus is written by the rollout's workflow alone.
type CephOSDStatus struct {
	// ObservedGeneration is the spec's generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// TemplateHash is that of the present template.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`
	// Progress is "3/12": OSDs that are up to date, of all but the skipped ones. While they cannot be counted it stays what it was.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Reason is the CamelCase reason of the present state: Halted, Refused, Paused, OutsideWindow, PauseBetween, SoakingCanary,
	// AwaitingApproval, AwaitingLease, AwaitingRelease, AwaitingStorage, RollingOut, UpToDate or Stopped.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Since is when the present reason began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Message says for people what the rollout does or waits for, or why it halted and how it goes on.
	// +optional
	Message string `json:"message,omitempty"`
	// OSDs counts them by state.
	// +optional
	OSDs OSDCounts `json:"osds,omitzero"`
	// Batch is what is being updated now.
	// +optional
	Batch *BatchStatus `json:"batch,omitempty"`
	// Halted is set while nothing further may go down because a batch failed.
	// +optional
	Halted *HaltedStatus `json:"halted,omitempty"`
	// Skipped are OSDs that a person excused from the present template: they stay as they are until it changes.
	// +optional
	// +kubebuilder:validation:MaxItems=4096
	// +listType=atomic
	Skipped []string `json:"skipped,omitempty"`
	// Superfluous are OSDs that left the spec and whose pods stay, the first 16 of them.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Superfluous []SuperfluousOSD `json:"superfluous,omitempty"`
	// Refused lists what is wrong with the spec. Hosts that are no nodes concern only their own OSDs; all else must be mended
	// before anything is touched.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Refused []Refusal `json:"refused,omitempty"`
	// Foreign are pods that carry the owner label but are not ours; they are left alone.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Foreign []string `json:"foreign,omitempty"`
	// Workflow is the ID of the workflow that rolls out.
	// +optional
	Workflow string `json:"workflow,omitempty"`
	// Conditions are Valid, UpToDate, Progressing and Halted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OSDCounts counts OSDs, and pods, by state.
type OSDCounts struct {
	// Total is how many OSDs the spec asks for.
	Total int32 `json:"total"`
	// UpToDate have a pod of the present template that was released.
	UpToDate int32 `json:"upToDate"`
	// OutOfDate have a pod of another template, DB or WAL, or with a wrong name; those that were skipped are among them.
	OutOfDate int32 `json:"outOfDate"`
	// Ready have a pod of the present template that is ready in Kubernetes and has not been released yet.
	Ready int32 `json:"ready"`
	// Unready have a pod of the present template that was never seen to serve, or have none that could be made now.
	Unready int32 `json:"unready"`
	// Missing have no pod at all, and one can be made.
	Missing int32 `json:"missing"`
	// Skipped are out of date and stay so, because a person said so.
	// +optional
	Skipped int32 `json:"skipped,omitempty"`
	// NotReady is how many OSDs hold everybody else back because they do not serve: those that are unready, and those that
	// are up to date but crashed since. One that a person excused does not count.
	NotReady int32 `json:"notReady"`
	// Invalid pods are duplicates, or have a wrong name or lack annotations; they go, the one that serves in its turn.
	Invalid int32 `json:"invalid"`
	// Terminating pods are on their way; no successor is made before they are gone.
	Terminating int32 `json:"terminating"`
	// Superfluous pods are of OSDs that the spec does not name any more; they go when Ceph can do without them.
	Superfluous int32 `json:"superfluous"`
}

// BatchStatus is the batch in work.
type BatchStatus struct {
	// FailureDomain is where its OSDs are, such as "zone zone-x".
	FailureDomain string `json:"failureDomain"`
	// OSDs are their names, such as osd.3, or host:data as long as the name is not known; at most 16, then "N more".
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	OSDs []string `json:"osds"`
	// Phase is what is being done with them.
	// +optional
	Phase string `json:"phase,omitempty"`
	// Since is when the batch began.
	Since metav1.Time `json:"since"`
}

// HaltedStatus says why nothing further goes down.
type HaltedStatus struct {
	// Reason says for people which OSDs did not come back, and what is the matter with the first of their pods.
	Reason string `json:"reason"`
	// Since is when the rollout halted.
	Since metav1.Time `json:"since"`
}

// SuperfluousOSD is an OSD that left the spec.
type SuperfluousOSD struct {
	// OSD is its key, host:data.
	OSD string `json:"osd"`
	// Why says why its pod stays, and what would let it go.
	Why string `json:"why"`
}

// Refusal is something in the spec that makes no sense.
type Refusal struct {
	// Field is its path, such as spec.storage[1].hosts[0].
	Field string `json:"field"`
	// Value is what stands there, cut if it is long.
	// +optional
	Value string `json:"value,omitempty"`
	// Message says what is allowed.
	Message string `json:"message"`
}
