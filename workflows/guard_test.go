package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestDeleters: where deletions are guarded, clients that delete everything all the time harm nobody, as long as the
// API server reads the budgets as they are. One that is late lets go what has just been closed, which may do harm when
// the next failure domain opens at once (ADR 23).
func TestDeleters(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		deleted := s.Deleters(20*time.Minute, 10*time.Millisecond, 0)
		time.Sleep(10 * time.Second)
		require.Zero(s, deleted(), "at rest none goes")
		for range 2 {
			for _, node := range []string{"node-a", "node-b", "node-c"} {
				require.NoError(s, <-s.KubectlDrain(node))
				s.Reboot(node)
				s.PersonCordons(node, false)
			}
		}
		require.Positive(s, deleted())
		s.awaitNothingLeft(time.Minute)
	})
}
