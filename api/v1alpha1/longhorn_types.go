package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file is what a MaintenancePolicy says of a Longhorn installation.

// LonghornSpec describes the Longhorn installation in the policy's namespace. Longhorn's own settings node-drain-policy and
// kubernetes-cluster-autoscaler-enabled are honoured.
type LonghornSpec struct {
	// ManagePodBudgets: create and update PodDisruptionBudgets. When false nothing is created, and what lockkeeper created is removed.
	// +optional
	// +kubebuilder:default=true
	ManagePodBudgets *bool `json:"managePodBudgets,omitempty"`

	// BudgetsEmptiedBy is who empties the budgets that Longhorn makes for its instance managers, so that lockkeeper's alone decide:
	// AdmissionPolicy, the API server at their birth, as soon as deploy/longhorn/one-writer.yaml is installed (Kubernetes 1.36 and later);
	// or Worker, lockkeeper when it has seen them, from now on and on any Kubernetes. With Worker an instance manager is under two budgets
	// for some tenths of a second whenever Longhorn has made one: the API server refuses evictions with an error then, at which kubectl
	// drain ends.
	// +optional
	// +kubebuilder:default=AdmissionPolicy
	// +kubebuilder:validation:Enum=AdmissionPolicy;Worker
	BudgetsEmptiedBy string `json:"budgetsEmptiedBy,omitempty"`

	// AtRest is what may be evicted while no node is leaving: One (the instance manager of one node on which nothing depends), or None
	// (only a cordon, an autoscaler's taint or a job opens a node).
	// +optional
	// +kubebuilder:default=One
	// +kubebuilder:validation:Enum=One;None
	AtRest string `json:"atRest,omitempty"`

	// RemovalTaintExpiry is the age from which the Cluster Autoscaler's taint ToBeDeletedByClusterAutoscaler does not count: such taints
	// are forgotten sometimes.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="must be a duration between 1m and 720h, such as 1h"
	RemovalTaintExpiry *metav1.Duration `json:"removalTaintExpiry,omitempty"`

	// DetachOnCordon: volumes that somebody attached by hand, in Longhorn's UI or API, are detached from a node that is leaving: cordoned,
	// drained by lockkeeper, or announced by an autoscaler. Nobody else ends such an attachment, and as long as it is there the node stays.
	// Longhorn's own setting detach-manually-attached-volumes-when-cordoned does so for cordoned nodes. It takes the rights of
	// deploy/storage-namespace-longhorn-detach.yaml.
	// +optional
	DetachOnCordon bool `json:"detachOnCordon,omitempty"`

	// EvictOnRemoval: Longhorn is asked to move replicas from a node that an autoscaler removes, or that is deleted, to other nodes, if the
	// node would have to stay for them: for a volume's last healthy replica, or with node-drain-policy block-for-eviction for any. While its
	// removal is announced a node gets no new replicas. Autoscalers are not held back from nodes that keep detached volumes then. It takes
	// the rights of deploy/storage-namespace-longhorn-evict.yaml.
	// +optional
	EvictOnRemoval bool `json:"evictOnRemoval,omitempty"`

	// TurnTimeout is how long a node that is leaving keeps its turn while others that share a volume with it wait. After it the next one
	// has its turn, and this one comes last.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('720h')",message="must be a duration between 10s and 720h, such as 10m"
	TurnTimeout *metav1.Duration `json:"turnTimeout,omitempty"`
}

// EmptiedByWorker is the value of BudgetsEmptiedBy by which lockkeeper's worker empties Longhorn's budgets.
const EmptiedByWorker = "Worker"

// LonghornStatus is which Longhorn installation a policy means, and whether its keeper looks after it.
type LonghornStatus struct {
	// Installation is the UID of the namespace that Longhorn is installed in.
	Installation string `json:"installation"`
	// Claimed: something may be open, granted or set there for this policy.
	// +optional
	Claimed bool `json:"claimed,omitempty"`
}
