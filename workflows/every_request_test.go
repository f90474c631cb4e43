package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// TestEveryRequestOfADecision plays a drain again and again, and each time the worker dies at another request of those
// that carry out the keeper's decisions: before the request is carried out, or right after. TestEveryStep does so
// between activities; one of them takes all steps of a decision.
func TestEveryRequestOfADecision(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, every := turns.Steps("TestEveryRequestOfADecision: "+name, 8, 1)
			atEachStep(t, at, every, 300, func(t *testing.T, at int) bool { return diesAtRequest(t, at, done) })
		})
	}
}

// diesAtRequest plays a drain in which the worker dies at one request, and tells whether it came to that.
func diesAtRequest(t *testing.T, at int, done bool) (came bool) {
	var (
		world    *scene
		armed    atomic.Bool
		requests atomic.Int64
	)
	opts := sim.Options{Fail: func(ctx context.Context, op string) sim.Failure {
		if !armed.Load() || !activity.IsActivity(ctx) || activity.GetInfo(ctx).ActivityType.Name != "CarryOut" ||
			requests.Add(1) != int64(at)+1 {
			return sim.Failure{}
		}
		world.Tell("at %q:", op)
		world.crashWorker(true)
		go func() {
			time.Sleep(5 * time.Second)
			world.crashWorker(false)
		}()
		return sim.Failure{Err: errors.New("the worker died"), Done: done}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		world = s
		armed.Store(true)
		c := courses["a person's drain"]
		e := s.awaitEnd(c.node, c.play(s, c.node), time.Hour)
		require.NoError(s, e.err)
		require.Equal(s, c.outcome, e.result.Outcome)
		s.awaitNothingLeft(5 * time.Minute)
		require.True(s, s.Await(time.Minute, func() bool { return len(s.Whole()) == 0 }), "%v", s.Whole())
		came = requests.Load() > int64(at)
	})
	return came
}
