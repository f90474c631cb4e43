package longhorn

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictions "github.com/lockkeeper/lockkeeper/test/hammer"
)

// managers selects the pods of instance managers.
const managers = "longhorn.io/component=instance-manager"

// oneWriter has the API server empty Longhorn's budgets, and looks for an instant in which a pod is under none, or
// under two: every pod is asked for its eviction all the time, without being evicted, while Longhorn does what it
// does.
func oneWriter(w *world) {
	// That the hammer sees what it looks for: with Longhorn's setting on most instance managers are under no budget.
	require.NotEmpty(w, w.askOnce(), "no budget")
	w.set("kubernetes-cluster-autoscaler-enabled", "false") // so that Longhorn has a budget for each
	w.await("Longhorn's own", func() bool { return len(w.budgeted()) == 3 })
	require.Empty(w, w.askOnce(), "one budget")
	w.install("../../deploy/longhorn/one-writer.yaml")
	w.coverAll()
	require.NotEmpty(w, w.askOnce(), "two budgets")
	w.handOver()

	h := w.hammer()
	w.Lab("volume", "attach", "vol", "node-a")
	w.Lab("volume", "detach", "vol")
	for _, n := range []string{"node-b", "node-b", "node-c"} {
		w.cordon(n, true)
		w.await("Longhorn's budget goes with the cordon", func() bool { return !w.hasBudgetOf(n) })
		w.cordon(n, false)
		w.await("and comes back", func() bool { return w.hasBudgetOf(n) })
	}
	w.set("kubernetes-cluster-autoscaler-enabled", "true")
	w.await("Longhorn needs none", func() bool { return len(w.budgeted()) <= 1 })
	w.set("kubernetes-cluster-autoscaler-enabled", "false")
	w.await("and makes them again", func() bool { return len(w.budgeted()) == 3 })
	w.replaceManager("node-c")
	w.restartLonghorn()
	asked, wrong := h.stop()
	require.Empty(w, wrong)
	require.Greater(w, asked, 300)
	w.Logf("%d evictions asked for", asked)
	for _, b := range w.longhornsBudgets() {
		require.Equal(w, intstr.FromInt32(0), *b.Spec.MinAvailable, b.Name)
		require.Zero(w, b.Status.ExpectedPods, b.Name)
	}

	// The way back: without the policy Longhorn's next budgets are what they were.
	w.uninstall("../../deploy/longhorn/one-writer.yaml")
	for _, b := range w.longhornsBudgets() {
		require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), &b)))
	}
	w.await("Longhorn's own", func() bool {
		full := 0
		for _, b := range w.longhornsBudgets() {
			if b.Spec.MinAvailable.IntValue() == 1 && b.Status.ExpectedPods == 1 {
				full++
			}
		}
		return full == 3
	})
	require.NoError(w, w.Delete(w.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: coverName},
	}))
}

// coverAll makes a budget of ours over all instance managers. Until Longhorn's are empty a pod is under two budgets,
// which refuse it: the other way round it would be under none.
func (w *world) coverAll() {
	w.Helper()
	all := intstr.FromInt32(1_000_000)
	require.NoError(w, w.Create(w.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: coverName},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all, Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "longhorn.io/component", Operator: metav1.LabelSelectorOpIn, Values: []string{"instance-manager"},
			}}},
		},
	}))
}

// coverName is the name of the budget over all.
const coverName = "over-all"

// handOver has Longhorn make its budgets anew, which are empty then.
func (w *world) handOver() {
	w.Helper()
	w.await("the policy is in force", func() bool {
		for _, b := range w.longhornsBudgets() {
			if b.Spec.MinAvailable.IntValue() != 0 { // made before it was
				require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), &b)))
			}
		}
		empty := 0
		for _, b := range w.longhornsBudgets() {
			if b.Spec.MinAvailable.IntValue() == 0 {
				empty++
			}
		}
		return empty == 3
	})
}

func (w *world) longhornsBudgets() []policyv1.PodDisruptionBudget {
	w.Helper()
	var all policyv1.PodDisruptionBudgetList
	require.NoError(w, w.List(w.Context(), &all, client.InNamespace(namespace)))
	var found []policyv1.PodDisruptionBudget
	for _, b := range all.Items {
		if strings.HasPrefix(b.Name, "instance-manager-") {
			found = append(found, b)
		}
	}
	return found
}

func (w *world) hasBudgetOf(node string) bool {
	for _, n := range w.budgeted() {
		if n == node {
			return true
		}
	}
	return false
}

// replaceManager has Longhorn replace the pod of a node's instance manager, and waits for the new one.
func (w *world) replaceManager(node string) {
	w.Helper()
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{
		LabelSelector: managers + ",longhorn.io/node=" + node,
	})
	require.NoError(w, err)
	require.Len(w, pods.Items, 1)
	old := pods.Items[0]
	require.NoError(w, w.Typed.CoreV1().Pods(namespace).Delete(w.Context(), old.Name, metav1.DeleteOptions{}))
	w.await("another instance manager", func() bool {
		p, err := w.Typed.CoreV1().Pods(namespace).Get(w.Context(), old.Name, metav1.GetOptions{})
		return err == nil && p.UID != old.UID && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
	})
}

// restartLonghorn restarts Longhorn's managers, which look at everything again when they start.
func (w *world) restartLonghorn() {
	w.Helper()
	pods := w.Typed.CoreV1().Pods(namespace)
	list, err := pods.List(w.Context(), metav1.ListOptions{LabelSelector: "app=longhorn-manager"})
	require.NoError(w, err)
	for _, p := range list.Items {
		require.NoError(w, pods.Delete(w.Context(), p.Name, metav1.DeleteOptions{}))
	}
	w.await("three managers", func() bool {
		now, err := pods.List(w.Context(), metav1.ListOptions{LabelSelector: "app=longhorn-manager"})
		require.NoError(w, err)
		ready := 0
		for _, p := range now.Items {
			if p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready {
				ready++
			}
		}
		return ready == 3
	})
	w.Lab("volume", "attach", "vol", "node-b")
	w.Lab("volume", "detach", "vol")
}

// hammer asks for evictions until it is stopped.
type hammer struct {
	stopped context.CancelFunc
	done    sync.WaitGroup
	mu      sync.Mutex
	asked   int
	wrong   []string
}

func (w *world) hammer() *hammer {
	h := &hammer{}
	var ctx context.Context
	ctx, h.stopped = context.WithCancel(context.Background())
	for range 2 {
		h.done.Go(func() {
			for ctx.Err() == nil {
				w.askAll(ctx, h)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return h
}

// stop ends the hammer, and tells how often it asked and which answers were not "not now".
func (h *hammer) stop() (asked int, wrong []string) {
	h.stopped()
	h.done.Wait()
	return h.asked, h.wrong
}

// askOnce asks once, and tells which answers were not "not now".
func (w *world) askOnce() []string {
	h := &hammer{}
	w.askAll(w.Context(), h)
	return h.wrong
}

// askAll asks for the eviction of every instance manager, without evicting it: a pod under no budget may go, and of one
// under two the API server says that it does not know how.
func (w *world) askAll(ctx context.Context, h *hammer) {
	pods, err := w.Typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: managers})
	if err != nil {
		return
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil || p.Status.Phase != "Running" {
			continue // it may go whatever the budgets say
		}
		err := evictions.Evict(ctx, w.Typed, &p, &metav1.DeleteOptions{
			DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{ResourceVersion: &p.ResourceVersion},
		})
		h.mu.Lock()
		h.asked++
		if !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			h.wrong = append(h.wrong, fmt.Sprintf("%s of %s: %v", p.Name, p.Spec.NodeName, err))
		}
		h.mu.Unlock()
	}
}

func (w *world) install(path string) {
	w.Helper()
	for _, o := range w.read(path) {
		require.NoError(w, w.Create(w.Context(), o))
	}
}

func (w *world) uninstall(path string) {
	w.Helper()
	for _, o := range w.read(path) {
		require.NoError(w, w.Delete(w.Context(), o))
	}
}

func (w *world) read(path string) []*unstructured.Unstructured {
	w.Helper()
	b, err := os.ReadFile(path)
	require.NoError(w, err)
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(b), "\n---\n") {
		o := &unstructured.Unstructured{}
		require.NoError(w, yaml.Unmarshal([]byte(document), &o.Object))
		objects = append(objects, o)
	}
	return objects
}
