package workflows_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestTheStatusIsClosedInEveryWayInWhichTheKeeperIs: what was decided is not said for as long as something else is in
// force.
func TestTheStatusIsClosedInEveryWayInWhichTheKeeperIs(t *testing.T) {
	t.Parallel()
	var failing atomic.Pointer[string]
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if ops := failing.Load(); ops != nil && strings.Contains(*ops, op) {
			return sim.Failure{Err: errors.New("a webhook says no")}
		}
		return sim.Failure{}
	}}
	fail := func(ops string) { failing.Store(&ops) }
	says := func(s *scene, message string) {
		s.Helper()
		require.True(s, s.Await(14*time.Second, func() bool { // before the watcher would say that nobody keeps it
			x := s.Status()
			return x.MayDrain == "no" && strings.Contains(x.Message, message)
		}), "%+v", s.Status())
	}
	t.Run("the budgets cannot be written", func(t *testing.T) {
		play(t, opts, func(s *scene) {
			defer fail("")
			s.settle()
			fail("update budget")
			s.PersonCordons("node-b", true)
			says(s, "the budgets could not be written")
			fail("")
			s.awaitBudget(only("y"), time.Minute)
			require.True(s, s.Await(time.Minute, func() bool { return s.Status().MayDrain == "zone zone-y" }))
			s.PersonCordons("node-b", false)
		})
	})
	t.Run("nobody can look after an alarm", func(t *testing.T) {
		play(t, opts, func(s *scene) {
			defer fail("")
			s.settle()
			fail("list budgets")
			s.KillOSD(0)
			says(s, "nothing opens before a look")
			fail("")
			s.awaitBudget(atRest, 2*time.Minute)
			require.True(s, s.Await(time.Minute, func() bool { return s.Status().MayDrain == "any node" }))
		})
	})
}
