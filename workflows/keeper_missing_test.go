package workflows_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestAMissingBudgetIsMadeClosed: somebody deletes the budget of the marked pods, and somebody else's budget keeps it
// from being made anew. When that goes, a pod of another failure domain is evicted before ours is there again: nobody
// could write an alarm on it.
func TestAMissingBudgetIsMadeClosed(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op == "create budget" && slow.Load() {
			return sim.Failure{Err: errors.New("the API server gives no answer"), Done: true, Late: time.Second}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		slow.Store(true)
		s.Foreign(true)
		s.TamperWithBudget(true)
		time.Sleep(10 * time.Second)
		s.PersonCordons("node-b", true)
		time.Sleep(20 * time.Second)
		require.NotContains(s, s.Budget(), "zone-y", "one of the budgets is missing")
		require.NotContains(s, s.Status().MayDrain, "zone-y")
		require.Contains(s, s.Status().Message, "foreign")
		s.Foreign(false)
		require.True(s, s.EvictAny("osd.0"), "nothing covers it")
		time.Sleep(1200 * time.Millisecond) // and then something does, as it was decided before
		for range 30 {
			time.Sleep(50 * time.Millisecond)
			require.False(s, s.EvictAny("osd.1"), "osd.0 is away")
		}
		slow.Store(false)
		s.PersonCordons("node-b", false)
		s.awaitNothingLeft(2 * time.Minute)
	})
}

// TestABudgetOfSomebodyElseIsTold: under two budgets no eviction succeeds, so whoever puts a second one there has to
// hear of it, although ours are as they should be and nothing has to be written.
func TestABudgetOfSomebodyElseIsTold(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		protected := func() bool {
			return meta.IsStatusConditionTrue(s.Status().Conditions, v1alpha1.ConditionProtected)
		}
		require.True(s, protected())
		s.Foreign(true)
		require.True(s, s.Await(10*time.Second, func() bool { return !protected() }))
		s.Foreign(false)
		require.True(s, s.Await(10*time.Second, protected))
	})
}

// TestNothingIsGrantedWhileABudgetIsMissing: no budget keeps a rollout from what it was told that it may, and the pods
// whose budget is missing may go at any moment.
func TestNothingIsGrantedWhileABudgetIsMissing(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.Foreign(true)
		s.TamperWithBudget(true)
		time.Sleep(10 * time.Second)
		in := workflows.RestartOSDsInput{Namespace: sim.Key.Namespace, UpdateDomain: "Zone"}
		run := s.start(restartID, jobs.RestartOSDs.Type, in)
		require.True(s, s.Await(30*time.Second, func() bool {
			return strings.Contains(s.updateStatus(restartID).WaitsFor, "foreign, which is not lockkeeper's")
		}), "%s", s.updateStatus(restartID).WaitsFor)
		time.Sleep(5 * time.Minute)
		require.Zero(s, s.Restarts())
		s.Foreign(false)
		e := s.awaitRollout(restartID, run, 10*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, 6, e.rollout.Replaced)
		s.awaitWhole()
	})
}
