package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

const someTaint = "example.com/repair"

func taintOf(node string) workflows.DrainNodeInput {
	return workflows.DrainNodeInput{Node: node, Taint: someTaint}
}

// TestATaintDrivesPodsOffInTheirTurn: a node whose taint drives its pods off is emptied under the lease, and is back
// when the taint is gone.
func TestATaintDrivesPodsOffInTheirTurn(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		s.Taint("node-a", someTaint)
		run := s.drain(taintOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		require.True(s, s.Evicted("node-a"))
		require.True(s, s.Cordoned("node-a"))
		require.Equal(s, "lockkeeper", s.Noout("node-a"))
		require.Equal(s, only("x"), s.Budget())
		require.Contains(s, s.drainStatus("node-a").WaitsFor, "node-a to be Ready without the taint "+someTaint)
		s.PersonCordons("node-a", false)
		time.Sleep(10 * time.Minute)
		require.Equal(s, only("x"), s.Budget(), "its pods cannot come back as long as the taint is there")
		s.Taint("node-a", "")
		e := s.awaitEnd("node-a", run, 2*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
		require.Equal(s, 3, e.result.Evicted, "two OSDs and a mon")
		s.awaitNothingLeft(0)
	})
}

// TestATaintThatIsTakenBack: nothing goes for it any more, whatever the drain was waiting for.
func TestATaintThatIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]func(s *scene) (begins func()){
		"while it waits for the lease": func(s *scene) func() {
			first := s.drain(drainOf("node-b"))
			s.awaitPhase("node-b", awaitingNode, 30*time.Second)
			return func() {
				s.tellDrain("node-b", jobs.SignalDone)
				s.awaitEnd("node-b", first, 2*time.Minute)
			}
		},
		"while it is paused": func(s *scene) func() { return func() { s.tellDrain("node-a", jobs.SignalResume) } },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				begins := waits(s)
				s.Taint("node-a", someTaint)
				run := s.drain(taintOf("node-a"))
				if name == "while it is paused" {
					s.tellDrain("node-a", jobs.SignalPause)
				}
				time.Sleep(time.Minute)
				s.Taint("node-a", "")
				time.Sleep(10 * time.Second)
				begins()
				e := s.awaitEnd("node-a", run, 2*time.Minute)
				require.NoError(s, e.err)
				require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
				require.Zero(s, e.result.Evicted)
				require.False(s, s.Evicted("node-a"))
				require.False(s, s.Cordoned("node-a"))
				s.awaitNothingLeft(0)
			})
		})
	}
}
