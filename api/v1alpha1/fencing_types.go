package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file is what a MaintenancePolicy says of the fencing of nodes.

// FencingAPI is what fences nodes.
type FencingAPI string

// The kinds of fencing that lockkeeper knows.
const (
	FencingNone                    FencingAPI = "None"
	FencingMachineDisruptionBudget FencingAPI = "MachineDisruptionBudget"
	FencingClusterAPI              FencingAPI = "ClusterAPI"
	FencingOpenShift               FencingAPI = "OpenShift"
	FencingNodeHealthCheck         FencingAPI = "NodeHealthCheck"
)

// FencingHold is how a Machine of Cluster API is held.
type FencingHold string

// The holds.
const (
	FencingHoldHooks           FencingHold = "Hooks"
	FencingHoldSkipRemediation FencingHold = "SkipRemediation"
)

// FencingSpec says what fences nodes, and where it keeps its Machines.
//
// +kubebuilder:validation:XValidation:rule="(has(self.namespace) && size(self.namespace) > 0) == (has(self.api) && self.api in ['MachineDisruptionBudget', 'ClusterAPI', 'OpenShift'])",message="namespace is that of the Machines: required with api MachineDisruptionBudget, ClusterAPI and OpenShift, and not allowed with None and NodeHealthCheck, which has no Machines"
// +kubebuilder:validation:XValidation:rule="!has(self.hold) || (has(self.api) && self.api == 'ClusterAPI')",message="hold is allowed with api ClusterAPI only; the others have one way to hold a Machine"
type FencingSpec struct {
	// API is what fences nodes here: None (nothing is held), MachineDisruptionBudget (of OpenShift before 4.3), ClusterAPI, OpenShift (its
	// machine API), or NodeHealthCheck (of medik8s). It has to manage the cluster that it runs in.
	// +optional
	// +kubebuilder:default=None
	// +kubebuilder:validation:Enum=None;MachineDisruptionBudget;ClusterAPI;OpenShift;NodeHealthCheck
	API FencingAPI `json:"api,omitempty"`

	// Namespace is that of the Machines.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Hold is how Machines of Cluster API are held: Hooks (the default: deletion hooks, which also hold back rollouts, scale-down and
	// kubectl delete machine, and leave the arithmetic of health checks as it is), or SkipRemediation (for health checks with a
	// remediation template, which pass over hooks; such a health check has to act on one unhealthy Machine of one, or it never does).
	// +optional
	// +kubebuilder:validation:Enum=Hooks;SkipRemediation
	Hold FencingHold `json:"hold,omitempty"`

	// RemediationTimeout is how long a Machine that was released may take to be fenced. After it the Machine is held again, and another
	// one has its turn. 0: for ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('30s') && duration(self) <= duration('720h')",message="must be 0s (wait for ever) or a duration between 30s and 720h, such as 20m"
	RemediationTimeout *metav1.Duration `json:"remediationTimeout,omitempty"`
}

// FencingStatus tells which Machines are held back from fencing, and which nodes are to be fenced.
type FencingStatus struct {
	// API, Namespace and Hold are how the Machines were held: spec.fencing, or what it was before.
	// +optional
	API string `json:"api,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Hold string `json:"hold,omitempty"`
	// Held is how many Machines are held.
	// +optional
	Held int32 `json:"held"`
	// MaxUnavailable is what the MachineDisruptionBudget is to say; unset where there is none.
	// +optional
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`
	// Problem is what keeps lockkeeper from holding or releasing Machines.
	// +optional
	Problem string `json:"problem,omitempty"`
	// Notes are what else a person should know: marks of somebody else, nodes without a Machine.
	// +optional
	// +listType=atomic
	Notes []string `json:"notes,omitempty"`
	// Nodes are those that are to be fenced, and those whose data is not whole again since.
	// +optional
	// +listType=map
	// +listMapKey=node
	Nodes []FencingNode `json:"nodes,omitempty"`
	// Budget: a MachineDisruptionBudget of lockkeeper is there, or about to be.
	// +optional
	Budget bool `json:"budget,omitempty"`
	// Marked are the beginnings of the UIDs of the Machines that carry a hold of lockkeeper, or are about to. Only from these it is taken
	// away.
	// +optional
	// +listType=atomic
	Marked []string `json:"marked,omitempty"`
}

// FencingNode is a node that is to be fenced.
type FencingNode struct {
	Node string `json:"node"`
	// Stage is Held (its Machine is held), Released (it may be fenced) or Healing (it was fenced, and the data is not whole yet).
	Stage string `json:"stage"`
	// Why it is to be fenced: Unhealthy, or Deleting (its Machine is being deleted).
	Why   string      `json:"why"`
	Since metav1.Time `json:"since"`
	// Reason and Message say what it waits for, or why it was released.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// Machine and MachineUID are what was released, ReleasedAt when.
	// +optional
	Machine string `json:"machine,omitempty"`
	// +optional
	MachineUID string `json:"machineUID,omitempty"`
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
	// HostsNothing: it had no daemons when it was released, so that no other node waits for it.
	// +optional
	HostsNothing bool `json:"hostsNothing,omitempty"`
	// Returns is how often a release was taken back because nobody fenced the node.
	// +optional
	Returns int32 `json:"returns,omitempty"`
	// DisksGo: the data of its daemons goes with the Machine.
	// +optional
	DisksGo bool `json:"disksGo,omitempty"`
	// Override is a person's word to release it whatever is known, and what was against it.
	// +optional
	Override *FencingOverride `json:"override,omitempty"`
	// FailureDomains are those of its daemons when it was released.
	// +optional
	// +listType=atomic
	FailureDomains []FailureDomain `json:"failureDomains,omitempty"`
	WorkflowID     string          `json:"workflowID"`
	RunID          string          `json:"runID"`
}

// FencingOverride is who released a Machine by hand, when and why.
type FencingOverride struct {
	By     string      `json:"by"`
	Reason string      `json:"reason"`
	At     metav1.Time `json:"at"`
	// Against is why it would not have been released.
	// +optional
	Against string `json:"against,omitempty"`
}
