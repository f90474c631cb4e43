// Package storageview joins what Ceph says of its OSDs with what Kubernetes says of their pods and nodes into one
// storage.View. The two are not read atomically, so the join takes the union of their bad news: an OSD counts as down
// when either says so, and what does not fit together is a problem that keeps everything closed. It is pure.
package storageview

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// ReplacementKey is the label or annotation that Rook puts on an OSD's Deployment while the OSD's disk is replaced.
const ReplacementKey = "osd.rook.io/replace-in-progress"

// NoOSD is Pod.OSD of a pod whose label does not name an OSD.
const NoOSD = -1

// Input is what one observation read.
type Input struct {
	At time.Time // when it was read

	Map  *ceph.OSDMap
	Tree *failuredomain.Tree // of the CRUSH map that belongs to Map

	Pods  []Pod
	Nodes []Node
	Mons  Mons

	IDLabel string // the pod label with the OSD's number
	// FailureDomainLabel is the pod label with the failure domain's name; "{type}" in it stands for the CRUSH type.
	FailureDomainLabel string
	ToleratedPools     []string
	Proof              *storage.CleanProof // nil: none
	// LastChange and Departed are the ChangeEpoch and the Departed of the View before; 0 and nil: there was none.
	LastChange int64
	Departed   map[string]int64
	Interest   Interest
}

// Pod is one pod that the policy's selector selects as an OSD.
type Pod struct {
	Name  string
	OSD   int // NoOSD without a label that says so
	State storage.PodState
	// Node is spec.nodeName, or the name or the hostname of the one node that its node selector or its required affinity
	// pins it to. "": not known.
	Node   string
	Labels map[string]string
	// Version is the object's resourceVersion: any change of the pod makes it another one.
	Version string
	// UID and Restarts, of all its containers, tell this very pod and its processes from any other.
	UID      string
	Restarts int
	// Managed: a controller stands behind it.
	Managed bool
	// Replacing: the pod or its Deployment carries ReplacementKey as an annotation, or the Deployment as a label.
	Replacing bool
	// LetGo: a person has let this very pod go out of turn.
	LetGo bool
}

func (p Pod) replacing() bool {
	_, labelled := p.Labels[ReplacementKey]
	return p.Replacing || labelled
}

// Node is one Kubernetes node.
type Node struct {
	Name          string
	Hostname      string // its label kubernetes.io/hostname; "": the same as its name
	Unschedulable bool
	// RemovalTaint is the taint with which an autoscaler announces its removal: ToBeDeletedByClusterAutoscaler,
	// karpenter.sh/disrupted.
	RemovalTaint string
	NotReady     bool
}

// Interest names failure domains and nodes that the View must describe even when all is well there.
type Interest struct {
	Domains []string
	Nodes   []string
	// Hosts are wanted in View.Hosts or View.Gone. One with an ID is looked for by it, whatever it is called now.
	Hosts []storage.Host
}
