package longhorn

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// emptiesByItself has lockkeeper empty Longhorn's budgets, as where the API server knows no such policies. An instance
// manager is under two budgets for a moment whenever Longhorn makes one, which refuses its eviction, and never under
// none. How long that takes is told.
func (w *world) emptiesByItself() {
	w.Helper()
	p := v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "longhorn"}}
	set := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"longhorn":{"budgetsEmptiedBy":%q}}}`, v1alpha1.EmptiedByWorker))
	require.NoError(w, w.Patch(w.Context(), &p, set))
	settled := func() bool { return len(w.ourBudgets()) == 2 && len(w.budgeted()) == 3 && !w.anyFull() }
	w.await("Longhorn's own are empty, and ours are there", settled)

	h, both := w.hammer(), w.timesUnderBoth()
	for range 3 {
		for _, b := range w.longhornsBudgets() {
			require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), &b)))
		}
		w.await("Longhorn has made its own anew, and they are empty", settled)
	}
	w.Lab("volume", "attach", "data", "node-a")
	w.Lab("volume", "detach", "data")
	w.await("all are empty again", settled)
	asked, wrong := h.stop() // few: of a quiet budget the API server says to ask again after ten seconds, and clients do
	require.Positive(w, asked)
	for _, answer := range wrong {
		require.Contains(w, answer, "more than one PodDisruptionBudget")
	}
	times := both()
	require.GreaterOrEqual(w, len(times), 9)
	slices.Sort(times)
	w.Logf("%d evictions asked for, %d met two budgets; %d budgets of Longhorn's were full for %s (p50), at most %s",
		asked, len(wrong), len(times), times[len(times)/2], times[len(times)-1])
}

// timesUnderBoth watches Longhorn's budgets, and tells in the end how long each was not empty that it has made since.
func (w *world) timesUnderBoth() (times func() []time.Duration) {
	w.Helper()
	seen, err := w.Typed.PolicyV1().PodDisruptionBudgets(namespace).Watch(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	var took []time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		made := map[string]time.Time{}
		for e := range seen.ResultChan() {
			b, is := e.Object.(*policyv1.PodDisruptionBudget)
			if !is || !strings.HasPrefix(b.Name, "instance-manager-") {
				continue
			}
			id, full := string(b.UID), b.Spec.MinAvailable.IntValue() != 0
			at, was := made[id]
			switch {
			case e.Type == watch.Added && full:
				made[id] = time.Now()
			case e.Type == watch.Modified && !full && was:
				took = append(took, time.Since(at).Round(time.Millisecond))
				delete(made, id)
			}
		}
	}()
	return func() []time.Duration {
		seen.Stop()
		<-done
		return took
	}
}
