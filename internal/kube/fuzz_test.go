package kube_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// FuzzLabels: a pod is an OSD's only if its label is that OSD's number, and nothing else.
func FuzzLabels(f *testing.F) {
	for _, s := range []string{"0", "7", "-1", "+1", "007", "1e3", "99999999999999999999", "x", "", " 1", "1\n", "٣"} {
		f.Add(s, "node-a")
	}
	f.Fuzz(func(t *testing.T, id, host string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"osd": id}}}
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: host}
		got := kube.StoragePod(pod, "osd")
		if got.OSD < 0 && got.OSD != storageview.NoOSD || got.Node != host {
			t.Fatalf("%q on %q became %+v", id, host, got)
		}
		if got.OSD != storageview.NoOSD {
			for _, r := range id {
				if (r < '0' || r > '9') && r != '+' {
					t.Fatalf("%q became osd.%d", id, got.OSD)
				}
			}
		}
	})
}

// FuzzTaints: only an autoscaler's own taints announce that a node is going.
func FuzzTaints(f *testing.F) {
	for _, s := range []string{
		"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption",
		"node.kubernetes.io/unschedulable", "DeletionCandidateOfClusterAutoscaler", "",
	} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, key, other string) {
		n := &corev1.Node{Spec: corev1.NodeSpec{
			Taints: []corev1.Taint{{Key: other}, {Key: key, Effect: corev1.TaintEffectNoSchedule}},
		}}
		if got := kube.RemovalTaint(n, time.Now()); got != "" && got != key && got != other {
			t.Fatalf("%q and %q became %q", other, key, got)
		} else if got != "" && got != kube.RemovalTaints[0] && got != kube.RemovalTaints[1] {
			t.Fatalf("%q announces nothing", got)
		}
	})
}
