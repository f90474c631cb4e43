package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaintenancePolicy puts one storage cluster under the care of a keeper: how to reach it, which pods are its daemons,
// and how long what may last. There is one per storage cluster, in the namespace of its pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="!has(self.spec.fencing) || !has(self.spec.fencing.api) || self.spec.fencing.api != 'MachineDisruptionBudget' || size(self.metadata.name) <= 63",message="the name is part of a label of Machines with fencing.api MachineDisruptionBudget: at most 63 characters"
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mp;maintpol,categories=lockkeeper
// +kubebuilder:printcolumn:name="May Drain",type=string,JSONPath=`.status.mayDrain`
// +kubebuilder:printcolumn:name="Open",type=string,JSONPath=`.status.openFailureDomain.name`
// +kubebuilder:printcolumn:name="Up",type=string,JSONPath=`.status.storage.up`
// +kubebuilder:printcolumn:name="PGs clean",type=string,JSONPath=`.status.storage.pgs`
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.status.lease.holders[*].workflowID`
// +kubebuilder:printcolumn:name="As Of",type=date,JSONPath=`.status.asOf`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
type MaintenancePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec MaintenancePolicySpec `json:"spec"`
	// +optional
	Status MaintenancePolicyStatus `json:"status,omitempty"`
}

// MaintenancePolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type MaintenancePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaintenancePolicy `json:"items"`
}

// MaintenancePolicySpec names the kind of storage by which of its fields is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.ceph) != has(self.longhorn)",message="exactly one of spec.ceph and spec.longhorn is required: a policy looks after one storage cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.longhorn) || !has(self.fencing) || !has(self.fencing.api) || self.fencing.api == 'None'",message="spec.fencing.api must be None with spec.longhorn: Longhorn's volumes need nothing to be held back"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.ceph) || has(self.ceph)",message="spec.ceph cannot be replaced by spec.longhorn: delete the policy and create another one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.longhorn) || has(self.longhorn)",message="spec.longhorn cannot be replaced by spec.ceph: delete the policy and create another one"
type MaintenancePolicySpec struct {
	// Ceph says how to look after a Ceph cluster.
	// +optional
	Ceph *CephSpec `json:"ceph,omitempty"`

	// Longhorn says how to look after the Longhorn installation in the policy's namespace.
	// +optional
	Longhorn *LonghornSpec `json:"longhorn,omitempty"`

	// Fencing says what replaces or reboots nodes that failed. It is held back from Machines that the data relies on, and one of them is
	// released at a time.
	// +optional
	// +kubebuilder:default={}
	Fencing FencingSpec `json:"fencing,omitempty"`
}

// Condition types of a MaintenancePolicy.
const (
	// ConditionProtected: the budgets that the keeper wants are in place.
	ConditionProtected = "Protected"
	// ConditionStorageReachable: the storage cluster answers, with a quorum.
	ConditionStorageReachable = "StorageReachable"
	// ConditionDataClean: all placement groups are known to be clean as of the last change.
	ConditionDataClean = "DataClean"
	// ConditionDisruptionAllowed: a disruption is allowed now, somewhere; the message says where.
	ConditionDisruptionAllowed = "DisruptionAllowed"
	// ConditionKept: the keeper keeps this status up to date. The watcher writes False when the keeper does not.
	ConditionKept = "Kept"
)

// MaintenancePolicyStatus is written by the keeper. Lease and Noout are also its memory: they are written before what they
// describe is done, so that nothing that lockkeeper changed can be forgotten. When the keeper keeps it up to date no longer, the
// watcher says so: in MayDrain, Reason, Message, Since and the condition Kept, which the keeper overwrites when it is back.
type MaintenancePolicyStatus struct {
	// ObservedGeneration is the spec's generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MayDrain answers in short: "any node" (one OSD anywhere), "zone zone-x" (only there), "no", or "unknown: …" when nobody keeps
	// this status up to date.
	// +optional
	MayDrain string `json:"mayDrain,omitempty"`
	// Reason is the CamelCase reason of the present state, Message the same for people.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the present state began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// AsOf is when the keeper last wrote this status or confirmed it, which it does every 5 minutes at the latest.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// OpenFailureDomain is the one failure domain in which voluntary disruption is open, if any.
	// +optional
	OpenFailureDomain *FailureDomain `json:"openFailureDomain,omitempty"`
	// +optional
	Lease LeaseStatus `json:"lease,omitempty"`
	// Noout lists the noout flags that lockkeeper set and will unset.
	// +optional
	// +listType=map
	// +listMapKey=host
	Noout []NooutStatus `json:"noout,omitempty"`
	// +optional
	Storage StorageStatus `json:"storage,omitempty"`
	// Ceph is which Ceph cluster this policy means. Policies that mean the same one are told apart by it.
	// +optional
	Ceph *CephClusterStatus `json:"ceph,omitempty"`
	// Longhorn is which installation this policy means.
	// +optional
	Longhorn *LonghornStatus `json:"longhorn,omitempty"`
	// Fencing is what is held back from fencing; unset where the policy asks for none.
	// +optional
	Fencing *FencingStatus `json:"fencing,omitempty"`
	// Keeper is the ID of the keeper's workflow.
	// +optional
	Keeper string `json:"keeper,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FailureDomain is a unit of the storage cluster's topology.
type FailureDomain struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// LeaseStatus tells who may disrupt the storage cluster, and who waits for it.
type LeaseStatus struct {
	// Token is raised with every grant; a job whose token is older has lost the lease.
	// +optional
	Token int64 `json:"token,omitempty"`
	// +optional
	Holders []LeaseClaim `json:"holders,omitempty"`
	// Queue are the first 20 of those who wait, in the order of their turns.
	// +optional
	Queue []LeaseClaim `json:"queue,omitempty"`
	// Waiting is how many wait, if more than Queue lists.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// Packed are those whom Queue does not list, for the keeper's own memory: hundreds of them, written out, would keep the API server
	// busy for half a second with every change.
	// +optional
	Packed []byte `json:"packed,omitempty"`
}

// LeaseClaim is one job that holds or wants the lease.
type LeaseClaim struct {
	WorkflowID    string        `json:"workflowID"`
	RunID         string        `json:"runID"`
	FailureDomain FailureDomain `json:"failureDomain"`
	// Ask tells the claims of one job apart, if it makes several.
	// +optional
	Ask int64 `json:"ask,omitempty"`
	// +optional
	Node string `json:"node,omitempty"`
	// Daemons are what the job takes down, by name, when that is not all of a node.
	// +optional
	Daemons []string `json:"daemons,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Priority string `json:"priority,omitempty"`
	// +optional
	Token int64 `json:"token,omitempty"`
	// Since is when the claim was made, or, for a holder, granted.
	Since metav1.Time `json:"since"`
	// Observing: the disruption is somebody else's; the job only accompanies it.
	// +optional
	Observing bool `json:"observing,omitempty"`
	// Finishing: the job has done its work; the claim goes when its failure domain has healed.
	// +optional
	Finishing bool `json:"finishing,omitempty"`
	// NooutHosts are the CRUSH hosts on which the claim wants noout while it is held.
	// +optional
	NooutHosts []string `json:"nooutHosts,omitempty"`
	// DownBefore are daemons of the node that were down before the job began; it does not wait for them.
	// +optional
	DownBefore []string `json:"downBefore,omitempty"`
	// Stops is how the OSDs of the node go, if they are failure domains of their own: Together, or OneByOne, each when the data is whole
	// without those before.
	// +optional
	Stops string `json:"stops,omitempty"`
	// Reserve: the job needs the leases of several storage clusters and does not have them all yet. It holds this one, nothing is open
	// for it, and it goes back after this time once others wait for it.
	// +optional
	Reserve *metav1.Duration `json:"reserve,omitempty"`
	// Ready: the job has all of its leases; this one takes effect as soon as the storage allows it.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// Turn: the job waits for somebody else to take the node down. As long as none of its daemons is down, the claim goes back after
	// this time once others wait for it.
	// +optional
	Turn *metav1.Duration `json:"turn,omitempty"`
	// WaitsFor says why a claim in the queue is not granted yet.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
}

// StorageStatus is what the keeper last saw of the storage cluster.
type StorageStatus struct {
	// FailureDomainType is the smallest one that any pool relies on.
	// +optional
	FailureDomainType string `json:"failureDomainType,omitempty"`
	// Up is "5/6": OSDs that are up, of those expected to serve.
	// +optional
	Up string `json:"up,omitempty"`
	// PGs is "32/33": placement groups that are clean, of all.
	// +optional
	PGs string `json:"pgs,omitempty"`
	// +optional
	// +listType=atomic
	Down []string `json:"down,omitempty"`
}
