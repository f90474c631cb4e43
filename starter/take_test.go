package starter

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// TestTakeASecondPod: a pod beside the ready one is seen to come and to go, whatever becomes of it. A pod that ended is
// nobody's.
func TestTakeASecondPod(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "3"}},
			Spec:       corev1.PodSpec{NodeName: "node-b"},
			Status: corev1.PodStatus{
				Phase:      phase,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			},
		}
	}
	policy := &v1alpha1.MaintenancePolicy{Spec: v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}}}
	serves := pod("serves", corev1.PodRunning, corev1.ConditionTrue)
	for name, c := range map[string]struct {
		pods []corev1.Pod
		want bool
	}{
		"alone":            {[]corev1.Pod{serves}, false},
		"one waits beside": {[]corev1.Pod{serves, pod("waits", corev1.PodPending, corev1.ConditionFalse)}, true},
		"in any order":     {[]corev1.Pod{pod("waits", corev1.PodPending, corev1.ConditionFalse), serves}, true},
		"one has ended":    {[]corev1.Pod{serves, pod("ended", corev1.PodFailed, corev1.ConditionFalse)}, false},
		"none is ready": {[]corev1.Pod{
			pod("waits", corev1.PodPending, corev1.ConditionFalse),
			pod("too", corev1.PodPending, corev1.ConditionFalse),
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Take(Objects{Policy: policy, Pods: c.pods}, nil)
			assert.Equal(t, c.want, s.OSDs["osd.3"].Beside)
		})
	}
}

// TestThePodOfAMonThatHasLeft: the keeper hears when it is told to end, which no Deployment and no readiness tells.
// Until then it may go, and the budget of the mons leaves it out.
func TestThePodOfAMonThatHasLeft(t *testing.T) {
	pod := func(mon string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "mon-" + mon, Labels: map[string]string{"app": "rook-ceph-mon", kube.MonLabel: mon},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	policy := &v1alpha1.MaintenancePolicy{Spec: v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}}}
	before := Take(Objects{Policy: policy, Pods: []corev1.Pod{pod("c"), pod("a")}}, nil)
	assert.Equal(t, "a c", before.Daemons["mon"].Mons)
	ends := pod("c")
	ends.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	now := Take(Objects{Policy: policy, Pods: []corev1.Pod{ends, pod("a")}}, &before)
	assert.Equal(t, `mon: there are pods of "a" instead of "a c"`, Decide(&before, now).Hint.Reason)
}

// TestForgottenTaint: an autoscaler's taint that is an hour old is one that was forgotten, and the watcher looks again
// when one comes to that age.
func TestForgottenTaint(t *testing.T) {
	set := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	n := &corev1.Node{Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: leaving.RemovalTaint, Value: strconv.FormatInt(set.Unix(), 10)}},
	}}
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Conditions = ready
	expires := set.Add(time.Hour)
	young := nodeOf(n, expires.Add(-time.Second), 0)
	assert.Equal(t, Node{Tainted: leaving.RemovalTaint, Expires: expires}, young)
	assert.Equal(t, expires, nextExpiry(map[string]Node{"a": {Cordoned: true}, "b": young}))
	assert.Zero(t, nodeOf(n, expires, 0), "in service")
	n.Spec.Taints[0].Value = "yesterday"
	assert.Equal(t, Node{Tainted: leaving.RemovalTaint}, nodeOf(n, expires, 0), "a time that cannot be read counts")
}
