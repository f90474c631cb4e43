package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestBudgetsPass: the policy in charge puts its budgets in the place of those that another one left, and of no other.
// At no request is a storage daemon or a mon under none of them.
func TestBudgetsPass(t *testing.T) {
	t.Parallel()
	closed := budget.Spec{MinAvailable: budget.Everything}
	for name, c := range map[string]struct {
		mine, theirs *v1alpha1.CephClusterStatus
		pass         bool
	}{
		"it stands aside":            {claimTo("f", true), claimTo("f", false), true},
		"it has not given up yet":    {claimTo("f", true), claimTo("f", true), false},
		"it never had a claim":       {claimTo("f", true), nil, false},
		"it means another":           {claimTo("f", true), claimTo("g", false), false},
		"this one has not claimed":   {claimTo("f", false), claimTo("f", false), false},
		"nobody knows what it means": {claimTo("", true), claimTo("", false), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine, theirs := named("mine", c.mine), named("theirs", c.theirs)
			left := []runtime.Object{
				markedBudget(theirs).of(theirs, closed), unmarkedBudget(theirs).of(theirs, closed),
				newBudget(theirs, MonBudgetName("theirs"), DaemonMon, MonSelector(theirs), closed),
			}
			world := []runtime.Object{
				&corev1.Pod{ObjectMeta: at("osd", map[string]string{"app": "rook-ceph-osd"})},
				&corev1.Pod{ObjectMeta: at("mon", map[string]string{"app": "rook-ceph-mon"})},
				&policyv1.PodDisruptionBudget{ObjectMeta: at("somebody-elses", nil), Spec: policyv1.PodDisruptionBudgetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}},
				}},
			}
			typed := fake.NewClientset(append(world, left...)...)
			cluster := NewFor(typed, fakeclient.NewClientBuilder().WithScheme(schemeOf(t)).
				WithObjects(mine, theirs).Build())
			budgets := func() map[string]int {
				out := map[string]int{}
				list, err := typed.Tracker().List(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"),
					policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "rook-ceph")
				require.NoError(t, err)
				for _, b := range list.(*policyv1.PodDisruptionBudgetList).Items { //nolint:forcetypeassert // of that kind
					out[b.Labels[LabelDaemon]]++
				}
				return out
			}
			typed.PrependReactor("*", "*", func(ktesting.Action) (bool, runtime.Object, error) {
				for daemon, n := range budgets() {
					require.Positive(t, n, daemon)
				}
				require.Len(t, budgets(), 4, "those of the OSDs, with and without a mark, of the mons, and somebody else's")
				return false, nil, nil
			})
			for range 2 { // and once more, since the first attempt may have ended in the middle
				out, err := cluster.ApplyBudgets(t.Context(), activities.BudgetInput{
					Cluster: storage.ClusterKey{Namespace: "rook-ceph", Name: "mine"},
					Specs:   budget.Specs{Daemons: closed, Unproved: &closed, Mons: &closed},
				})
				require.NoError(t, err)
				require.Equal(t, c.pass, out.Conflict == "", out.Conflict)
				for daemon, n := range budgets() {
					require.Equal(t, 1, n, daemon)
				}
			}
			_, err := typed.PolicyV1().PodDisruptionBudgets("rook-ceph").Get(t.Context(), DaemonBudgetName("mine"),
				metav1.GetOptions{})
			require.Equal(t, c.pass, err == nil)
		})
	}
}

func at(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "rook-ceph", Name: name, Labels: labels}
}

func claimTo(fsid string, held bool) *v1alpha1.CephClusterStatus {
	return &v1alpha1.CephClusterStatus{FSID: fsid, Claimed: held}
}

func named(name string, claim *v1alpha1.CephClusterStatus) *v1alpha1.MaintenancePolicy {
	return &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rook-ceph", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0)),
		},
		Spec:   v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}},
		Status: v1alpha1.MaintenancePolicyStatus{Ceph: claim},
	}
}

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return scheme
}
