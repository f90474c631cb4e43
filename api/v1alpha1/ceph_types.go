package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
)

// This file is what a MaintenancePolicy says of a Ceph cluster.

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
	// and go when their failure domain happens to be open). With Automatic a node is drained, too, whose taint is to drive them off.
	// +optional
	// +kubebuilder:default=Approve
	// +kubebuilder:validation:Enum=Automatic;Approve;Observe
	Restarts RestartMode `json:"restarts,omitempty"`

	// RestartWindows are the times in which lockkeeper may let the next of them go. None: always. What is broken anyway goes at any
	// time, and what has begun is brought to its end.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	RestartWindows []cephv1alpha1.Window `json:"restartWindows,omitempty"`

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
