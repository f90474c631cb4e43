package starter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// TestTakePrecedence: a snapshot names the policy of any namespace that stands in the way of this one, so that its end
// wakes the keeper.
func TestTakePrecedence(t *testing.T) {
	of := func(namespace, name string, age time.Duration, fsid string, claimed bool) v1alpha1.MaintenancePolicy {
		p := v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			CreationTimestamp: metav1.NewTime(time.Unix(1_000_000, 0).Add(-age)),
		}}
		p.Spec.Ceph = &v1alpha1.CephSpec{
			Connection: v1alpha1.CephConnection{MonEndpoints: v1alpha1.KeyReference{Name: name, Key: "data"}},
		}
		p.Status.Ceph = &v1alpha1.CephClusterStatus{FSID: fsid, Claimed: claimed}
		return p
	}
	me := of("rook-ceph", "me", time.Hour, "f", true)
	for name, c := range map[string]struct {
		other         v1alpha1.MaintenancePolicy
		second, rival string
	}{
		"older, elsewhere":          {of("zoo", "ceph", 2*time.Hour, "f", true), "zoo/ceph", ""},
		"older, here":               {of("rook-ceph", "ceph", 2*time.Hour, "f", true), "ceph", ""},
		"older, means another Ceph": {of("zoo", "ceph", 2*time.Hour, "g", true), "", ""},
		"younger, elsewhere":        {of("zoo", "ceph", time.Minute, "f", true), "", "zoo/ceph"},
		"younger, stood aside":      {of("zoo", "ceph", time.Minute, "f", false), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := Take(Objects{Policy: &me, Policies: []v1alpha1.MaintenancePolicy{me, c.other}}, nil)
			assert.Equal(t, c.second, s.Second)
			assert.Equal(t, c.rival, s.Rival)
		})
	}
	changed := me.DeepCopy()
	changed.Status.Ceph.Claimed = false
	assert.True(t, matters(&me, changed), "others wait for it")
	changed = me.DeepCopy()
	changed.Status.Message = "closed"
	assert.False(t, matters(&me, changed))
}
