package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/sim"
)

// TestAMissingBudgetIsMadeClosed: somebody deletes the budget of the marked pods, and somebody else's budget keeps it from being made anew.
// When that goes, a pod of another failure domain is evicted before ours is there again: nobody could write an alarm on it.
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
