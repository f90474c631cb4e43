package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestALateOpening: the second of the writes that open a failure domain gets no answer, and is carried out seconds
// later. By then OSDs of two others are down, and everything is closed.
func TestALateOpening(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	var writes atomic.Int32
	const late = 4 * time.Second
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		// Three writes close for the last look. The next ones open.
		if op == "update budget" && armed.Load() && writes.Add(1) == 5 {
			armed.Store(false)
			return sim.Failure{Err: errors.New("the API server gives no answer"), Done: true, Late: late}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		armed.Store(true)
		s.PersonCordons("node-b", true)
		require.True(s, s.Await(time.Minute, func() bool { return writes.Load() >= 5 }))
		lost := time.Now()
		s.blindfold(true) // a watcher's alarm would do, too
		s.KillOSD(0)
		s.KillOSD(2) // of two others, so that neither opens
		for time.Since(lost) < late+time.Second {
			time.Sleep(time.Millisecond)
			if time.Since(lost) > time.Second {
				require.NotContains(s, s.Budget(), "zone-y", "after %s", time.Since(lost))
			}
		}
		s.blindfold(false)
		s.PersonCordons("node-b", false)
		s.awaitNothingLeft(time.Minute)
	})
}
