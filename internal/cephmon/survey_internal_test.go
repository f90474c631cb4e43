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
