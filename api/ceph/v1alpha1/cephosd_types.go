package v1alpha1

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephOSD describes OSDs on hosts: one pod for each of them, made from one template and updated a batch at a time.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=lockkeeper
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 55",message="metadata.name must have at most 55 characters: pods carry it in the value of a label, as CephOSD-<name>"
// +kubebuilder:printcolumn:name="Updated",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Batch",type=string,JSONPath=`.status.batch.failureDomain`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.spec.updateDomain`,priority=1
// +kubebuilder:printcolumn:name="Not ready",type=integer,JSONPath=`.status.osds.notReady`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
type CephOSD struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CephOSDSpec `json:"spec"`
	// +optional
	Status CephOSDStatus `json:"status,omitempty"`
}

// CephOSDList is a list of them.
//
// +kubebuilder:object:root=true
type CephOSDList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CephOSD `json:"items"`
}

// CephOSDSpec says which OSDs there are, what their pods look like, and how a change of either is rolled out.
type CephOSDSpec struct {
	// Storage lists hosts with their OSDs. Every host of an element has every OSD of that element.
	// +required
	// +kubebuilder:validation:MaxItems=4096
	// +listType=atomic
	Storage []Storage `json:"storage"`

	// PodTemplate is a whole pod. Each OSD's is made from it: name and namespace are replaced; labels, annotations, the
	// host as a node affinity, and the environment variables OSD_DEVICE, OSD_DB_DEVICE and OSD_WAL_DEVICE are added.
	// +required
	PodTemplate PodTemplate `json:"podTemplate"`

	// UpdateDomain is where the OSDs of one batch may come from: OSD, one at a time; Host, Rack, Zone or another type of the
	// cluster's CRUSH map, in upper or lower case, all of one such unit together, as far as Ceph says that it can do without
	// them. A batch never leaves the failure domain that the pools rely on.
	// +optional
	// +kubebuilder:default=OSD
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.-]+$')",message="must be OSD, Host, or another type of the cluster's CRUSH map, such as Rack or Zone"
	UpdateDomain UpdateDomain `json:"updateDomain,omitempty"`

	// Policy names the MaintenancePolicy, in the same namespace, of the storage cluster to which the OSDs belong. It may be
	// left out where there is only one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy,omitempty"`

	// MaxParallel is how many OSDs a batch has at most. 0: as many of its update domain as Ceph lets go, up to 64.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxParallel int32 `json:"maxParallel,omitempty"`

	// Canary, if set, makes the first batch of a rollout a single OSD.
	// +optional
	Canary *Canary `json:"canary,omitempty"`

	// PauseBetween is how long a rollout rests between two batches.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="must be a duration between 0s and 168h, such as 5m"
	PauseBetween *metav1.Duration `json:"pauseBetween,omitempty"`

	// Windows are the times in which a batch of OSDs that work may begin. None: always. OSDs that are broken anyway are
	// replaced at any time, and a batch that has begun is brought to its end.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Windows []Window `json:"windows,omitempty"`

	// ProgressDeadline is how long a batch may take until its OSDs are ready and up; then the rollout halts.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="must be a duration between 10s and 24h, such as 10m"
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`

	// DeletionPolicy says what becomes of the OSDs when this object is deleted. Retain: their pods keep running. Delete:
	// they go with it.
	// +optional
	// +kubebuilder:default=Retain
	// +kubebuilder:validation:Enum=Retain;Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Paused: no batch begins, be its OSDs broken or not. A batch that has begun is brought to its end, and missing pods
	// still come back.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// Storage is a list of hosts and the OSDs that each of them has.
type Storage struct {
	// Hosts are names of nodes, as in their label kubernetes.io/hostname.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Hosts []string `json:"hosts"`
	// OSDs are those that each of the hosts has. A device has one use on a host.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=data
	OSDs []OSDDevices `json:"osds"`
}

// OSDDevices are the devices of one OSD, as paths on its host.
type OSDDevices struct {
	// Data is the OSD's main device. Together with the host it is what makes an OSD the same OSD.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Data string `json:"data"`
	// DB is a device of its own for RocksDB.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	DB string `json:"db,omitempty"`
	// WAL is a device of its own for the write-ahead log.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	WAL string `json:"wal,omitempty"`
}

// PodTemplate is a pod; apiVersion and kind may be left out.
type PodTemplate struct {
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// +optional
	Kind string `json:"kind,omitempty"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +required
	Spec corev1.PodSpec `json:"spec"`
}

// UpdateDomain is OSD, or a type of CRUSH's buckets: Host, Zone, or one that people made up. Case does not count. Which types a
// cluster has only the cluster knows.
type UpdateDomain string

// Valid tells whether it can be the name of a type of CRUSH's at all. The rule at the API server is the same.
func (d UpdateDomain) Valid() bool { return crushType.MatchString(string(d)) }

var crushType = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)

// DeletionPolicy says what becomes of the pods of a CephOSD that is deleted.
type DeletionPolicy string

// Deletion policies.
const (
	RetainOSDs DeletionPolicy = "Retain"
	DeleteOSDs DeletionPolicy = "Delete"
)

// Canary is one OSD that is updated before all others.
type Canary struct {
	// Soak is how long it has to run before the rollout goes on.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="must be a duration between 0s and 168h, such as 30m"
	Soak *metav1.Duration `json:"soak,omitempty"`
	// Approval: then the rollout waits until somebody approves.
	// +optional
	Approval bool `json:"approval,omitempty"`
}

// Window is a time that comes again and again.
type Window struct {
	// Schedule is when it opens, as in a crontab: minute, hour, day of month, month, day of week.
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ =@]+( [^ =@]+){4}$')",message="must be the five fields of a crontab, with one space between them: minute, hour, day of month, month, day of week; such as 0 22 * * 1-5"
	Schedule string `json:"schedule"`
	// Duration is how long it stays open.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be a duration between 1m and 168h, such as 6h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone is a name of the IANA's, such as Europe/Berlin; UTC if it is left out.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}
