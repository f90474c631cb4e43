package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestDeleters: where deletions are guarded, clients that delete everything all the time harm nobody, neither by an API
// server that reads the budgets as they are nor by one that is late.
func TestDeleters(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]time.Duration{"at once": 0, "late": time.Second, "very late": 7 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				deleted := s.Deleters(6*time.Minute, 10*time.Millisecond+late/3, late)
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
