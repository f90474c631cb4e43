package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file is about who may write the budgets that guard deletions.

// TestOnlyLockkeeperWritesItsBudgets, while the guard stands.
func TestOnlyLockkeeperWritesItsBudgets(t *testing.T) {
	const may, mayNot = true, false
	w := newGuardWorld(t, "budgets-guarded")
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: &budget.Spec{Quiet: true}})
	key := client.ObjectKey{Namespace: w.ns, Name: kube.DaemonBudgetName(guarding)}
	ours := func() *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{}
		require.NoError(t, server.Get(t.Context(), key, b))
		return b
	}
	deletes := func(c client.Client) error { return c.Delete(t.Context(), ours(), client.DryRunAll) }
	patched := func(patch string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Patch(t.Context(), ours(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		}
	}
	theirs := func(labels map[string]string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "theirs", Labels: labels},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			}, client.DryRunAll)
		}
	}
	for name, c := range map[string]struct {
		by  who
		do  func(client.Client) error
		may bool
	}{
		"a person deletes":              {person, deletes, mayNot},
		"the garbage collector deletes": {own("generic-garbage-collector"), deletes, mayNot},
		"a person deletes all": {person, func(c client.Client) error {
			return c.DeleteAllOf(t.Context(), ours(), client.InNamespace(w.ns), client.DryRunAll)
		}, mayNot},
		"the worker deletes":         {theWorker, deletes, may},
		"a person opens":             {person, patched(`{"spec":{"minAvailable":0}}`), mayNot},
		"a person narrows":           {person, patched(`{"spec":{"selector":{"matchLabels":{"a":"b"}}}}`), mayNot},
		"a person hides it":          {person, patched(`{"metadata":{"labels":{"lockkeeper.io/guards":null}}}`), mayNot},
		"a person takes labels away": {person, patched(`{"metadata":{"labels":{"lockkeeper.io/policy":null}}}`), mayNot},
		"a person unsays an alarm":   {person, patched(`{"metadata":{"annotations":{"lockkeeper.io/alarm":null}}}`), mayNot},
		"a person notes something":   {person, patched(`{"metadata":{"annotations":{"note":"mine"}}}`), may},
		"the object is rewritten": {own("storage-version-migrator"), func(c client.Client) error {
			return c.Update(t.Context(), ours(), client.DryRunAll)
		}, may},
		"its status follows": {own("disruption-controller"), func(c client.Client) error {
			b := ours()
			b.Status.DisruptionsAllowed = 1
			return c.Status().Update(t.Context(), b, client.DryRunAll)
		}, may},
		"a person makes one that guards": {person, theirs(map[string]string{kube.LabelGuards: kube.GuardsDeletions}), mayNot},
		"a person makes another":         {person, theirs(nil), may},
		"the worker makes one":           {theWorker, theirs(map[string]string{kube.LabelGuards: kube.GuardsDeletions}), may},
	} {
		t.Run(name, func(t *testing.T) {
			says, no := refused(t, c.do(w.as(c.by)))
			require.Equal(t, c.may, !no, says)
			if no {
				require.Contains(t, says, "decides which pods may be deleted, so lockkeeper alone writes it")
			}
		})
	}
	// Those that keep a number of pods are not among them, whoever writes them.
	create(t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "mgr", Labels: map[string]string{"app": "rook-ceph-mgr"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-mgr"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "rook-ceph-mgr"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "mgr", Image: "ceph:20"}}},
			},
		},
	})
	_, err := w.worker.ApplyStaticBudgets(t.Context(), activities.StaticBudgetsInput{Cluster: w.key()})
	require.NoError(t, err)
	require.Equal(t, []string{"lockkeeper-rook-ceph-mon", "lockkeeper-rook-ceph-osd", "lockkeeper-rook-ceph-osd-proved"},
		w.guardingBudgets())
	// One of an earlier version has no label yet; and one whose pods cannot be told apart must not have it.
	require.NoError(t, w.as(theWorker).Patch(t.Context(), ours(), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"lockkeeper.io/guards":null}}}`))))
	require.Len(t, w.guardingBudgets(), 2)
	_, others, err := w.worker.ReadBudgets(t.Context(), w.key())
	require.NoError(t, err)
	require.True(t, others, "the keeper must not take it for written")
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: &budget.Spec{MinAvailable: 2}})
	require.Equal(t, []string{"lockkeeper-rook-ceph-osd", "lockkeeper-rook-ceph-osd-proved"}, w.guardingBudgets())
	_, others, err = w.worker.ReadBudgets(t.Context(), w.key())
	require.NoError(t, err)
	require.False(t, others)
	// The watcher closes, with its own rights.
	watcher, err := kube.New(asAccount(config, "lockkeeper-watcher"))
	require.NoError(t, err)
	p, err := w.worker.MaintenancePolicy(t.Context(), w.key())
	require.NoError(t, err)
	require.NoError(t, watcher.Close(t.Context(), p, kube.WatcherOwner, time.Now(), "osd.1 is not ready"))
	require.Contains(t, ours().Annotations[kube.AlarmAnnotation], "osd.1 is not ready")
}

// guardingBudgets are those that decide deletions.
func (w guardWorld) guardingBudgets() (names []string) {
	w.Helper()
	var list policyv1.PodDisruptionBudgetList
	require.NoError(w, server.List(w.Context(), &list, client.InNamespace(w.ns),
		client.MatchingLabels{kube.LabelGuards: kube.GuardsDeletions}))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func bindingOf(namespace string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lockkeeper-guard-deletions-" + namespace},
	}
}
