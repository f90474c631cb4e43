package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestADeadOSDIsMarkedIn: nobody misses an OSD whose disk died and whose data has moved. Somebody marks it in, and
// before anything can be heard of the data, an OSD of another failure domain goes.
func TestADeadOSDIsMarkedIn(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		s.BreakDisk(0)
		s.awaitBudget("at rest, 10 must stay", 2*time.Minute) // it is out, and its data is elsewhere
		s.StopManager(true)
		for _, node := range []string{"node-a", "node-b"} {
			s.PersonSetsNoout(node, true) // or Ceph marks it out again
		}
		s.MarkOut("osd.0", false)
		time.Sleep(10 * time.Second)
		s.Kill("osd.2", 3*time.Minute)
		time.Sleep(2 * time.Minute)
		require.Equal(s, "closed", s.Budget())
		s.MarkOut("osd.0", true)
		for _, node := range []string{"node-a", "node-b"} {
			s.PersonSetsNoout(node, false)
		}
		s.StopManager(false)
		s.awaitNothingLeft(5 * time.Minute)
	})
}
