package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// budgetWorld is a namespace with a policy and the pods of three OSDs, without anything that would run them.
type budgetWorld struct {
	*testing.T
	key     storage.ClusterKey
	policy  *v1alpha1.MaintenancePolicy
	cluster *kube.Cluster
}

func newBudgetWorld(t *testing.T, ns string) budgetWorld {
	t.Helper()
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	made := policy(t, "rook-ceph", `{ceph: {}}`)
	made.SetNamespace(ns)
	create(t, made)
	p := &v1alpha1.MaintenancePolicy{}
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "rook-ceph"}, p))
	for _, id := range []string{"0", "1", "2"} {
		create(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: "osd-" + id,
				Labels: map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": id},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "osd", Image: "ceph"}}},
		})
	}
	cluster, err := kube.New(config)
	require.NoError(t, err)
	return budgetWorld{T: t, key: storage.ClusterKey{Namespace: ns, Name: "rook-ceph"}, policy: p, cluster: cluster}
}

func (w budgetWorld) pods() []storageview.Pod {
	w.Helper()
	pods, err := w.cluster.StoragePods(w.Context(), w.policy)
	require.NoError(w, err)
	return pods
}

func (w budgetWorld) budgets() []policyv1.PodDisruptionBudget {
	w.Helper()
	var list policyv1.PodDisruptionBudgetList
	require.NoError(w, server.List(w.Context(), &list, client.InNamespace(w.key.Namespace)))
	return list.Items
}

// covered: every OSD's pod is under exactly one budget.
func (w budgetWorld) covered() {
	w.Helper()
	for _, p := range w.pods() {
		n := 0
		for _, b := range w.budgets() {
			s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			require.NoError(w, err)
			if s.Matches(labels.Set(p.Labels)) {
				n++
			}
		}
		require.Equal(w, 1, n, "budgets over pod %s with labels %v", p.Name, p.Labels)
	}
}

var (
	closed = budget.Spec{MinAvailable: budget.Everything}
	atRest = budget.Specs{Daemons: budget.Spec{MinAvailable: 2}, Unproved: &budget.Spec{Quiet: true}}
)

func noProgress(int) {}

func holds() error { return nil }

// TestMarksNameThePod: a pod that changed since it was looked at is not marked, and a second pod of the same name
// neither.
func TestMarksNameThePod(t *testing.T) {
	w := newBudgetWorld(t, "marks")
	_, err := w.cluster.ApplyBudgets(t.Context(),
		activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: closed, Unproved: &closed}})
	require.NoError(t, err)
	w.covered()
	seen := w.pods()
	touched := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "osd-1"}}
	require.NoError(t, server.Patch(t.Context(), touched,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))))
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "osd-2"}}
	require.NoError(t, server.Delete(t.Context(), gone, client.GracePeriodSeconds(0)))
	n, err := w.cluster.MarkPods(t.Context(), w.policy, seen, noProgress)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	pods := w.pods()
	require.True(t, pods[0].Proved())
	require.False(t, pods[1].Marked())
	w.covered()
	n, err = w.cluster.MarkPods(t.Context(), w.policy, pods, noProgress)
	require.NoError(t, err)
	require.Equal(t, 2, n, "again is the same as once")
	w.covered()
	n, err = w.cluster.UnmarkPods(t.Context(), w.policy, pods, noProgress)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the other was seen without a mark")
	n, err = w.cluster.UnmarkPods(t.Context(), w.policy, w.pods(), noProgress)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestTheOneBudgetBecomesTwo, and in the end none: whatever is written, each pod is under one budget after each write.
func TestTheOneBudgetBecomesTwo(t *testing.T) {
	w := newBudgetWorld(t, "upgrade")
	_, err := w.cluster.ApplyBudgets(t.Context(),
		activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: budget.Spec{MinAvailable: 2}}})
	require.NoError(t, err)
	require.Len(t, w.budgets(), 1, "as version 0.1 has it")
	w.covered()
	_, err = w.cluster.ApplyBudgets(t.Context(),
		activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: closed, Unproved: &closed}})
	require.NoError(t, err)
	w.covered()
	book, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
	require.NoError(t, err)
	r, err := w.cluster.ApplyBudgets(t.Context(), activities.BudgetInput{Cluster: w.key, Specs: atRest, Before: book})
	require.NoError(t, err)
	require.Empty(t, r.Moved)
	_, err = w.cluster.MarkPods(t.Context(), w.policy, w.pods(), noProgress)
	require.NoError(t, err)
	w.covered()
	_, err = w.cluster.ApplyBudgets(t.Context(),
		activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: budget.Spec{MinAvailable: 2}}})
	require.ErrorContains(t, err, "version 0.1", "a keeper of before must not join what was split")
	w.covered()
	require.NoError(t, w.cluster.RemoveBudgets(t.Context(), w.key, noProgress, holds))
	require.Empty(t, w.budgets())
	for _, p := range w.pods() {
		require.False(t, p.Marked(), p.Name)
	}
}

// TestNothingOpensOverAnAlarm: an alarm that was raised between a look and what follows from it, by whomever, wins.
func TestNothingOpensOverAnAlarm(t *testing.T) {
	w := newBudgetWorld(t, "alarm")
	open := budget.Specs{
		Daemons:  budget.Spec{MinAvailable: budget.Everything, Key: "topology-location-zone", Except: []string{"x"}},
		Unproved: &budget.Spec{MinAvailable: budget.Everything, Key: "topology-location-zone", Except: []string{"x"}},
	}
	_, err := w.cluster.ApplyBudgets(t.Context(),
		activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: closed, Unproved: &closed}})
	require.NoError(t, err)
	before, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
	require.NoError(t, err)
	require.NoError(t, w.cluster.Close(t.Context(), w.policy, kube.WatcherOwner, time.Now(), "osd.1 is not ready"))
	after, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
	require.NoError(t, err)
	require.NotEqual(t, before.Alarms(), after.Alarms())
	require.Contains(t, after.Alarms(), "osd.1 is not ready")
	r, err := w.cluster.ApplyBudgets(t.Context(), activities.BudgetInput{Cluster: w.key, Specs: open, Before: before})
	require.NoError(t, err)
	require.NotEmpty(t, r.Moved)
	for _, b := range w.budgets() {
		require.Equal(t, budget.Everything, b.Spec.MinAvailable.IntValue())
		require.NotContains(t, metav1.FormatLabelSelector(b.Spec.Selector), "notin")
	}
	r, err = w.cluster.ApplyBudgets(t.Context(), activities.BudgetInput{Cluster: w.key, Specs: open, Before: after})
	require.NoError(t, err)
	require.Empty(t, r.Moved)
	require.NoError(t, w.cluster.RaiseAlarm(t.Context(), w.key, "the mons are silent"))
	for _, b := range w.budgets() {
		require.NotContains(t, metav1.FormatLabelSelector(b.Spec.Selector), "notin", "closed, whatever was decided")
	}
}

// TestAMissingBudgetIsMadeClosed: whoever raises an alarm while somebody has deleted a budget cannot write it there.
// What was decided before must not let anybody go through the one that is made instead.
func TestAMissingBudgetIsMadeClosed(t *testing.T) {
	w := newBudgetWorld(t, "missing")
	left := budget.Spec{MinAvailable: budget.Everything, Key: "topology-location-zone", Except: []string{"x"}}
	open := budget.Specs{Daemons: left, Unproved: &left, Mons: &left}
	apply := func(specs budget.Specs, before budget.Book) activities.BudgetResult {
		r, err := w.cluster.ApplyBudgets(t.Context(), activities.BudgetInput{Cluster: w.key, Specs: specs, Before: before})
		require.NoError(t, err)
		return r
	}
	book := func() budget.Book {
		b, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
		require.NoError(t, err)
		return b
	}
	opens := func() (names []string) {
		for _, b := range w.budgets() {
			if selector := metav1.FormatLabelSelector(b.Spec.Selector); strings.Contains(selector, "notin") {
				names = append(names, b.Name)
			}
		}
		return names
	}
	remove := func(name string) {
		require.NoError(t, server.Delete(t.Context(),
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: name}}))
	}
	all := budget.Specs{Daemons: closed, Unproved: &closed, Mons: &closed}
	apply(all, nil)
	for _, name := range []string{
		kube.ProvedBudgetName("rook-ceph"), kube.DaemonBudgetName("rook-ceph"),
		kube.MonBudgetName("rook-ceph"),
	} {
		remove(name)
		before := book()
		require.NoError(t, w.cluster.Close(t.Context(), w.policy, kube.WatcherOwner, time.Now(), "osd.1 is not ready"))
		r := apply(open, before)
		require.Equal(t, name, r.Moved, "look again")
		require.Empty(t, opens())
		require.Len(t, w.budgets(), 3)
		w.covered()
		require.Empty(t, apply(open, book()).Moved)
		require.Len(t, opens(), 3)
		apply(all, nil)
	}

	remove(kube.ProvedBudgetName("rook-ceph"))
	theirs := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "theirs"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-osd"}},
		},
	}
	create(t, theirs)
	r := apply(open, book())
	require.NotEmpty(t, r.Moved)
	require.Contains(t, r.Conflict, "theirs")
	require.Empty(t, opens(), "marked pods are under theirs alone, and when that goes, under none")
	remove("theirs")
	apply(open, book())
	require.Empty(t, opens())
	apply(open, book())
	require.Len(t, opens(), 3)
}

// held keeps back what is written, as a network does that gives no answer.
type held struct {
	http.RoundTripper
	requests []*http.Request
}

func (h *held) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") { // which asks, and writes nothing
		return h.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	late := r.Clone(context.Background())
	late.Body = io.NopCloser(bytes.NewReader(body))
	h.requests = append(h.requests, late)
	return nil, context.DeadlineExceeded
}

// TestALateOpeningOpensNothing: who opened has heard nothing, so it closes, and finds everything closed. What it wrote
// before arrives after that.
func TestALateOpeningOpensNothing(t *testing.T) {
	w := newBudgetWorld(t, "late")
	allClosed := activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: closed, Unproved: &closed}}
	_, err := w.cluster.ApplyBudgets(t.Context(), allClosed)
	require.NoError(t, err)
	require.NoError(t, w.cluster.RaiseAlarm(t.Context(), w.key, "the mons are silent"))
	before, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
	require.NoError(t, err)

	network := &held{}
	slow := rest.CopyConfig(config)
	slow.Wrap(func(rt http.RoundTripper) http.RoundTripper { network.RoundTripper = rt; return network })
	cluster, err := kube.New(slow)
	require.NoError(t, err)
	left := budget.Spec{MinAvailable: budget.Everything, Key: "topology-location-zone", Except: []string{"x"}}
	_, err = cluster.ApplyBudgets(t.Context(),
		activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: left, Unproved: &left}, Before: before})
	require.Error(t, err)
	require.NotEmpty(t, network.requests)

	allClosed.Fence = true
	_, err = w.cluster.ApplyBudgets(t.Context(), allClosed)
	require.NoError(t, err)
	for _, late := range network.requests {
		answer, err := network.RoundTripper.RoundTrip(late)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusUnprocessableEntity, answer.StatusCode)
	}
	for _, b := range w.budgets() {
		require.NotContains(t, metav1.FormatLabelSelector(b.Spec.Selector), "notin")
	}
	after, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
	require.NoError(t, err)
	require.Equal(t, before.Alarms(), after.Alarms(), "nobody raised an alarm")
}

// TestTheWatcherMayOnlyClose, and the worker only mark: by the admission policies that are shipped.
func TestTheWatcherMayOnlyClose(t *testing.T) {
	w := newBudgetWorld(t, "admission")
	apply(t, *root+"/deploy/rbac.yaml", "")
	apply(t, *root+"/deploy/admission.yaml", "")
	apply(t, *root+"/deploy/storage-namespace.yaml", w.key.Namespace)
	_, err := w.cluster.ApplyBudgets(t.Context(), activities.BudgetInput{Cluster: w.key, Specs: atRest})
	require.NoError(t, err)
	as := func(who string) client.Client {
		cfg := asAccount(config, who)
		c, err := client.New(cfg, client.Options{Scheme: kube.Scheme})
		require.NoError(t, err)
		return c
	}
	proved := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.key.Namespace,
		Name:      kube.ProvedBudgetName("rook-ceph"),
	}}
	patch := func(c client.Client, o client.Object, text string, opts ...client.PatchOption) error {
		o = o.DeepCopyObject().(client.Object)
		return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)), opts...)
	}
	watcher, worker := as("lockkeeper-watcher"), as("lockkeeper-worker")
	// A policy takes effect a moment after it was made. A patch that went through before would be none the next time.
	refused := func(who client.Client, o client.Object, text string) func(*assert.CollectT) {
		return func(c *assert.CollectT) {
			assert.ErrorContains(c, patch(who, o, text, client.DryRunAll), "ValidatingAdmissionPolicy")
		}
	}
	require.EventuallyWithT(t, refused(watcher, proved, `{"spec":{"minAvailable":1}}`), apiserver.Patience,
		100*time.Millisecond)
	for name, text := range map[string]string{
		"fewer pods":         `{"spec":{"minAvailable":1000000,"selector":{"matchLabels":{"only":"these"}}}}`,
		"some left out":      `{"spec":{"minAvailable":1000000,"selector":{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["x"]}]}}}`,
		"no pods":            `{"spec":{"minAvailable":1000000,"selector":null}}`,
		"another app's":      `{"spec":{"minAvailable":1000000,"selector":{"matchLabels":null}}}`,
		"unmarked ones, too": `{"spec":{"minAvailable":1000000,"selector":{"matchExpressions":null}}}`,
		"other labels":       `{"metadata":{"labels":{"lockkeeper.io/policy":"other"}}}`,
		"at most":            `{"spec":{"minAvailable":null,"maxUnavailable":1}}`,
		"nobody's any more":  `{"metadata":{"labels":null},"spec":{"minAvailable":1000000}}`,
		"another percentage": `{"spec":{"minAvailable":"10%"}}`,
		"unready ones":       `{"spec":{"minAvailable":1000000,"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`,
		"for the garbage collector": `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]},
			"spec":{"minAvailable":1000000}}`,
	} {
		require.ErrorContains(t, patch(watcher, proved, text), "ValidatingAdmissionPolicy", name)
	}
	theirs := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "theirs"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}},
		},
	}
	create(t, theirs)
	require.ErrorContains(t, patch(watcher, theirs, `{"spec":{"minAvailable":1000000}}`), "own budgets only")
	restricted, err := kube.New(asAccount(config, "lockkeeper-watcher"))
	require.NoError(t, err)
	require.NoError(t, restricted.Close(t.Context(), w.policy, kube.WatcherOwner, time.Now(), "a test"))
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(proved), proved))
	require.Equal(t, budget.Everything, proved.Spec.MinAvailable.IntValue())

	// The budgets are open, and of a policy that has been changed since so that it selects other pods.
	before, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
	require.NoError(t, err)
	left := budget.Spec{MinAvailable: budget.Everything, Key: "topology-location-zone", Except: []string{"x"}}
	r, err := w.cluster.ApplyBudgets(t.Context(),
		activities.BudgetInput{Cluster: w.key, Specs: budget.Specs{Daemons: left, Unproved: &left}, Before: before})
	require.NoError(t, err)
	require.Empty(t, r.Moved)
	changed := w.policy.DeepCopy()
	changed.Spec.Ceph.OSDs.Selector = &metav1.LabelSelector{
		MatchLabels: map[string]string{"app": "rook-ceph-osd", "tier": "fast"},
	}
	require.NoError(t, restricted.Close(t.Context(), changed, kube.WatcherOwner, time.Now(), "another policy"))
	for _, b := range w.budgets() {
		if b.Name == theirs.Name {
			continue
		}
		require.NotContains(t, metav1.FormatLabelSelector(b.Spec.Selector), "notin")
		require.NotContains(t, metav1.FormatLabelSelector(b.Spec.Selector), "tier")
		require.Contains(t, b.Annotations[kube.AlarmAnnotation], "another policy")
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "osd-0"}}
	require.EventuallyWithT(t, refused(worker, pod, `{"metadata":{"labels":{"app":"other"}}}`), apiserver.Patience,
		100*time.Millisecond)
	require.ErrorContains(t, patch(worker, pod, `{"metadata":{"annotations":{"a":"b"}}}`), "annotations")
	require.ErrorContains(t, patch(worker, pod, `{"spec":{"activeDeadlineSeconds":1}}`), "spec of a pod")
	require.ErrorContains(t, patch(worker, pod, `{"metadata":{"finalizers":["example.com/stays"]}}`), "owners or finalizers")
	require.ErrorContains(t, patch(worker, pod, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap",
		"name":"none","uid":"none"}]}}`), "owners or finalizers")
	marker, err := kube.New(asAccount(config, "lockkeeper-worker"))
	require.NoError(t, err)
	n, err := marker.MarkPods(t.Context(), w.policy, w.pods(), noProgress)
	require.NoError(t, err)
	require.Equal(t, 3, n)

	// It takes a person's word back, and gives none.
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	ref := kube.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
	require.ErrorContains(t, marker.LetGo(t.Context(), ref, "lockkeeper", "because"), "go-now")
	require.NoError(t, w.cluster.LetGo(t.Context(), ref, "ada", "hangs"))
	require.ErrorContains(t, marker.LetGo(t.Context(), ref, "lockkeeper", "because"), "go-now")
	mine := []storage.Override{{Pod: pod.Name, UID: string(pod.UID)}, {Pod: "gone", UID: "1"}}
	require.NoError(t, marker.TakeBackOverrides(t.Context(), w.key, mine))
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.NotContains(t, pod.Annotations, kube.GoNowAnnotation)
	another := []storage.Override{{Pod: pod.Name, UID: "of the one before"}}
	require.NoError(t, marker.TakeBackOverrides(t.Context(), w.key, another), "it is another pod of this name")
}

// asAccount is a config with which somebody is a service account of lockkeeper.
func asAccount(cfg *rest.Config, account string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:lockkeeper-system:" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:lockkeeper-system", "system:authenticated"},
	}
	return cfg
}
