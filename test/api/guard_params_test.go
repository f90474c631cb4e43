package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// This file is about the budgets that the guard reads, and about namespaces.

// TestWhatTheBudgetsSay: what lockkeeper opens for evictions is open for deletions, and a refusal says why.
func TestWhatTheBudgetsSay(t *testing.T) {
	w := newGuardWorld(t, "what-budgets-say")
	mon := func(id string) podOption {
		return func(p *corev1.Pod) {
			labelled("app", "rook-ceph-mon", "ceph_daemon_id", id)(p)
			containers("mon", running)(p)
		}
	}
	w.pod("x", osd("1", "x"))
	w.pod("x-proved", osd("2", "x"), labelled(storageview.MarkLabel, "any"))
	w.pod("y", osd("3", "y"))
	w.pod("y-proved", osd("4", "y"), labelled(storageview.MarkLabel, "any"))
	w.pod("mon-a", mon("a"))
	w.pod("mon-b", mon("b"))
	w.pod("nameless", labelled("app", "rook-ceph-osd"))
	all := []string{"x", "x-proved", "y", "y-proved", "mon-a", "mon-b", "nameless"}
	closedMons, quiet := &budget.Spec{MinAvailable: budget.Everything}, budget.Spec{Quiet: true}
	open := leavingOut("x")
	open.Mons = &budget.Spec{MinAvailable: budget.Everything, Key: kube.MonLabel, Except: []string{"a"}}
	half := leavingOut("x")
	half.Daemons = budget.Spec{MinAvailable: budget.Everything}
	for _, c := range []struct {
		name  string
		specs budget.Specs
		may   []string
		says  map[string]string
	}{
		{
			"at rest, although one eviction is allowed",
			budget.Specs{Daemons: budget.Spec{MinAvailable: 2}, Unproved: &quiet, Mons: &quiet},
			nil,
			map[string]string{
				"x-proved": "osd.2 has to wait for its turn: nothing is deleted until its failure domain opens, says " +
					"PodDisruptionBudget lockkeeper-rook-ceph-osd",
				"mon-a":    "mon.a has to wait for its turn: nothing is deleted until its failure domain opens",
				"nameless": "pod nameless has to wait for its turn",
				"y":        "To see what it waits for: lockkeeper -n what-budgets-say explain pod/y",
			},
		},
		{
			"closed",
			budget.Specs{Daemons: closed, Unproved: &closed, Mons: closedMons},
			nil,
			map[string]string{"y": "osd.3 has to wait for its turn: nothing may go now"},
		},
		{
			"zone x is open", open,
			[]string{"x", "x-proved", "mon-a"},
			map[string]string{
				"y":     "osd.3 has to wait for its turn: only pods with topology-location-zone x may go now",
				"mon-b": "mon.b has to wait for its turn: only pods with ceph_daemon_id a may go now",
			},
		},
		{
			"two zones are open", leavingOut("x", "y"),
			[]string{"x", "x-proved", "y", "y-proved"},
			map[string]string{"nameless": "topology-location-zone x or y may go now"},
		},
		{
			"one of two budgets is open", half,
			nil,
			map[string]string{"x": "PodDisruptionBudget lockkeeper-rook-ceph-osd-proved"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.budgets(c.specs)
			for _, pod := range all {
				says, no := refused(t, w.try(person, pod))
				assert.Equal(t, slices.Contains(c.may, pod), !no, "%s: %s", pod, says)
				assert.Contains(t, says, c.says[pod], pod)
				for _, line := range strings.Split(says, "\n") {
					assert.Equal(t, strings.TrimSpace(line), line)
				}
			}
		})
	}

	// One budget that is missing: the other one speaks for its pods.
	for _, missing := range []string{kube.ProvedBudgetName(guarding), kube.DaemonBudgetName(guarding)} {
		w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: closedMons})
		require.NoError(t, w.as(theWorker).Delete(t.Context(),
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: missing}}))
		time.Sleep(100 * time.Millisecond)
		for _, pod := range all {
			_, no := refused(t, w.try(person, pod))
			assert.True(t, no, "%s without %s", pod, missing)
		}
	}
	// Mons that cannot be told apart are not guarded: their budget keeps a number of them.
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: &budget.Spec{MinAvailable: 2}})
	require.NoError(t, w.try(person, "mon-a"))
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: closedMons})
	require.NoError(t, w.try(person, "mon-a"), "closed says nothing of whether they can be told apart")
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed, Mons: &budget.Spec{Quiet: true}})
	_, no := refused(t, w.try(person, "mon-a"))
	require.True(t, no)
	// lockkeeper takes its own budgets away: nothing is guarded any more, and nothing is stuck.
	require.NoError(t, w.worker.RemoveBudgets(t.Context(), w.key(), noProgress, holds))
	time.Sleep(100 * time.Millisecond)
	for _, pod := range all {
		require.NoError(t, w.try(person, pod), pod)
	}
}

// TestSelectors: the guard reads a budget's selector as the API server does.
func TestSelectors(t *testing.T) {
	w := newGuardWorld(t, "selectors")
	w.budgets(leavingOut("x", "y")) // of no importance here
	w.pod("pod", osd("3", "y"))
	in := func(operator metav1.LabelSelectorOperator, key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}},
		}
	}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		covers   bool
	}{
		"absent":                {nil, false},
		"empty":                 {&metav1.LabelSelector{}, true},
		"a label":               {&metav1.LabelSelector{MatchLabels: map[string]string{zone: "y"}}, true},
		"another value":         {&metav1.LabelSelector{MatchLabels: map[string]string{zone: "x"}}, false},
		"one label too many":    {&metav1.LabelSelector{MatchLabels: map[string]string{zone: "y", "a": "b"}}, false},
		"In":                    {in("In", zone, "x", "y"), true},
		"In others":             {in("In", zone, "x", "z"), false},
		"In, without label":     {in("In", "a", ""), false},
		"NotIn":                 {in("NotIn", zone, "y"), false},
		"NotIn others":          {in("NotIn", zone, "x"), true},
		"NotIn, without label":  {in("NotIn", "a", "b"), true},
		"Exists":                {in("Exists", zone), true},
		"Exists, without":       {in("Exists", "a"), false},
		"DoesNotExist":          {in("DoesNotExist", zone), false},
		"DoesNotExist, without": {in("DoesNotExist", "a"), true},
		"a mark":                {in("Exists", storageview.MarkLabel), true},
		"no mark":               {in("DoesNotExist", storageview.MarkLabel), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: w.ns, Name: "one", Labels: map[string]string{kube.LabelGuards: kube.GuardsDeletions},
				},
				Spec: policyv1.PodDisruptionBudgetSpec{Selector: c.selector},
			}
			require.NoError(t, w.as(theWorker).Create(t.Context(), b))
			defer func() { require.NoError(t, w.as(theWorker).Delete(context.Background(), b)) }()
			time.Sleep(100 * time.Millisecond)
			says, no := refused(t, w.try(person, "pod"))
			require.Equal(t, c.covers, no, says)
		})
	}
}

// TestEachNamespaceForItself: budgets elsewhere, of other namespaces and of other policies, and namespaces without a
// policy or without a binding.
func TestEachNamespaceForItself(t *testing.T) {
	w, other := newGuardWorld(t, "tenant-1"), newGuardWorld(t, "tenant-2")
	w.pod("x", osd("1", "x"))
	other.pod("x", osd("1", "x"))
	other.budgets(leavingOut("x"))
	_, no := refused(t, w.try(person, "x"))
	require.True(t, no, "what is open elsewhere is closed here")
	require.NoError(t, other.try(person, "x"))

	// Two policies of one namespace: each one's budgets guard its own pods.
	made := policy(t, "second", `{ceph: {osds: {selector: {matchLabels: {app: second-osd}}}}}`)
	made.SetNamespace(w.ns)
	create(t, made)
	w.pod("second", osd("7", "x"), labelled("app", "second-osd"))
	require.NoError(t, w.try(person, "second"))
	_, err := w.worker.ApplyBudgets(t.Context(), activities.BudgetInput{
		Cluster: storage.ClusterKey{Namespace: w.ns, Name: "second"}, Specs: atRest,
	})
	require.NoError(t, err)
	w.budgets(leavingOut("x"))
	require.NoError(t, w.try(person, "x"))
	says, no := refused(t, w.try(person, "second"))
	require.True(t, no)
	require.Contains(t, says, kube.DaemonBudgetName("second"))

	bare := guardWorld{T: t, ns: "without-policy"}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bare.ns}})
	bare.pod("x", osd("1", "x"))
	require.NoError(t, bare.try(person, "x"), "not bound")
	bare.bind("Deny")
	time.Sleep(time.Second)
	require.NoError(t, bare.try(person, "x"), "bound, and without a policy: nothing is stuck")
}

// TestWarnAndAudit: whoever only wants to know is told, and goes on.
func TestWarnAndAudit(t *testing.T) {
	w := newGuardWorld(t, "warning")
	w.pod("x", osd("1", "x"))
	_, no := refused(t, w.try(person, "x"))
	require.True(t, no)
	binding := func(action string) {
		text := fmt.Sprintf(`{"spec":{"validationActions":[%q]}}`, action)
		require.NoError(t, server.Patch(t.Context(), bindingOf(w.ns), client.RawPatch(types.MergePatchType, []byte(text))))
	}
	for _, action := range []string{"Warn", "Audit"} {
		binding(action)
		heard := &warnings{}
		cfg := rest.CopyConfig(config)
		cfg.WarningHandler = heard
		c, err := client.New(cfg, client.Options{Scheme: kube.Scheme})
		require.NoError(t, err)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			heard.texts = nil
			assert.NoError(t, c.Delete(w.Context(),
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "x"}}, client.DryRunAll))
			assert.Equal(t, action == "Warn", strings.Contains(fmt.Sprint(heard.texts), "osd.1 has to wait for its turn"))
		}, apiserver.Patience, 50*time.Millisecond, action)
	}
}

type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// TestANamespaceThatGoes takes its pods and budgets with it, whatever the budgets say.
func TestANamespaceThatGoes(t *testing.T) {
	w := newGuardWorld(t, "going")
	w.pod("x", osd("1", "x"))
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: kube.DaemonBudgetName(guarding)},
	}
	deletes := func(by who) error { return w.as(by).Delete(w.Context(), b, client.DryRunAll) }
	for _, by := range []who{own("namespace-controller"), shared} {
		_, no := refused(t, w.try(by, "x"))
		require.True(t, no)
		_, no = refused(t, deletes(by))
		require.True(t, no)
	}
	require.NoError(t, server.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	for _, by := range []who{own("namespace-controller"), shared} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // each API server hears of the namespace a moment later
			assert.NoError(c, w.try(by, "x"))
			assert.NoError(c, deletes(by))
		}, apiserver.Patience, 20*time.Millisecond)
	}
}
