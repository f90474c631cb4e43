package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		s.AnotherPolicy(true)
		s.awaitPhase("node-a", workflows.PhaseLease, time.Minute)
		s.AnotherPolicy(false)
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		s.tellDrain("node-a", jobs.SignalDone)
		e := s.awaitEnd("node-a", run, time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
	})
}
