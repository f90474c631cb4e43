package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestAVisitThatLosesItsLease: another policy takes over for a while, whose keeper knows nothing of the visit. It does
// not go on as if it had a lease, and asks for it anew.
func TestAVisitThatLosesItsLease(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.start(jobs.DrainNode.ID("node-a"), visitType, workflows.VisitInput{Node: "node-a"})
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		other := true // while it is there nothing can be found out, or the visit would go on under it
		s.update(func() {
			s.fault = func(_ int, info activity.Info) fault {
				if other && info.ActivityType.Name == "ResolveNode" {
					return notDone
				}
				return noFault
			}
		})
		s.AnotherPolicy(true)
		s.awaitPhase("node-a", workflows.PhaseResolve, time.Minute)
		s.AnotherPolicy(false)
		time.Sleep(2 * time.Second)
		s.update(func() { other = false })
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		s.tellDrain("node-a", jobs.SignalDone)
		e := s.awaitEnd("node-a", run, time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
	})
}
