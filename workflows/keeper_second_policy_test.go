package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

const wasFirst = "MaintenancePolicy rook-ceph/a-first was first"

// ofThis is a drain that names the policy. One that does not would go on under the other, whose keeper is not
// simulated.
func ofThis(node string) workflows.DrainNodeInput {
	return workflows.DrainNodeInput{Node: node, Policy: sim.Key.String()}
}

// TestSecondPolicy: a keeper whose storage cluster another policy looks after manages nothing, says so, and takes over
// when the other one is gone.
func TestSecondPolicy(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.AnotherPolicy(true)
		s.startKeeper()
		time.Sleep(time.Minute)
		require.Equal(s, "closed", s.Budget(), "the other policy's")
		require.Equal(s, budget.ReasonSecondPolicy, s.Status().Reason)
		require.Contains(s, s.Status().Message, wasFirst)
		require.Equal(s, "no", s.Status().MayDrain)

		e := s.awaitEnd("node-a", s.drain(ofThis("node-a")), time.Minute)
		require.ErrorContains(s, e.err, wasFirst)
		require.False(s, s.Cordoned("node-a"), "nothing was changed")
		s.PersonCordons("node-a", true)
		s.KillOSD(0)
		time.Sleep(time.Minute)
		require.Equal(s, "closed", s.Budget())
		require.False(s, s.runs("drain/node-a"), "the drain is the other policy's to observe")
		s.PersonCordons("node-a", false)
		time.Sleep(time.Minute)

		s.AnotherPolicy(false)
		s.awaitBudget(atRest, 5*time.Second)
		s.awaitNothingLeft(0)
	})
}

// TestBecomesSecond: a policy was edited in the middle of a drain, so that the older one means the same cluster. All
// that is this one's goes, and no drain believes that it is guarded.
func TestBecomesSecond(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(ofThis("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		waiting := s.drain(ofThis("node-c"))
		s.awaitPhase("node-c", acquiringLease, 30*time.Second)
		require.Equal(s, "lockkeeper", s.Noout("node-a"))
		s.AnotherPolicy(true)
		require.ErrorContains(s, s.awaitEnd("node-c", waiting, time.Minute).err, wasFirst)
		require.True(s, s.Await(30*time.Second, func() bool { return s.Noout("node-a") == "" }))
		require.True(s, s.Await(time.Minute, func() bool {
			return slices.Equal(s.BudgetsOf(), []string{"a-first"})
		}), "its keeper has put its own in the place of ours: %s", s.BudgetsOf())
		require.Equal(s, awaitingNode, s.drainStatus("node-a").Phase,
			"its node is away all the same, and the drain says that nothing guards it")
		s.tellDrain("node-a", jobs.SignalDone)
		require.Equal(s, workflows.OutcomeRevoked, s.awaitEnd("node-a", run, time.Minute).result.Outcome)
		require.False(s, s.Cordoned("node-a"), "the drain uncordons what it cordoned")
		require.Empty(s, s.keeperStatus().Lease.Holders)
		require.Empty(s, s.keeperStatus().Trouble)
		s.AnotherPolicy(false)
		s.awaitBudget(atRest, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}

// TestBudgetsStayThatAreWantedAgain: no worker ran when a person had the budgets removed, and it is taken back by the
// time that one does. A removal that was begun before leaves what it has not removed yet.
func TestBudgetsStayThatAreWantedAgain(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		attempts := 0
		s.update(func() {
			s.onAttempt = func(_ int, info activity.Info) {
				if info.ActivityType.Name != "ReleasePods" {
					return
				}
				if attempts++; attempts == 1 {
					s.Manage(true)
				}
			}
		})
		s.Manage(false)
		require.True(s, s.Await(time.Minute, func() bool { return attempts > 0 }))
		s.awaitBudget(atRest, time.Minute)
		require.NotContains(s, strings.Join(s.Story(), "\n"), "deletes the")
		s.Manage(false)
		require.True(s, s.Await(time.Minute, func() bool { return len(s.BudgetsOf()) == 0 }), "%s", s.BudgetsOf())
	})
}
