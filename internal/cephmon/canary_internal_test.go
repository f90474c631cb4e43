package cephmon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// TestCanaryWithItsVolume: without zones the canary carries the claim, whose volume may be the disk of a node. When
// that node is gone or full the newcomer begins anew with another volume: it was never started, so nothing is lost.
func TestCanaryWithItsVolume(t *testing.T) {
	long, short := time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		claim     *time.Time // since when it is there; nil: it is not
		volume    string
		pod       time.Time
		runs      bool
		is, fresh bool // there is a claim afterwards; it is another one
	}{
		"no place, with a volume":          {claim: &long, volume: "pv", pod: long},
		"no place yet":                     {claim: &long, volume: "pv", pod: short, is: true},
		"no place with the latest volume":  {claim: &short, volume: "pv", pod: long, is: true},
		"no place, and no volume made":     {claim: &long, pod: long, is: true},
		"it runs":                          {claim: &long, volume: "pv", pod: long, runs: true, is: true},
		"the volume before it was dropped": {pod: long, is: true, fresh: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := threeMons()
			w.set.Namespace, w.set.Name = "ns", "mons"
			w.set.Spec.VolumeClaimTemplate = &v1alpha1.MonVolumeClaimTemplate{}
			canary := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: monspec.CanaryName("d")}}
			canary.Spec.Template.Labels = map[string]string{monspec.CanaryLabel: "d"}
			w.deployments = append(w.deployments, canary)
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Labels: canary.Spec.Template.Labels, CreationTimestamp: metav1.Time{Time: c.pod},
			}}
			if c.runs {
				pod.Spec.NodeName, pod.Status.Phase = "node-d", corev1.PodRunning
			}
			w.pods = append(w.pods, pod)
			api := fake.NewClientset()
			claims := api.CoreV1().PersistentVolumeClaims("ns")
			if c.claim != nil {
				claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
					Name: monspec.ResourceName("d"), Namespace: "ns", UID: "first", CreationTimestamp: metav1.Time{Time: *c.claim},
					Labels: map[string]string{kube.MonLabel: "d", monspec.CephMonLabel: "mons"},
				}}
				claim.Spec.VolumeName = c.volume
				w.claims = append(w.claims, claim)
				_, err := claims.Create(t.Context(), &claim, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			x := act{Mons: &Mons{typed: api}, world: w, work: monplan.Work{Kind: monplan.Add, Newcomer: "d"}}
			require.NoError(t, x.schedule(t.Context()))
			list, err := claims.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			if !c.is {
				require.Empty(t, list.Items)
				return
			}
			require.Len(t, list.Items, 1)
			require.Equal(t, c.fresh, list.Items[0].UID != "first")
		})
	}
}
