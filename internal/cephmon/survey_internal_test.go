package cephmon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// node is one whose label kubernetes.io/hostname is another one than its name.
func node(name, zone string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name + "-host", corev1.LabelTopologyZone: zone,
	}}}
}

// monOn gives a world a mon with a Deployment, whose store is on a claim.
func (w *world) monOn(name string, change func(*corev1.PodSpec)) {
	d := appsv1.Deployment{}
	d.Spec.Template.Labels = map[string]string{"app": "rook-ceph-mon", kube.MonLabel: name}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "mon"}}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{
		Name: "store", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: monspec.ResourceName(name),
		}},
	}}
	if change != nil {
		change(&d.Spec.Template.Spec)
	}
	w.deployments = append(w.deployments, d)
}

func bound(to map[string]string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.NodeSelector = to }
}

// lookAt is what is seen of the mons, all of which are in quorum under the address 10.0.0.1.
func (w *world) lookAt(names ...string) []monplan.Mon {
	q := ceph.QuorumStatus{QuorumNames: names}
	for _, name := range names {
		m := ceph.Mon{Name: name}
		m.Public.Addresses = []ceph.MonAddress{{Type: "v2", Address: "10.0.0.1:3300"}}
		q.MonMap.Mons = append(q.MonMap.Mons, m)
	}
	return w.mons(q)
}

// TestNodeOfAMon: where a mon is, and where it was last while its pod waits for a node. The drain that has that node
// is known to have the mon.
func TestNodeOfAMon(t *testing.T) {
	pod := func(node string, leaves bool) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			"app": "rook-ceph-mon", kube.MonLabel: "d",
		}}}
		if p.Spec.NodeName = node; leaves {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		return p
	}
	for name, tt := range map[string]struct {
		template map[string]string // node selector
		pods     []corev1.Pod
		status   string // the node that the status has
		node     string // where the mon is
		zone     string
		drained  string
		bound    bool
	}{
		"it runs": {pods: []corev1.Pod{pod("a", false)}, status: "b", node: "a", zone: "x", drained: "drain/a"},
		"bound by the label": {
			template: map[string]string{corev1.LabelHostname: "a-host"}, node: "a", zone: "x", drained: "drain/a", bound: true,
		},
		"its pod leaves": {pods: []corev1.Pod{pod("a", true), pod("", false)}, status: "b", zone: "x", drained: "drain/a"},
		"its pod waits":  {pods: []corev1.Pod{pod("", false)}, status: "a", zone: "x", drained: "drain/a"},
		"waits for the lease, though its node is emptied": {
			pods: []corev1.Pod{pod("", false)}, status: "b", zone: "y", drained: "drain/b",
		},
		"waits for the lease": {pods: []corev1.Pod{pod("", false)}, status: "c", zone: "z"},
		"nobody knows":        {pods: []corev1.Pod{pod("", false)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := threeMons()
			w.nodes = []corev1.Node{node("a", "x"), node("b", "y"), node("c", "z")}
			w.policy.Status.Lease.Holders = []v1alpha1.LeaseClaim{{WorkflowID: "drain/a", Node: "a"}}
			w.policy.Status.Lease.Queue = []v1alpha1.LeaseClaim{
				{WorkflowID: "drain/b", Node: "b", Observing: true}, {WorkflowID: "drain/c", Node: "c"},
			}
			w.pods = tt.pods
			w.monOn("d", bound(tt.template))
			w.cephMon.Status.Mons = []v1alpha1.MonStatus{{Name: "d", Node: tt.status}}
			mon := w.lookAt("d")[0]
			assert.Equal(t, tt.node, mon.Node)
			assert.Equal(t, tt.zone, mon.Zone)
			assert.Equal(t, tt.drained, mon.Drain)
			assert.Equal(t, tt.bound, mon.Bound)
			assert.False(t, mon.NodeGone)
		})
	}
}

// TestVolumesOfNodes: a volume that is a disk of a node binds its mon to that node, also when the node is gone. One of
// a zone does not, however few nodes the zone has.
func TestVolumesOfNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		key, value, field string
		pod               string
		node              string
		bound, gone       bool
	}{
		"of a node":              {key: corev1.LabelHostname, value: "a-host", pod: "a", node: "a", bound: true},
		"while its pod waits":    {key: corev1.LabelHostname, value: "a-host", node: "a", bound: true},
		"of a node that is gone": {key: corev1.LabelHostname, value: "b-host", node: "b-host", bound: true, gone: true},
		"whose pod is still there": {
			key: corev1.LabelHostname, value: "b-host", pod: "b", node: "b", bound: true, gone: true,
		},
		"by the node's name":          {field: "metadata.name", value: "b", node: "b", bound: true, gone: true},
		"of a zone":                   {key: corev1.LabelTopologyZone, value: "x"},
		"of a zone without any nodes": {key: corev1.LabelTopologyZone, value: "y", pod: "b", node: "b", gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := threeMons()
			w.nodes, w.pods = []corev1.Node{node("a", "x")}, nil
			w.monOn("d", nil)
			pod := corev1.Pod{}
			pod.Labels, pod.Spec.NodeName = w.deployments[0].Spec.Template.Labels, tt.pod
			w.pods = []corev1.Pod{pod}
			claim := corev1.PersistentVolumeClaim{}
			claim.Name, claim.Spec.VolumeName = monspec.ResourceName("d"), "pv-1"
			w.claims = []corev1.PersistentVolumeClaim{claim}
			r := corev1.NodeSelectorRequirement{Operator: corev1.NodeSelectorOpIn, Values: []string{tt.value}}
			var term corev1.NodeSelectorTerm
			if r.Key = tt.key; tt.field != "" {
				r.Key = tt.field
				term.MatchFields = append(term.MatchFields, r)
			} else {
				term.MatchExpressions = append(term.MatchExpressions, r)
			}
			volume := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
			volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
			}
			w.volumes = []corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "pv-0"}}, volume}
			mon := w.lookAt("d")[0]
			assert.Equal(t, tt.node, mon.Node)
			assert.Equal(t, tt.bound, mon.Bound)
			assert.Equal(t, tt.gone, mon.NodeGone)
		})
	}
}

// TestWhoServesUnderAnotherAddress: a mon that is in quorum under another address than it was made for is another one.
func TestWhoServesUnderAnotherAddress(t *testing.T) {
	for address, alive := range map[string]bool{"[v2:10.0.0.1:3300]": true, "[v2:10.0.0.2:3300]": false, "": true} {
		w := threeMons()
		w.monOn("d", nil)
		w.deployments[0].Annotations = map[string]string{monspec.AddressAnnotation: address}
		assert.Equal(t, alive, w.lookAt("d")[0].Alive, "made for %q", address)
	}
}

// TestWhatAMonHasFromItsBeginning is known of those that lockkeeper has made. Others are as their makers wanted them.
func TestWhatAMonHasFromItsBeginning(t *testing.T) {
	w := threeMons()
	onPath := func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{
			{Name: "log", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data/ns/log"}}},
			{Name: "store", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data/mon-d"}}},
		}
		s.HostNetwork = true
	}
	w.monOn("d", onPath)
	assert.Nil(t, w.lookAt("d")[0].Fixed, "others have made it")
	w.deployments[0].Spec.Template.Labels[monspec.CephMonLabel] = "mons"
	assert.Equal(t, &monplan.Fixed{HostNetwork: true, DataDir: "/data"}, w.lookAt("d")[0].Fixed)
	w.deployments = nil
	w.monOn("d", nil)
	w.deployments[0].Spec.Template.Labels[monspec.CephMonLabel] = "mons"
	assert.Equal(t, &monplan.Fixed{}, w.lookAt("d")[0].Fixed, "its store is on a claim")
}

// TestMonsThatOthersRun: a mon without a Deployment is its owner's, unless its Deployment was just deleted.
func TestMonsThatOthersRun(t *testing.T) {
	controlled := func(kind, name string) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}
	}
	for want, owners := range map[string][]metav1.OwnerReference{
		"DaemonSet ceph-mon": controlled("DaemonSet", "ceph-mon"), "": controlled("ReplicaSet", "mon-d"),
		"a pod without a controller": nil,
	} {
		w := threeMons()
		w.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"app": "rook-ceph-mon", kube.MonLabel: "d"}, OwnerReferences: owners,
		}}}
		assert.Equal(t, want, w.lookAt("d")[0].RunBy)
		w.pods = nil
		assert.Empty(t, w.lookAt("d")[0].RunBy, "no pod of it is left")
	}
	assert.Equal(t, []string{
		"mon.a, mon.c of DaemonSet ceph-mon: lockkeeper counts what has no Deployment of its own, and does not move, " +
			"restart or replace it",
	}, runByOthers(monplan.Seen{Mons: []monplan.Mon{
		{Name: "a", RunBy: "DaemonSet ceph-mon"}, {Name: "b"}, {Name: "c", RunBy: "DaemonSet ceph-mon"},
	}}))
}
