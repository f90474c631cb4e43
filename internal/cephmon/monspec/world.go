package monspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/lockkeeper/lockkeeper/internal/brief"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

// This file compares a CephMon with the cluster that it is meant for, before anything is changed. It decides nothing
// that the scheduler decides: a node that is cordoned, not ready or full today may take a mon tomorrow. What no change
// of a node's state would mend is refused.

// World is what there is in the Kubernetes cluster, and in Ceph.
type World struct {
	Nodes   []corev1.Node
	Classes []storagev1.StorageClass
	Volumes []corev1.PersistentVolume
	// Others are further CephMons that name the same policy.
	Others []string
	Mons   quorum.Map
	// Settled are the zones that have a mon as the spec says. They need no further volume.
	Settled []string
	// New is how many mons are to be made where there are no zones.
	New int
}

// Against is what cannot work in this world, and what is allowed and probably not meant.
func (s Set) Against(w World) (refused []*input.Error, warnings []string) {
	if len(w.Others) > 0 {
		refused = append(refused, input.Wrong("spec.policy", s.Spec.Policy,
			"must have one CephMon only, and "+brief.List(w.Others, mostNamed)+" name it, too"))
	}
	if err := s.Shrinking(w.Mons); err != nil {
		refused = append(refused, err)
	}
	warnings = s.Warnings()
	allowed, err := s.allowed(w.Nodes)
	if err != nil {
		return append(refused, err), warnings
	}
	placeRefused := s.placeRefusals(w.Nodes, allowed)
	refused = append(refused, placeRefused...)
	for _, zone := range s.storageZones() {
		more, warn := s.storageAgainst(zone, w, allowed, len(placeRefused) > 0)
		refused, warnings = append(refused, more...), append(warnings, warn...)
	}
	return distinct(refused), slices.Compact(warnings)
}

const mostNamed = 8 // names in one error

// storageZones are the zones whose storage is looked at: all of them, or "" where there are none.
func (s Set) storageZones() []string {
	if len(s.Spec.Zones) == 0 {
		return []string{""}
	}
	return s.zoneNames()
}

// allowed are the nodes that the placement lets mons run on, if they were schedulable.
func (s Set) allowed(nodes []corev1.Node) (out []corev1.Node, wrong *input.Error) {
	pod := &corev1.Pod{}
	if p := s.Spec.Placement; p != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: p.NodeAffinity}
		pod.Spec.Tolerations = p.Tolerations
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	for i := range nodes {
		node := &nodes[i]
		fits, err := required.Match(node)
		if err != nil {
			return nil, input.Wrong("spec.placement.nodeAffinity", "", "must be a node affinity: "+err.Error())
		}
		if fits && tolerates(pod.Spec.Tolerations, node) {
			out = append(out, *node)
		}
	}
	return out, nil
}

// Allows tells whether the placement lets mons run on a node, if it were schedulable.
func (s Set) Allows(node *corev1.Node) bool {
	nodes, wrong := s.allowed([]corev1.Node{*node})
	return wrong == nil && len(nodes) > 0
}

// tolerates leaves out the taints by which Kubernetes says in what state a node is.
func tolerates(tolerations []corev1.Toleration, node *corev1.Node) bool {
	lasting := func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}
	_, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, tolerations,
		lasting, false)
	return !untolerated
}

// placeRefusals is about nodes and zones.
func (s Set) placeRefusals(nodes, allowed []corev1.Node) (refused []*input.Error) {
	count := strconv.Itoa(int(s.Spec.Count))
	if len(s.Spec.Zones) == 0 {
		if !s.Spec.AllowMultiplePerNode && int(s.Spec.Count) > len(allowed) {
			refused = append(refused, input.Wrong("spec.count", count, fmt.Sprintf(
				"must be at most %d: a node has at most one mon, and spec.placement allows %d of %d nodes", len(allowed),
				len(allowed), len(nodes))))
		}
		return refused
	}
	label := s.Label()
	known := zonesOf(nodes, label)
	if len(known) == 0 {
		return append(refused, input.Wrong("spec.failureDomainLabel", label, "must be a label of some node, and none has it"))
	}
	can := 0
	reachable := zonesOf(allowed, label)
	for i, name := range s.zoneNames() {
		switch field := fmt.Sprintf("spec.zones[%d].name", i); {
		case !slices.Contains(known, name):
			refused = append(refused, input.Wrong(field, name,
				"must be a value of label "+label+" of some node: "+brief.List(known, mostNamed)))
		case slices.Contains(reachable, name):
			can++
		}
	}
	if len(refused) == 0 && int(s.Spec.Count) > can {
		refused = append(refused, input.Wrong("spec.count", count, fmt.Sprintf(
			"must be at most %d: a zone has at most one mon, and spec.placement allows nodes of %d of the zones", can, can)))
	}
	return refused
}

// zonesOf are the values of a label, sorted.
func zonesOf(nodes []corev1.Node, label string) (zones []string) {
	for i := range nodes {
		if zone := nodes[i].Labels[label]; zone != "" {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// storageAgainst is about the storage of a zone; zone is "" without zones. unplaced: something was said of zones
// already, and that no volume reaches one of them is no news.
func (s Set) storageAgainst(
	zone string, w World, allowed []corev1.Node, unplaced bool,
) (refused []*input.Error, warnings []string) {
	storage := s.Storage(zone)
	if !storage.Claim {
		return nil, nil
	}
	field := s.templateField(zone) + ".spec.storageClassName"
	class, wrong := classOf(field, storage, w.Classes)
	if wrong != nil {
		return []*input.Error{wrong}, nil
	}
	if class == nil { // "": volumes that belong to no class
		return nil, nil
	}
	if mode := class.VolumeBindingMode; mode == nil || *mode != storagev1.VolumeBindingWaitForFirstConsumer {
		const why = "its volumes are bound before the scheduler has found a node, so a mon may never start"
		if zone != "" {
			return []*input.Error{input.Wrong(field, class.Name,
				"must be a StorageClass with volumeBindingMode WaitForFirstConsumer: "+why)}, nil
		}
		warnings = append(warnings, fmt.Sprintf("%s: StorageClass %s has not volumeBindingMode WaitForFirstConsumer: %s",
			field, class.Name, why))
	}
	if class.Provisioner == noProvisioner && !unplaced && !slices.Contains(w.Settled, zone) {
		if err := s.staticAgainst(field, zone, class, storage, w, allowed); err != nil {
			refused = append(refused, err)
		}
	}
	return refused, warnings
}

// noProvisioner is the name that stands for volumes which a person makes.
const noProvisioner = "kubernetes.io/no-provisioner"

// classOf is the class of a claim; nil without an error: none.
func classOf(field string, st Storage, classes []storagev1.StorageClass) (*storagev1.StorageClass, *input.Error) {
	var names []string
	for i := range classes {
		class := &classes[i]
		names = append(names, class.Name)
		isDefault := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
		if st.Class != nil && class.Name == *st.Class || st.Class == nil && isDefault {
			return class, nil
		}
	}
	slices.Sort(names)
	switch {
	case st.Class == nil:
		return nil, input.Wrong(field, "", "is required, since there is no default StorageClass: "+
			brief.List(names, mostNamed))
	case *st.Class == "":
		return nil, nil
	}
	return nil, input.Wrong(field, *st.Class, "must be a StorageClass: "+brief.List(names, mostNamed))
}

// staticAgainst looks for volumes that a person has made.
func (s Set) staticAgainst(
	field, zone string, class *storagev1.StorageClass, st Storage, w World, allowed []corev1.Node,
) *input.Error {
	need, have := 1, 0
	if zone == "" {
		need = w.New
	}
	for i := range w.Volumes {
		if v := &w.Volumes[i]; v.Spec.StorageClassName == class.Name && free(v, st) && s.reaches(v, zone, allowed) {
			have++
		}
	}
	if have >= need {
		return nil
	}
	size := st.Size()
	where, count := "", fmt.Sprintf("%d free volumes", need)
	if zone != "" {
		where = " that nodes of zone " + zone + " can use"
	}
	if need == 1 {
		count = "a free volume"
	}
	return input.Wrong(field, class.Name, fmt.Sprintf(
		"must have %s of at least %s%s, since nothing makes any: there are %d", count, size.String(), where, have))
}

func free(v *corev1.PersistentVolume, st Storage) bool {
	capacity, size := v.Spec.Capacity[corev1.ResourceStorage], st.Size()
	block := v.Spec.VolumeMode != nil && *v.Spec.VolumeMode == corev1.PersistentVolumeBlock
	return v.Spec.ClaimRef == nil && v.DeletionTimestamp == nil && capacity.Cmp(size) >= 0 && !block &&
		slices.Contains(v.Spec.AccessModes, corev1.ReadWriteOnce)
}

// reaches tells whether an allowed node of the zone can use the volume.
func (s Set) reaches(v *corev1.PersistentVolume, zone string, allowed []corev1.Node) bool {
	return slices.ContainsFunc(allowed, func(n corev1.Node) bool {
		if zone != "" && n.Labels[s.Label()] != zone {
			return false
		}
		if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
			return true
		}
		terms, err := nodeaffinity.NewNodeSelector(v.Spec.NodeAffinity.Required)
		return err == nil && terms.Match(&n)
	})
}

// distinct leaves out what was said already: zones share the template for all.
func distinct(errors []*input.Error) (out []*input.Error) {
	for _, e := range errors {
		if !slices.ContainsFunc(out, func(o *input.Error) bool { return *o == *e }) {
			out = append(out, e)
		}
	}
	return out
}
