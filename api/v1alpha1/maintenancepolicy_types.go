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

// CephSpec describes one Ceph cluster. Every default fits a cluster that Rook runs in the policy's namespace.
type CephSpec struct {
	// Connection says how to reach the cluster.
	// +optional
	// +kubebuilder:default={}
	Connection CephConnection `json:"connection,omitempty"`

	// OSDs says which pods are the cluster's OSDs and where their failure domain is written.
	// +optional
	// +kubebuilder:default={}
	OSDs OSDSelection `json:"osds,omitempty"`

	// Daemons says which pods are the other daemons; each kind gets a static budget that follows its replicas.
	// +optional
	// +kubebuilder:default={}
	Daemons DaemonSelections `json:"daemons,omitempty"`

	// ManagePodBudgets: create and update PodDisruptionBudgets. When false nothing is created, and what lockkeeper created is removed.
	// +optional
	// +kubebuilder:default=true
	ManagePodBudgets *bool `json:"managePodBudgets,omitempty"`

	// AtRest is what may be evicted while all is well and no failure domain is open: One (one OSD, anywhere), or None (only a cordon or
	// a job opens a failure domain; choose this if evictions must wait whenever lockkeeper is away).
	// +optional
	// +kubebuilder:default=One
	// +kubebuilder:validation:Enum=One;None
	AtRest string `json:"atRest,omitempty"`

	// Restarts is what becomes of pods of OSDs and mons that a controller wants gone and that the guard of deletions has wait
	// (a changed Deployment, kubectl rollout restart, an operator): Automatic (lockkeeper lets them go, one failure domain after the
	// other), Approve (it does so once a person says `lockkeeper approve restart-waiting/NAMESPACE/NAME`), or Observe (they are shown,
	// and go when their failure domain happens to be open).
	// +optional
	// +kubebuilder:default=Approve
	// +kubebuilder:validation:Enum=Automatic;Approve;Observe
	Restarts RestartMode `json:"restarts,omitempty"`

	// OSDMaintenanceTimeout is how long a noout set for a drain may last, at least one second. After it Ceph may mark the OSDs out and heal elsewhere.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="must be a duration between 1s and 720h, such as 30m"
	OSDMaintenanceTimeout *metav1.Duration `json:"osdMaintenanceTimeout,omitempty"`

	// PGHealthCheckTimeout is how long unclean placement groups hold other failure domains back once all OSDs are up again. 0: for ever.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be a duration between 0s (wait for ever) and 720h, such as 10m"
	PGHealthCheckTimeout *metav1.Duration `json:"pgHealthCheckTimeout,omitempty"`

	// PGHealthyRegex says which PG states count as clean, in Go's regular expression syntax. One that lets a PG with a missing
	// copy count as clean is refused: it would open one failure domain after the other.
	// +optional
	// +kubebuilder:default=`^active(\+(clean|deep|scrubbing|snaptrim|snaptrim_wait))+$`
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="'active+clean'.matches(self)",message="must be a regular expression in RE2 syntax that matches \"active+clean\""
	// +kubebuilder:validation:XValidation:rule="!['active+undersized', 'active+undersized+degraded', 'stale+active+clean', 'peering', 'down', 'unknown'].exists(state, state.matches(self))",message="must not match active+undersized, stale+active+clean, peering, down or unknown; anchor it with ^ and $"
	PGHealthyRegex string `json:"pgHealthyRegex,omitempty"`

	// AnnouncementTimeout is how long the failure domain of a cordoned node stays open before one of its OSDs goes down.
	// A node that stays cordoned for longer blocks nobody.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be a duration between 0s (a cordon opens nothing) and 1h, such as 1m"
	AnnouncementTimeout *metav1.Duration `json:"announcementTimeout,omitempty"`

	// ToleratedPools are pools whose data may become unavailable while one failure domain is down (size 1, or min_size
	// equal to size). Unless a pool is named here, it keeps all failure domains closed.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	ToleratedPools []string `json:"toleratedPools,omitempty"`

	// AllowMonQuorumLoss lets the mons of a cluster with only one or two be evicted, though Ceph stops answering while one is away.
	// +optional
	AllowMonQuorumLoss bool `json:"allowMonQuorumLoss,omitempty"`

	// FlushPGStats has OSDs report at once instead of waiting for their reports (5 s apart by default), which saves seconds for each
	// batch of a rollout. It needs the capability osd 'allow *', with which the Ceph user may read and destroy all data, and
	// mon 'allow service mon r, allow service osd r': only for who replaces very many OSDs one at a time. Where Ceph refuses, reports are
	// waited for.
	// +optional
	FlushPGStats bool `json:"flushPGStats,omitempty"`
}

// LonghornSpec describes the Longhorn installation in the policy's namespace. Longhorn's own settings node-drain-policy and
// kubernetes-cluster-autoscaler-enabled are honoured.
type LonghornSpec struct {
	// ManagePodBudgets: create and update PodDisruptionBudgets. When false nothing is created, and what lockkeeper created is removed.
	// +optional
	// +kubebuilder:default=true
	ManagePodBudgets *bool `json:"managePodBudgets,omitempty"`

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

	// TurnTimeout is how long a node that is leaving keeps its turn while others that share a volume with it wait. After it the next one
	// has its turn, and this one comes last.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('720h')",message="must be a duration between 10s and 720h, such as 10m"
	TurnTimeout *metav1.Duration `json:"turnTimeout,omitempty"`
}

// RestartMode is what becomes of pods that wait to be restarted.
type RestartMode string

// The modes.
const (
	RestartsAutomatic RestartMode = "Automatic"
	RestartsApprove   RestartMode = "Approve"
	RestartsObserve   RestartMode = "Observe"
)

// CephConnection names the objects, in the policy's namespace, that tell the mons' addresses and lockkeeper's credentials.
type CephConnection struct {
	// MonEndpoints is a ConfigMap with the mons' addresses: "a=10.0.0.1:6789,b=…", as Rook writes it, or plain "10.0.0.1:3300,…".
	// +optional
	// +kubebuilder:default={name: "rook-ceph-mon-endpoints", key: "data"}
	MonEndpoints KeyReference `json:"monEndpoints,omitempty"`
	// Credentials is a Secret with the name and the key of a Ceph user. Rook's own by default; better one with fewer rights.
	// +optional
	// +kubebuilder:default={name: "rook-ceph-mon"}
	Credentials CredentialsReference `json:"credentials,omitempty"`
}

// KeyReference is a key in a ConfigMap of the policy's namespace.
type KeyReference struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
}

// CredentialsReference is a Secret of the policy's namespace and its keys that hold the user and the user's key.
type CredentialsReference struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// UserKey is the Secret's key with the user: "client.lockkeeper" or "lockkeeper".
	// +optional
	// +kubebuilder:default="ceph-username"
	// +kubebuilder:validation:MinLength=1
	UserKey string `json:"userKey,omitempty"`
	// SecretKey is the Secret's key with the user's secret key.
	// +optional
	// +kubebuilder:default="ceph-secret"
	// +kubebuilder:validation:MinLength=1
	SecretKey string `json:"secretKey,omitempty"`
}

// OSDSelection says which pods are OSDs and what their labels mean.
type OSDSelection struct {
	// Selector selects the OSD pods, and nothing else.
	// +optional
	// +kubebuilder:default={matchLabels: {app: "rook-ceph-osd"}}
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must select by at least one label: an empty selector means all pods of the namespace"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// IDLabel is the pod label with the OSD's number.
	// +optional
	// +kubebuilder:default="ceph-osd-id"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	IDLabel string `json:"idLabel,omitempty"`
	// FailureDomainLabel is the pod label with the name of the failure domain; "{type}" stands for its CRUSH type.
	// +optional
	// +kubebuilder:default="topology-location-{type}"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	FailureDomainLabel string `json:"failureDomainLabel,omitempty"`
}

// DaemonSelections select the pods of Ceph's other daemons. An unset one means Rook's labels.
type DaemonSelections struct {
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must select by at least one label: an empty selector means all pods of the namespace"
	Mon *metav1.LabelSelector `json:"mon,omitempty"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must select by at least one label: an empty selector means all pods of the namespace"
	Mgr *metav1.LabelSelector `json:"mgr,omitempty"`
	// MDS pods are counted per value of the label rook_file_system.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must select by at least one label: an empty selector means all pods of the namespace"
	MDS *metav1.LabelSelector `json:"mds,omitempty"`
	// RGW pods are counted per value of the label rook_object_store.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must select by at least one label: an empty selector means all pods of the namespace"
	RGW *metav1.LabelSelector `json:"rgw,omitempty"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must select by at least one label: an empty selector means all pods of the namespace"
	RBDMirror *metav1.LabelSelector `json:"rbdMirror,omitempty"`
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

// NooutStatus is a noout flag of ours on one host of the CRUSH map.
type NooutStatus struct {
	Host string `json:"host"`
	// Owner is the job it was set for.
	Owner string `json:"owner"`
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// Expires is when it is unset whatever happens.
	Expires metav1.Time `json:"expires"`
	// Confirmed: it was seen in Ceph.
	// +optional
	Confirmed bool `json:"confirmed,omitempty"`
	// Withdrawn: it is unset, by us or by a person, and stays unset for this owner.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
	// HostID is the host's id in the CRUSH map, which stays when the host is renamed; 0: not known, or an OSD.
	// +optional
	HostID int `json:"hostID,omitempty"`
	// Claimed is the name by which the owner asked for it, if the host was renamed since.
	// +optional
	Claimed string `json:"claimed,omitempty"`
	// Unsure: Ceph gave no answer when it was set, so that the command may still be carried out.
	// +optional
	Unsure bool `json:"unsure,omitempty"`
	// Until: it is unset, but a command without an answer may still set it. Until then it is unset again when it is seen.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// CephClusterStatus is which Ceph cluster a policy means, by Ceph's own word.
type CephClusterStatus struct {
	// FSID is the ID that the Ceph cluster gave itself.
	FSID string `json:"fsid"`
	// Claimed: this policy's keeper looks after the cluster, or has not yet taken back all that it did there. While that is so no
	// keeper of another policy opens anything. It is written before the keeper's first step, and withdrawn after its last.
	// +optional
	Claimed bool `json:"claimed,omitempty"`
}

// LonghornStatus is which Longhorn installation a policy means, and whether its keeper looks after it.
type LonghornStatus struct {
	// Installation is the UID of the namespace that Longhorn is installed in.
	Installation string `json:"installation"`
	// Claimed: something may be open, granted or set there for this policy.
	// +optional
	Claimed bool `json:"claimed,omitempty"`
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
