package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

const anotherFSID = "11111111-0000-4000-8000-000000000000"

// TestClaimsBeforeItOpens: before anything opens, the policy's status says which Ceph cluster its keeper looks after.
func TestClaimsBeforeItOpens(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		require.Equal(s, "none", s.Claim())
		s.settle()
		require.Equal(s, sim.FSID+", claimed", s.Claim())
		s.LoseClaim()
		require.True(s, s.Await(5*time.Second, func() bool { return s.Claim() == sim.FSID+", claimed" }),
			"the claim is written again")
		s.awaitBudget(atRest, 5*time.Second)
		s.awaitNothingLeft(0)
	})
}

// TestOlderPolicyElsewhere: a keeper whose Ceph cluster an older policy of another namespace looks after keeps
// everything closed, says why, and takes over when the other one is gone, or means another Ceph.
func TestOlderPolicyElsewhere(t *testing.T) {
	t.Parallel()
	older := &sim.Elsewhere{Older: true, FSID: sim.FSID, Claimed: true}
	play(t, sim.Options{}, func(s *scene) {
		s.PolicyElsewhere(older)
		s.startKeeper()
		time.Sleep(time.Minute)
		require.Equal(s, "closed", s.Budget())
		require.Equal(s, budget.ReasonSecondPolicy, s.Status().Reason)
		require.Contains(s, s.Status().Message, "MaintenancePolicy a-zoo/ceph was first")
		require.Equal(s, "no", s.Status().MayDrain)
		require.Equal(s, sim.FSID, s.Claim())
		require.ErrorContains(s, s.awaitEnd("node-a", s.drain(ofThis("node-a")), time.Minute).err,
			"MaintenancePolicy a-zoo/ceph was first")
		require.False(s, s.Cordoned("node-a"), "nothing was changed")

		s.PolicyElsewhere(&sim.Elsewhere{Older: true, FSID: anotherFSID, Claimed: true})
		s.awaitBudget(atRest, 5*time.Second)
		require.Equal(s, sim.FSID+", claimed", s.Claim())
		s.PolicyElsewhere(older)
		s.awaitBudget("closed", 5*time.Second)
		s.PolicyElsewhere(nil)
		s.awaitBudget(atRest, 5*time.Second)
		s.awaitNothingLeft(0)
	})
}

// TestBecomesSecondElsewhere: an older policy of another namespace was edited in the middle of a drain, and means the
// same Ceph cluster now. The claim goes when all that was done is taken back, and not before.
func TestBecomesSecondElsewhere(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(ofThis("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		require.Equal(s, "lockkeeper", s.Noout("node-a"))
		s.PolicyElsewhere(&sim.Elsewhere{Older: true, FSID: sim.FSID, Claimed: true})
		for s.Claim() != sim.FSID {
			if s.Noout("node-a") == "" {
				require.Equal(s, "closed", s.Budget())
			}
			require.True(s, s.Await(time.Minute, func() bool { return s.Noout("node-a") == "" || s.Claim() == sim.FSID }))
			if s.Claim() == sim.FSID {
				break
			}
			time.Sleep(time.Millisecond)
		}
		require.Empty(s, s.Noout("node-a"), "the claim goes last")
		require.Equal(s, "closed", s.Budget())
		s.tellDrain("node-a", jobs.SignalDone)
		require.Equal(s, workflows.OutcomeRevoked, s.awaitEnd("node-a", run, time.Minute).result.Outcome)
		require.Empty(s, s.keeperStatus().Lease.Holders)
		s.PolicyElsewhere(nil)
		s.awaitBudget(atRest, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}

// TestYoungerPolicyElsewhere: the younger policy came to its keeper first. Nothing opens until it has taken back what
// it did.
func TestYoungerPolicyElsewhere(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.PolicyElsewhere(&sim.Elsewhere{FSID: sim.FSID, Claimed: true})
		s.startKeeper()
		time.Sleep(3 * time.Minute)
		require.Equal(s, "closed", s.Budget())
		require.Equal(s, budget.ReasonNotInCharge, s.Status().Reason)
		require.Contains(s, s.Status().Message, "MaintenancePolicy zoo/ceph, which is younger")
		require.Equal(s, sim.FSID+", claimed", s.Claim())
		s.drain(ofThis("node-a"))
		s.awaitPhase("node-a", acquiringLease, 30*time.Second)
		time.Sleep(time.Minute)
		require.False(s, s.Cordoned("node-a"))
		s.PolicyElsewhere(&sim.Elsewhere{FSID: sim.FSID})
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		s.tellDrain("node-a", jobs.SignalAbort)
		s.awaitBudget(atRest, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}

// TestMeansAnotherCeph: the policy was edited in the middle of a drain and means another Ceph cluster. What was done
// for the first one is taken back before the other one is claimed, and flags in the other one are not touched.
func TestMeansAnotherCeph(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(ofThis("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		require.Equal(s, "lockkeeper", s.Noout("node-a"))
		s.PolicyElsewhere(&sim.Elsewhere{FSID: anotherFSID, Claimed: true})
		s.AnotherCeph(anotherFSID) // this looks the same, down to the noout on node-a, which is not ours there
		require.True(s, s.Await(time.Minute, func() bool { return s.Claim() == anotherFSID+", claimed" }))
		s.awaitBudget("closed", time.Second)
		require.Equal(s, "a person", s.Noout("node-a"), "as it was")
		require.Empty(s, s.keeperStatus().Flags)
		require.Empty(s, s.keeperStatus().Lease.Holders)
		s.tellDrain("node-a", jobs.SignalAbort)
		s.awaitEnd("node-a", run, time.Minute)
		s.PolicyElsewhere(nil)
		s.awaitBudget(atRest, 2*time.Minute)
	})
}
