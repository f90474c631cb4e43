package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a CephOSD.
const (
	// ConditionValid: the spec makes sense. If not, the refusals say why, and nothing is touched.
	ConditionValid = "Valid"
	// ConditionUpToDate: every OSD has a pod, made from the present template.
	ConditionUpToDate = "UpToDate"
	// ConditionProgressing: a rollout is under way, and nothing keeps it from going on.
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
	// Progress is "3/12": OSDs that are up to date, of all.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Reason is the CamelCase reason of the present state, Message the same for people: what it does, waits for, or why it halted.
	// +optional
	Reason string `json:"reason,omitempty"`
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
	// Refused lists what is wrong with the spec.
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
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OSDCounts counts OSDs, and pods, by state.
type OSDCounts struct {
	// Total is how many OSDs the spec asks for.
	Total int32 `json:"total"`
	// UpToDate have a pod of the present template that was released; OutOfDate one of another.
	UpToDate  int32 `json:"upToDate"`
	OutOfDate int32 `json:"outOfDate"`
	// Ready and Unready have a pod of the present template that has not been released yet.
	Ready   int32 `json:"ready"`
	Unready int32 `json:"unready"`
	// Missing have no pod at all.
	Missing int32 `json:"missing"`
	// NotReady is how many pods of wanted OSDs are not ready in Kubernetes, whatever their state.
	NotReady int32 `json:"notReady"`
	// Invalid pods will be deleted; Terminating ones are on their way.
	Invalid     int32 `json:"invalid"`
	Terminating int32 `json:"terminating"`
	// Superfluous pods are of OSDs that the spec does not name any more; they go when Ceph can do without them.
	Superfluous int32 `json:"superfluous"`
}

// BatchStatus is the batch in work.
type BatchStatus struct {
	// FailureDomain is where its OSDs are, such as "zone zone-x".
	FailureDomain string `json:"failureDomain"`
	// OSDs are their keys, host:data.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	OSDs []string `json:"osds"`
	// Phase is what is being done with them.
	// +optional
	Phase string      `json:"phase,omitempty"`
	Since metav1.Time `json:"since"`
}

// HaltedStatus says why nothing further goes down.
type HaltedStatus struct {
	Reason string      `json:"reason"`
	Since  metav1.Time `json:"since"`
}

// Refusal is something in the spec that makes no sense.
type Refusal struct {
	// Field is its path, such as spec.storage[1].hosts[0].
	Field string `json:"field"`
	// +optional
	Value string `json:"value,omitempty"`
	// Message says what is allowed.
	Message string `json:"message"`
}
