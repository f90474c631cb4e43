package kube

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// longhornWorld is a namespace with one instance manager, Longhorn's budget over it, and a policy.
type longhornWorld struct {
	*testing.T
	*Cluster
	typed *fake.Clientset
}

var (
	longhornKey = storage.ClusterKey{Namespace: "longhorn-system", Name: "longhorn"}
	oneWriters  = []client.Object{
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: OneWriter}},
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: OneWriter + "-longhorn-system"}},
	}
)

func newLonghornWorld(t *testing.T, spec v1alpha1.LonghornSpec) *longhornWorld {
	t.Helper()
	policy := &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: longhornKey.Namespace, Name: longhornKey.Name, UID: "policy"},
		Spec:       v1alpha1.MaintenancePolicySpec{Longhorn: &spec},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: longhornKey.Namespace, Name: "instance-manager-a", UID: "pod",
		Labels: map[string]string{LonghornComponent: InstanceManager, LonghornNode: "node-a"},
	}}
	w := &longhornWorld{T: t, typed: fake.NewClientset(pod, longhornsBudget(false))}
	w.typed.PrependReactor("delete", "poddisruptionbudgets",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			w.neverBare(a.(clienttesting.DeleteAction).GetName())
			return false, nil, nil
		})
	w.typed.PrependReactor("create", "poddisruptionbudgets",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			b := a.(clienttesting.CreateAction).GetObject().(*policyv1.PodDisruptionBudget)
			b.UID, b.Generation = types.UID("uid of "+b.Name), 1
			return false, nil, nil
		})
	w.Cluster = NewFor(w.typed, fakeclient.NewClientBuilder().WithScheme(Scheme).WithObjects(policy).Build())
	return w
}

// longhornsBudget is that of the instance manager, as Longhorn makes it, or as the API server empties it.
func longhornsBudget(empty bool) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: longhornKey.Namespace, Name: "instance-manager-a", UID: "theirs", Generation: 1,
		},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{LonghornComponent: InstanceManager, LonghornNode: "node-a"},
		}},
	}
	if empty {
		b.Spec.Selector.MatchExpressions = nothing().MatchExpressions
	}
	return b
}

// neverBare: before a budget goes, the pod is under another one.
func (w *longhornWorld) neverBare(goes string) {
	w.Helper()
	list, err := w.typed.Tracker().List(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"),
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), longhornKey.Namespace)
	require.NoError(w, err)
	for _, b := range list.(*policyv1.PodDisruptionBudgetList).Items {
		if b.Name != goes && !SelectsNothing(&b) {
			return
		}
	}
	require.Equal(w, "", goes, "nothing is left over the instance manager")
}

func (w *longhornWorld) budgets() []policyv1.PodDisruptionBudget {
	w.Helper()
	list, err := w.typed.PolicyV1().PodDisruptionBudgets(longhornKey.Namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	return list.Items
}

func (w *longhornWorld) names() (names []string) {
	w.Helper()
	for _, b := range w.budgets() {
		names = append(names, b.Name)
	}
	return names
}

// oneWriterIs installs the admission policy, or takes it away.
func (w *longhornWorld) oneWriterIs(installed bool) {
	w.Helper()
	for _, o := range oneWriters {
		o = o.DeepCopyObject().(client.Object)
		if installed {
			require.NoError(w, w.api.Create(w.Context(), o))
		} else {
			require.NoError(w, w.api.Delete(w.Context(), o))
		}
	}
}

// longhornMakes has Longhorn make its budget again.
func (w *longhornWorld) longhornMakes(empty bool) {
	w.Helper()
	_, err := w.typed.PolicyV1().PodDisruptionBudgets(longhornKey.Namespace).Create(w.Context(), longhornsBudget(empty),
		metav1.CreateOptions{})
	require.NoError(w, err)
}

// apply has the budgets say that nobody may go.
func (w *longhornWorld) apply() (activities.BudgetResult, error) {
	quiet := budget.Spec{Quiet: true}
	return w.ApplyBudgets(w.Context(), activities.BudgetInput{
		Cluster: longhornKey, Specs: budget.Specs{Daemons: quiet, Unproved: &quiet},
	})
}

// saysHandedBack tells whether one of ours says since when Longhorn is to make its own.
func (w *longhornWorld) saysHandedBack() bool {
	w.Helper()
	return slices.ContainsFunc(w.budgets(), func(b policyv1.PodDisruptionBudget) bool {
		return b.Annotations[handedBack] != ""
	})
}

func (w *longhornWorld) remove() error {
	return w.RemoveBudgets(w.Context(), longhornKey, func(int) {}, func() error { return nil })
}

var (
	oursAlone  = []string{"lockkeeper-longhorn-instance-manager", "lockkeeper-longhorn-instance-manager-proved"}
	theirs     = "instance-manager-a"
	withTheirs = append([]string{theirs}, oursAlone...)
)

// TestHandOver: the budgets over instance managers go from Longhorn to lockkeeper and back, by what is installed.
func TestHandOver(t *testing.T) {
	w := newLonghornWorld(t, v1alpha1.LonghornSpec{})
	r, err := w.apply()
	require.NoError(t, err)
	require.Contains(t, r.Conflict, "install deploy/longhorn/one-writer.yaml")
	require.Contains(t, r.Conflict, "before Kubernetes 1.36 set spec.longhorn.budgetsEmptiedBy: Worker")
	require.Equal(t, []string{theirs}, w.names(), "Longhorn's own decide")

	w.oneWriterIs(true)
	r, err = w.apply()
	require.NoError(t, err)
	require.Empty(t, r.Conflict)
	require.Equal(t, oursAlone, w.names())
	require.Len(t, r.Book, 2)
	w.longhornMakes(true)
	_, err = w.apply()
	require.NoError(t, err)
	require.Equal(t, withTheirs, w.names(), "an empty one may stay")
	_, others, err := w.ReadBudgets(t.Context(), longhornKey)
	require.NoError(t, err)
	require.False(t, others, "and is none that counts")

	require.ErrorIs(t, w.remove(), errStillOneWriter)
	require.Equal(t, withTheirs, w.names())

	w.oneWriterIs(false)
	_, err = w.apply()
	require.ErrorIs(t, err, errNotCovered)
	require.Equal(t, oursAlone, w.names(), "Longhorn's empty one is to be made anew")
	_, err = w.apply()
	require.ErrorIs(t, err, errNotCovered)
	require.True(t, w.saysHandedBack())
	w.oneWriterIs(true) // somebody thinks better of it: the time begins anew when it is handed back again
	_, err = w.apply()
	require.NoError(t, err)
	require.False(t, w.saysHandedBack())
	w.oneWriterIs(false)
	_, err = w.apply()
	require.ErrorIs(t, err, errNotCovered)
	w.longhornMakes(false)
	r, err = w.apply()
	require.NoError(t, err)
	require.Contains(t, r.Conflict, "Longhorn's own budgets decide")
	require.Equal(t, []string{theirs}, w.names())
}

// TestEmptiedByWorker: where the API server empties nothing the worker does, once ours are there, and each that
// Longhorn makes anew. What a person does to one meanwhile, or Longhorn, is not overwritten.
func TestEmptiedByWorker(t *testing.T) {
	w := newLonghornWorld(t, v1alpha1.LonghornSpec{BudgetsEmptiedBy: v1alpha1.EmptiedByWorker})
	full := func() (n int) {
		for _, b := range w.budgets() {
			if !ours(&b) && (!SelectsNothing(&b) || b.Spec.MinAvailable.IntValue() != 0) {
				n++
			}
		}
		return n
	}
	for range 2 {
		r, err := w.apply()
		require.NoError(t, err)
		require.Empty(t, r.Conflict)
		require.Equal(t, withTheirs, w.names())
		require.Zero(t, full())
		require.NoError(t, w.typed.PolicyV1().PodDisruptionBudgets(longhornKey.Namespace).Delete(t.Context(), theirs,
			metav1.DeleteOptions{}))
		w.longhornMakes(false)
	}
	_, others, err := w.ReadBudgets(t.Context(), longhornKey)
	require.NoError(t, err)
	require.True(t, others, "it is full, so that the keeper writes the budgets")
	stale := *longhornsBudget(false)
	stale.Generation = 7
	err = w.empty(t.Context(), []policyv1.PodDisruptionBudget{stale}, longhorns)
	require.ErrorContains(t, err, "empty budget instance-manager-a of Longhorn")
	require.Equal(t, 1, full(), "it is another one by now")

	_, err = w.apply()
	require.NoError(t, err)
	require.ErrorIs(t, w.remove(), errNotCovered)
	require.Equal(t, oursAlone, w.names(), "Longhorn's empty one is to be made anew")
	w.longhornMakes(false)
	require.NoError(t, w.remove())
	require.Equal(t, []string{theirs}, w.names())
}

// TestAPolicyThatIsDeletedEmptiesNothing: Longhorn's budgets are to come back then.
func TestAPolicyThatIsDeletedEmptiesNothing(t *testing.T) {
	p := &v1alpha1.MaintenancePolicy{Spec: v1alpha1.MaintenancePolicySpec{
		Longhorn: &v1alpha1.LonghornSpec{BudgetsEmptiedBy: v1alpha1.EmptiedByWorker},
	}}
	require.True(t, emptiedByWorker(p))
	now := metav1.Now()
	p.DeletionTimestamp = &now
	require.False(t, emptiedByWorker(p))
}

// TestHandBackWithoutABudget: Longhorn makes none for an instance manager that it lets go. Ours go when it has had the
// time, also if somebody dies between one and the other.
func TestHandBackWithoutABudget(t *testing.T) {
	w := newLonghornWorld(t, v1alpha1.LonghornSpec{})
	w.oneWriterIs(true)
	_, err := w.apply()
	require.NoError(t, err)
	w.oneWriterIs(false)
	require.ErrorIs(t, w.remove(), errNotCovered)
	require.Equal(t, oursAlone, w.names())
	w.typed.Fake.PrependReactor("list", "poddisruptionbudgets",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			list, err := w.typed.Tracker().List(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"),
				policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), longhornKey.Namespace)
			budgets := list.(*policyv1.PodDisruptionBudgetList)
			for i := range budgets.Items {
				if a := budgets.Items[i].Annotations; a[handedBack] != "" {
					a[handedBack] = time.Now().Add(-2 * remakesWithin).UTC().Format(time.RFC3339)
				}
			}
			return true, budgets, err
		})
	deletions := 0
	w.typed.Fake.PrependReactor("delete", "poddisruptionbudgets",
		func(a clienttesting.Action) (bool, runtime.Object, error) { // here the last one may go
			if deletions++; deletions == 2 {
				return true, nil, errors.New("the connection was lost")
			}
			return true, nil, w.typed.Tracker().Delete(a.GetResource(), a.GetNamespace(),
				a.(clienttesting.DeleteAction).GetName())
		})
	require.ErrorContains(t, w.remove(), "the connection was lost")
	require.Len(t, w.names(), 1)
	require.NoError(t, w.remove())
	require.Empty(t, w.names())
}
