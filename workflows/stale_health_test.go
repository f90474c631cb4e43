package workflows_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestHealthOfAnOlderMap: an OSD goes down and comes up again while the next watch of the storage cluster waits for a
// worker. What the last one said is fresh by its own word, and clean, but of an older map than the one that a look
// sees. It proves nothing until there is another.
func TestHealthOfAnOlderMap(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		worker := make(chan struct{})
		frees := sync.OnceFunc(func() { close(worker) })
		defer frees()
		s.update(func() {
			s.onAttempt = func(_ int, info activity.Info) {
				if info.ActivityType.Name == "WatchStorage" {
					<-worker
				}
			}
		})
		s.continueKeeper()
		require.True(s, s.keeperStatus().Health.Fresh)
		s.Hang(true, "osd.2")
		time.Sleep(40 * time.Second) // by then the mons know of it
		s.Hang(false, "osd.2")
		time.Sleep(20 * time.Second) // by then all data is whole again, but nobody has proved it
		s.drain(workflows.DrainNodeInput{Node: "node-a"})
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			require.NotEqual(s, only("x"), s.Budget(), "opened on the health of an older map")
		}
		require.True(s, s.keeperStatus().Health.Fresh, "there is no health, old or new")
		frees()
		s.awaitBudget(only("x"), time.Minute)
		s.tellDrain("node-a", jobs.SignalAbort)
	})
}
