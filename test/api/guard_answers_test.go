package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// This file is about what lockkeeper's own commands read of the guard: its answers, and how it is installed.

// TestTryDelete: `explain` passes on the guard's own sentence, and tells it from everybody else's.
func TestTryDelete(t *testing.T) {
	w := newGuardWorld(t, "try-delete")
	w.pod("x", osd("1", "x"))
	w.pod("web", labelled("app", "shop"))
	cluster, err := kube.New(config)
	require.NoError(t, err)

	d, err := cluster.TryDelete(t.Context(), w.ns, "x")
	require.NoError(t, err)
	require.Equal(t, kube.Deletion{
		Found: true, Node: "node-a", Daemon: "osd.1",
		Refused: "osd.1 has to wait for its turn: nothing is deleted until its failure domain opens, says " +
			"PodDisruptionBudget lockkeeper-rook-ceph-osd",
	}, withProved(d))
	d, err = cluster.TryDelete(t.Context(), w.ns, "web")
	require.NoError(t, err)
	require.Equal(t, kube.Deletion{Found: true, Node: "node-a"}, d)
	d, err = cluster.TryDelete(t.Context(), w.ns, "nobody")
	require.NoError(t, err)
	require.False(t, d.Found)

	cfg := rest.CopyConfig(config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "reader"}
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}},
	})
	reader, err := kube.New(cfg)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := reader.TryDelete(t.Context(), w.ns, "nobody")
		assert.NoError(c, err) // may read by now
	}, apiserver.Patience, 50*time.Millisecond)
	_, err = reader.TryDelete(t.Context(), w.ns, "x")
	require.True(t, apierrors.IsForbidden(err), "no right to delete is no answer of the guard: %v", err)

	require.NoError(t, server.Patch(t.Context(), bindingOf(w.ns),
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"validationActions":["Warn"]}}`))))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		d, err := cluster.TryDelete(t.Context(), w.ns, "x")
		assert.NoError(c, err)
		assert.Empty(c, d.Refused)
		assert.Contains(c, d.Warned, "osd.1 has to wait for its turn: nothing is deleted")
		assert.NotContains(c, d.Warned, "explain")
	}, apiserver.Patience, 50*time.Millisecond)
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "x"}, &corev1.Pod{}), "a dry run")
}

// withProved has either of the two budgets say what both do: who is asked first is a matter of chance.
func withProved(d kube.Deletion) kube.Deletion {
	const proved = "-proved"
	if n := len(d.Refused) - len(proved); n > 0 && d.Refused[n:] == proved {
		d.Refused = d.Refused[:n]
	}
	return d
}

// TestTheGuardAsItIsInstalled is what the doctor goes by.
func TestTheGuardAsItIsInstalled(t *testing.T) {
	w := newGuardWorld(t, "installed")
	g, err := w.clusterOfAPerson().DeletionGuard(t.Context())
	require.NoError(t, err)
	for _, policy := range kube.GuardPolicies {
		require.True(t, g.Has(policy))
		if policy == kube.GuardOfServers {
			b, ok := g.Binding(policy, "")
			require.True(t, ok)
			assert.Equal(t, []string{"Warn"}, b.Actions)
			continue
		}
		b, ok := g.Binding(policy, w.ns)
		require.True(t, ok)
		assert.Equal(t, []string{"Deny"}, b.Actions)
		_, ok = g.Binding(policy, "nowhere")
		require.False(t, ok)
	}
	b, _ := g.Binding(kube.GuardOfDeletions, w.ns)
	assert.Equal(t, w.ns, b.Reads)
	assert.Equal(t, "Allow", b.WithoutBudgets)
	for _, p := range g.Policies {
		assert.True(t, p.Knows(kube.Account{Namespace: "lockkeeper-system", Name: "lockkeeper-worker"}), p.Name)
		watcher := kube.Account{Namespace: "lockkeeper-system", Name: "lockkeeper-watcher"}
		assert.Equal(t, p.Name == kube.GuardOfBudgets || p.Name == kube.GuardOfOverrides, p.Knows(watcher), p.Name)
		none := p.Name == kube.GuardOfOverrides // of which no account of lockkeeper's is the subject
		assert.Equal(t, none, p.Knows(kube.Account{Namespace: "system", Name: "lockkeeper-worker"}), p.Name)
		assert.Equal(t, none, p.Knows(kube.Account{Namespace: "lockkeeper-system", Name: "worker"}), p.Name)
	}
	p, err := w.worker.MaintenancePolicy(t.Context(), storage.ClusterKey{Namespace: w.ns, Name: guarding})
	require.NoError(t, err)
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: &budget.Spec{MinAvailable: 2}})
	guards, err := w.clusterOfAPerson().GuardingBudgets(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{kube.DaemonOSD: true, kube.DaemonOSDProved: true, kube.DaemonMon: false}, guards)
}

func (w guardWorld) clusterOfAPerson() *kube.Cluster {
	w.Helper()
	c, err := kube.New(config)
	require.NoError(w, err)
	return c
}

// TestNothingOpensBeforeServersKnow: a server says by which budgets it decides. This one does not say whether there are
// others, so that budgets have to be as they are for a second.
func TestNothingOpensBeforeServersKnow(t *testing.T) {
	w := newGuardWorld(t, "servers")
	w.pod("x", osd("1", "x"))
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: &closed})
	_, no := refused(t, w.try(person, "x"))
	require.True(t, no)
	before, _, err := w.worker.ReadBudgets(t.Context(), w.key())
	require.NoError(t, err)
	opens := activities.BudgetInput{Cluster: w.key(), Specs: leavingOut("x"), Before: before}
	began := time.Now()
	r, err := w.worker.ApplyBudgets(t.Context(), opens)
	require.NoError(t, err)
	require.Empty(t, r.Late, "it waits for as long as it takes")
	require.True(t, r.Changed)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, w.try(person, "x"))
	}, apiserver.Patience, 10*time.Millisecond)
}

// TestTheGuardComesBack: an API server goes on reading budgets while nothing is guarded, so that it does not decide by
// old ones when something is again. It would not if no binding were left (kubernetes/kubernetes#130887).
func TestTheGuardComesBack(t *testing.T) {
	w := newGuardWorld(t, "comes-back")
	w.pod("x", osd("1", "x"))
	w.budgets(leavingOut("x"))
	require.NoError(t, w.try(person, "x"))
	for _, policy := range []string{kube.GuardOfDeletions, kube.GuardOfBudgets, kube.GuardOfOverrides} {
		require.NoError(t, server.DeleteAllOf(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{},
			client.MatchingFields{"metadata.name": policy + "-" + w.ns}))
	}
	time.Sleep(2 * time.Second) // it looks at what is bound once a second
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: &closed})
	require.NoError(t, w.try(person, "x"))
	w.bind("Deny")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, no := refused(t, w.try(person, "x"))
		assert.True(c, no)
	}, apiserver.Patience, 50*time.Millisecond)
	w.budgets(leavingOut("x"))
	require.NoError(t, w.try(person, "x"))
}
