package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestHammeredWhileMarksAreWritten: every mark takes its time, and all the while somebody evicts whatever may go. Pods
// without a mark stay; those that are about to lose theirs are not counted as if they kept it.
func TestHammeredWhileMarksAreWritten(t *testing.T) {
	t.Parallel()
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op == "annotate pod" {
			time.Sleep(3 * time.Second)
		}
		return sim.Failure{}
	}}
	for name, killed := range map[string][]int{"one": {1}, "of two zones": {0, 1}, "of three zones": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			play(t, opts, func(s *scene) {
				s.settle()
				for _, id := range killed {
					s.KillOSD(id)
				}
				s.Hammer(time.Minute, 20*time.Millisecond)
				time.Sleep(time.Minute)
				s.awaitNothingLeft(time.Minute)
			})
		})
	}
}

// TestMarkOfAnotherPod is taken away while everything is closed, people hear of it, and the pod gets its own.
func TestMarkOfAnotherPod(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.CopyMark("osd.0", "osd.1")
		require.True(s, s.Await(10*time.Second, func() bool { return s.told("ForeignMark") }))
		s.awaitBudget(atRest, time.Minute)
		s.awaitNothingLeft(time.Minute)
	})
}
