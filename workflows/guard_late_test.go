package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestDeletersAtALateServer: where deletions are guarded, each API server reads the budgets from a cache of its own.
// One that is late lets go what has just been closed. As long as it is no later than it takes from one open failure
// domain to the next one, a round of reports of all OSDs at least, that harms nobody: here a second. Servers that are
// two seconds late do harm.
func TestDeletersAtALateServer(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			t.Parallel()
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				deleted := s.Deleters(20*time.Minute, 10*time.Millisecond, late)
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
		})
	}
}
