package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestAnAlarmBetweenLookAndOpening is written on the budgets by a watcher that does not lead, so that no signal tells
// the keeper. The opening that was decided before it is refused, and what was proved before it does not count for the
// next one either.
func TestAnAlarmBetweenLookAndOpening(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	var writes atomic.Int32
	var raise func()
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		// Three writes close for the last look. The next one opens.
		if op == "update budget" && armed.Load() && writes.Add(1) == 4 {
			armed.Store(false)
			raise()
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		var raised time.Time
		raise = func() {
			raised = time.Now()
			s.Tell("another watcher raises the alarm")
			s.update(func() { s.blind = true }) // the one that leads has told of the cordon, and of nothing since
			if err := s.CloseBudgets(context.Background(), "a test"); err != nil {
				s.Error(err)
			}
		}
		armed.Store(true)
		s.PersonCordons("node-b", true)
		s.awaitBudget(only("y"), time.Minute)
		require.False(s, raised.IsZero(), "nobody raised an alarm")
		require.Greater(s, time.Since(raised), time.Second, "opened on a proof from before the alarm")
		s.blindfold(false)
		s.PersonCordons("node-b", false)
	})
}
