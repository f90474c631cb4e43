package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephMon describes the mons of one Ceph cluster: how many there are, in which zones, and on what storage. Mons that
// exist are adopted as they are; a change of the storage or of the zones is carried out by moving mons, one at a time.
// Deleting a CephMon leaves all mons, their Services, volumes and keys as they are.
//
// The job MigrateMons acts on it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=lockkeeper
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: pods carry it in the value of a label"
// +kubebuilder:printcolumn:name="Quorum",type=string,JSONPath=`.status.quorum`
// +kubebuilder:printcolumn:name="As Spec",type=string,JSONPath=`.status.asSpec`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Mon",type=string,JSONPath=`.status.step.mon`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
type CephMon struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CephMonSpec `json:"spec"`
	// +optional
	Status CephMonStatus `json:"status,omitempty"`
}

// CephMonList is a list of them.
//
// +kubebuilder:object:root=true
type CephMonList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CephMon `json:"items"`
}

// CephMonSpec is what the mons should be. A new mon is made as it says; an existing one keeps its storage until it is
// moved.
type CephMonSpec struct {
	// Policy names the MaintenancePolicy, in the same namespace, of the Ceph cluster to which the mons belong. Each policy has at most
	// one CephMon.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy"`

	// Count is the least number of mons. A missing one is made; a superfluous one goes only by `lockkeeper migrate-mons`. An even
	// number survives the loss of no more mons than the odd number below it.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=15
	Count int32 `json:"count,omitempty"`

	// AllowMultiplePerNode lets mons share a node. Otherwise a required anti-affinity keeps them apart.
	// +optional
	AllowMultiplePerNode bool `json:"allowMultiplePerNode,omitempty"`

	// VolumeClaimTemplate is the storage of new mons, and of zones without a template of their own. Without it a mon has its store
	// under dataDirHostPath, and is bound to its node.
	// +optional
	VolumeClaimTemplate *MonVolumeClaimTemplate `json:"volumeClaimTemplate,omitempty"`

	// FailureDomainLabel is the label of nodes that names their zone: region, zone, hostname, or topology.rook.io/NAME of Rook's OSDs.
	// +optional
	// +kubebuilder:default="topology.kubernetes.io/zone"
	// +kubebuilder:validation:XValidation:rule="self in ['topology.kubernetes.io/region', 'topology.kubernetes.io/zone', 'kubernetes.io/hostname'] || self.matches('^topology[.]rook[.]io/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')",message="must be topology.kubernetes.io/region, topology.kubernetes.io/zone, kubernetes.io/hostname, or topology.rook.io/NAME such as topology.rook.io/rack"
	FailureDomainLabel string `json:"failureDomainLabel,omitempty"`

	// Zones are all zones in which mons may run, each with at most one mon. With more zones than mons some have none. Without
	// zones Kubernetes alone decides where mons run.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Zones []MonZone `json:"zones,omitempty"`

	// Placement says where mons may run, as in a CephCluster.
	// +optional
	Placement *MonPlacement `json:"placement,omitempty"`

	// PodTemplate is what the mons' pods have in common.
	// +required
	PodTemplate MonPodTemplate `json:"podTemplate"`

	// Ceph names the objects, in this namespace, that the mons' pods mount. The defaults are Rook's.
	// +optional
	// +kubebuilder:default={}
	Ceph MonObjects `json:"ceph,omitempty"`

	// DataDirHostPath is a folder of the nodes: for logs and crash reports, and for the store of a mon without a volume claim.
	// +optional
	// +kubebuilder:default="/var/lib/rook"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9_.-]+)+$') && !self.matches('/[.][.]?(/|$)')",message="must be an absolute path without \"..\" and without a slash at its end, such as /var/lib/rook"
	DataDirHostPath string `json:"dataDirHostPath,omitempty"`

	// HealthTimeout is how long a mon is out of quorum, without a break, until it counts as dead and is replaced.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be a duration between 1m and 168h, such as 10m"
	HealthTimeout *metav1.Duration `json:"healthTimeout,omitempty"`

	// Migrate says when mons are moved that are not as the spec says. Manual: by `lockkeeper migrate-mons`. Automatic: as soon as the
	// spec is changed.
	// +optional
	// +kubebuilder:default=Manual
	// +kubebuilder:validation:Enum=Manual;Automatic
	Migrate MonMigration `json:"migrate,omitempty"`
}

// MonMigration says when mons are moved.
type MonMigration string

// When mons are moved.
const (
	MigrateManual    MonMigration = "Manual"
	MigrateAutomatic MonMigration = "Automatic"
)

// MonVolumeClaimTemplate is a claim, of which storage class and resources are honoured. All else is refused by its name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.metadata)",message="metadata is not honoured: leave it out; each mon's claim is named after the mon"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.accessModes)",message="spec.accessModes is not honoured: leave it out; a mon's volume is ReadWriteOnce"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.volumeMode)",message="spec.volumeMode is not honoured: leave it out; a mon's volume is a file system"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.volumeName)",message="spec.volumeName is not honoured: leave it out; Kubernetes binds the volume"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.selector)",message="spec.selector is not honoured: leave it out; the storage class decides"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dataSource)",message="spec.dataSource is not honoured: leave it out; a mon begins with an empty store"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dataSourceRef)",message="spec.dataSourceRef is not honoured: leave it out; a mon begins with an empty store"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.volumeAttributesClassName)",message="spec.volumeAttributesClassName is not honoured: leave it out"
type MonVolumeClaimTemplate struct {
	// Metadata is not honoured.
	// +optional
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is the claim. Without storageClassName the default class is used, without a size 10Gi.
	// +optional
	// +kubebuilder:default={}
	Spec corev1.PersistentVolumeClaimSpec `json:"spec,omitempty"`
}

// MonZone is a zone in which a mon may run.
type MonZone struct {
	// Name is the value of failureDomainLabel on the zone's nodes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// VolumeClaimTemplate is the storage of the mon in this zone; by default that of all mons.
	// +optional
	VolumeClaimTemplate *MonVolumeClaimTemplate `json:"volumeClaimTemplate,omitempty"`
}

// MonPlacement is Rook's placement.
type MonPlacement struct {
	// +optional
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	// +optional
	PodAffinity *corev1.PodAffinity `json:"podAffinity,omitempty"`
	// +optional
	PodAntiAffinity *corev1.PodAntiAffinity `json:"podAntiAffinity,omitempty"`
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// +optional
	// +listType=atomic
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// MonPodTemplate is what all mon pods have in common. What runs in them, and on what storage, lockkeeper adds.
type MonPodTemplate struct {
	// Labels are added to those by which the pods are found.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Image has ceph-mon and a shell.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// +optional
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// HostNetwork gives a mon its node's address instead of that of a Service. Such a mon cannot leave its node.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Args are added to those of ceph-mon.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Args []string `json:"args,omitempty"`
}

// MonObjects are objects that the mons' pods mount. lockkeeper never reads the key.
type MonObjects struct {
	// Keyring is a Secret with the mons' keyring.
	// +optional
	// +kubebuilder:default={name: "rook-ceph-mons-keyring", key: "keyring"}
	Keyring KeyReference `json:"keyring,omitempty"`
	// Config is a ConfigMap with ceph.conf.
	// +optional
	// +kubebuilder:default={name: "rook-config-override", key: "config"}
	Config KeyReference `json:"config,omitempty"`
}

// CephMonStatus is written by the job that looks after the mons. MaxMonID, OutSince and Left are also its memory: they are
// written before what they describe is done.
type CephMonStatus struct {
	// ObservedGeneration is the spec's generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Quorum is "3/3": mons in quorum, of those in the monmap.
	// +optional
	Quorum string `json:"quorum,omitempty"`
	// AsSpec is "2/3": mons that are as the spec says, of those that it wants.
	// +optional
	AsSpec string `json:"asSpec,omitempty"`
	// Reason is the CamelCase reason of the present state, Message the same for people.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// AsOf is when this status was written.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// Mons are those of the monmap.
	// +optional
	// +listType=map
	// +listMapKey=name
	Mons []MonStatus `json:"mons,omitempty"`
	// Step is what is under way.
	// +optional
	Step *MonStep `json:"step,omitempty"`
	// EmptyZones are zones of the spec without a mon.
	// +optional
	// +listType=set
	EmptyZones []string `json:"emptyZones,omitempty"`
	// FatalZones are zones whose loss would take the quorum away.
	// +optional
	// +listType=set
	FatalZones []string `json:"fatalZones,omitempty"`
	// MaxMonID is the number of the last name that was given to a mon: 2 for "c". No name is given twice.
	// +optional
	MaxMonID *int32 `json:"maxMonID,omitempty"`
	// Left are volume claims and host paths of mons that have gone, until `lockkeeper clean-mons`.
	// +optional
	// +listType=atomic
	Left []MonStorageLeft `json:"left,omitempty"`
	// LeftAddresses are addresses of mons that have gone a short while ago, the last 15 at most. With hostNetwork no new mon gets one
	// of them.
	// +optional
	// +listType=atomic
	LeftAddresses []MonAddressLeft `json:"leftAddresses,omitempty"`
	// Warnings are what is allowed and probably not meant.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// MonStatus is one mon of the monmap.
type MonStatus struct {
	Name string `json:"name"`
	// Node is that of its pod, or while the pod has none, the last one.
	// +optional
	Node string `json:"node,omitempty"`
	// +optional
	Zone string `json:"zone,omitempty"`
	// Home is the zone of a mon that lockkeeper has not made, with the label by which it was found: "topology.kubernetes.io/zone=x".
	// It stays as it is while the mon is on the same node: labels of nodes change, and that moves no mon.
	// +optional
	Home string `json:"home,omitempty"`
	// Storage is "HostPath /var/lib/rook/mon-a", or "PVC rook-ceph-mon-d of class zone-x".
	// +optional
	Storage string `json:"storage,omitempty"`
	// Address is that of the monmap.
	// +optional
	Address string `json:"address,omitempty"`
	// +optional
	InQuorum bool `json:"inQuorum,omitempty"`
	// OutSince is since when it is out of quorum without a break.
	// +optional
	OutSince *metav1.Time `json:"outSince,omitempty"`
	// AsSpec: it is as the spec says. Otherwise Different says what is not.
	// +optional
	AsSpec bool `json:"asSpec,omitempty"`
	// +optional
	Different string `json:"different,omitempty"`
	// Adopted is set for a mon that lockkeeper has not made: a hash of the image and the resources that the spec had when
	// it was first seen. The mon is not restarted for those, but for others.
	// +optional
	Adopted string `json:"adopted,omitempty"`
}

// MonStep is one mon's coming, and if it replaces another one, that one's going.
type MonStep struct {
	// Kind is Add, Migrate, OneLess, FailOver, Remove, Restart or TidyUp.
	Kind string `json:"kind"`
	// Mon is the one that comes, or the one that is removed or restarted.
	Mon string `json:"mon"`
	// Replaces is the one that goes.
	// +optional
	Replaces string `json:"replaces,omitempty"`
	// Phase is how far it is, Message what it waits for.
	// +optional
	Phase string `json:"phase,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Generation of the spec by which the newcomer is made.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Started is when the newcomer was first about to be started. It may be in the monmap from then on.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`
	// Joined: the newcomer has been in quorum.
	// +optional
	Joined bool `json:"joined,omitempty"`
	// Undo is why the step is rolled back.
	// +optional
	Undo string `json:"undo,omitempty"`
}

// MonAddressLeft is the address of a mon that has gone.
type MonAddressLeft struct {
	Mon string `json:"mon"`
	// IP has no port.
	IP string `json:"ip"`
	// Since is when it was first seen that the mon had left the monmap.
	Since metav1.Time `json:"since"`
}

// MonStorageLeft is storage of a mon that has gone.
type MonStorageLeft struct {
	Mon string `json:"mon"`
	// Claim is the name of a PersistentVolumeClaim.
	// +optional
	Claim string `json:"claim,omitempty"`
	// Path is a folder on Node.
	// +optional
	Path string `json:"path,omitempty"`
	// +optional
	Node string `json:"node,omitempty"`
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}
