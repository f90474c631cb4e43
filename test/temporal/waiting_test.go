package temporal

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// storm tells a job again and again, each time in other words, why it waits, as in days, until it has continued as new
// so many times more. It comes in gusts, since a server lets no workflow continue as new that has not seen all of its
// signals; and how many of a gust are one event more depends on the machine.
func (s *stage) storm(run client.WorkflowRun, state workflows.LeaseState, runs int) {
	s.Helper()
	claim, _, _ := s.claimOf(run)
	const most = 20 * mostEvents // notices
	for i, until := 0, len(s.runs(run.GetID()))+runs; len(s.runs(run.GetID())) < until; {
		require.Less(s, i, most, "it does not continue as new")
		for range 10 {
			i++
			s.signal(run.GetID(), workflows.SignalLease, workflows.LeaseNotice{
				State: state, RunID: run.GetRunID(), Ask: claim.Ask, Token: claim.Token,
				WaitsFor: fmt.Sprintf("%d of 4096 PGs are clean", i), Since: time.Now(),
			})
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// claimOf is the claim of a job, as its keeper knows it.
func (s *stage) claimOf(run client.WorkflowRun) (c lease.Claim, holds, ok bool) {
	return s.keeper().Lease.Find(run.GetID(), run.GetRunID())
}

func (s *stage) result(run client.WorkflowRun, into any) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	require.NoError(s, s.client.GetWorkflow(ctx, run.GetID(), "").Get(ctx, into), "%+v", s.job(run.GetID()))
}

func (s *stage) phase(run client.WorkflowRun, phase string) {
	s.Helper()
	s.await(run.GetID()+" is "+phase, func() bool { return s.job(run.GetID()).Phase == phase })
}

// TestDrainThatWaitsForDays: a drain waits for the lease and for its node under so many notices that no history could
// hold them. It keeps its claim and its place, hears of everything, and ends as it should.
func TestDrainThatWaitsForDays(t *testing.T) {
	turns.Await(t, "TestDrainThatWaitsForDays", 30*time.Second)
	t.Parallel()
	s := newStage(t, sim.Options{})
	s.await("the budget is at rest", func() bool { return s.Budget() == "at rest, 5 must stay" })
	drain := func(node string) client.WorkflowRun {
		return s.start(jobs.DrainNode.ID(node), jobs.DrainNode.Type,
			workflows.DrainNodeInput{Node: node, Policy: sim.Key.String()})
	}
	first := drain("node-a")
	s.phase(first, workflows.PhaseReturn)
	waits, aborted := drain("node-b"), drain("node-c")
	s.phase(waits, workflows.PhaseLease)
	s.phase(aborted, workflows.PhaseLease)
	s.await("the claims are queued", func() bool { return len(s.keeper().Lease.Queue) == 2 })
	claim, _, _ := s.claimOf(waits)
	since := s.job(waits.GetID()).Since

	s.storm(waits, workflows.LeaseWaiting, 3)
	s.bounded(waits.GetID(), 4)
	is, _, ok := s.claimOf(waits)
	require.True(t, ok, "it keeps its claim")
	require.Equal(t, claim.Requested, is.Requested, "and its place")
	require.Equal(t, since, s.job(waits.GetID()).Since)

	// The server forgets the first run before the job ends, which takes half a minute.
	_, err := s.client.WorkflowService().DeleteWorkflowExecution(t.Context(),
		&workflowservice.DeleteWorkflowExecutionRequest{
			Namespace:         "default",
			WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: waits.GetID(), RunId: waits.GetRunID()},
		})
	require.NoError(t, err)

	// Paused, and aborted, in the middle of a storm.
	s.storm(aborted, workflows.LeaseWaiting, 2)
	s.signal(aborted.GetID(), jobs.SignalPause, nil)
	s.storm(aborted, workflows.LeaseWaiting, 2)
	s.await("it is paused", func() bool { return s.job(aborted.GetID()).Paused })
	s.signal(aborted.GetID(), jobs.SignalAbort, nil)
	var result workflows.DrainNodeResult
	s.result(aborted, &result)
	require.Equal(t, workflows.OutcomeAborted, result.Outcome)
	s.bounded(aborted.GetID(), 5)
	s.await("its claim is gone", func() bool { _, _, has := s.claimOf(aborted); return !has })

	// And the worker that waited for the end of the job is followed by another one.
	s.await("the first run is forgotten", func() bool {
		_, err := s.client.DescribeWorkflowExecution(t.Context(), waits.GetID(), waits.GetRunID())
		return err != nil
	})
	s.worker.Stop()
	s.startWorker()
	time.Sleep(2 * time.Second)
	_, _, ok = s.claimOf(waits)
	require.True(t, ok, "it still runs, so it keeps its claim")

	s.signal(first.GetID(), jobs.SignalDone, nil)
	s.result(first, &result)
	s.phase(waits, workflows.PhaseReturn)
	token := s.keeper().Lease.Token
	s.storm(waits, workflows.LeaseGranted, 2)
	s.signal(waits.GetID(), jobs.SignalDone, nil)
	s.result(waits, &result)
	require.Equal(t, workflows.OutcomeDone, result.Outcome)
	require.Equal(t, token, s.keeper().Lease.Token, "it was granted once")
	s.bounded(waits.GetID(), 5)
	s.bounded(workflows.KeeperID(sim.Key), 2)
	s.await("nothing is left behind", func() bool { return len(s.Leftovers()) == 0 })
	require.Empty(t, s.Violations())
}

// TestRolloutThatWaitsForDays: the same for a rollout, which waits for the lease while somebody drains a node, and is
// paused meanwhile.
func TestRolloutThatWaitsForDays(t *testing.T) {
	turns.Await(t, "TestRolloutThatWaitsForDays", 30*time.Second)
	t.Parallel()
	s := newStage(t, sim.Options{})
	s.await("the budget is at rest", func() bool { return s.Budget() == "at rest, 5 must stay" })
	first := s.start(jobs.DrainNode.ID("node-a"), jobs.DrainNode.Type,
		workflows.DrainNodeInput{Node: "node-a", Policy: sim.Key.String()})
	s.phase(first, workflows.PhaseReturn)

	// It waits for the OSD that is away, and holds no lease.
	run := s.start(jobs.RestartOSDs.ID(sim.Key.Namespace), jobs.RestartOSDs.Type,
		workflows.RestartOSDsInput{Namespace: sim.Key.Namespace, UpdateDomain: "Zone"})
	s.phase(run, workflows.PhaseArrive)
	s.storm(run, workflows.LeaseWaiting, 3)
	s.bounded(run.GetID(), 4)
	s.signal(run.GetID(), jobs.SignalPause, nil)
	s.storm(run, workflows.LeaseWaiting, 1)
	s.bounded(run.GetID(), 5)
	require.True(t, s.job(run.GetID()).Paused)
	s.signal(run.GetID(), jobs.SignalResume, nil)

	s.signal(first.GetID(), jobs.SignalDone, nil)
	var drained workflows.DrainNodeResult
	s.result(first, &drained)
	var result workflows.UpdateOSDsResult
	s.result(run, &result)
	require.Equal(t, workflows.OutcomeDone, result.Outcome)
	require.Equal(t, 6, s.Restarts())
	s.await("nothing is left behind", func() bool { return len(s.Leftovers()) == 0 })
	require.Empty(t, s.Violations())
}
