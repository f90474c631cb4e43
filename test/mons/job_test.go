package mons

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	temporalworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file has MigrateMons move real mons, on a real Temporal. The keeper, which would need OSDs, is stood in for by
// one that grants each claim at once, and notes it.

// job is what MigrateMons runs on.
type job struct {
	*world
	temporal client.Client
	worker   temporalworker.Worker
	holds    *holds
	// dies is the act during which the worker dies; "": none.
	mu   sync.Mutex
	dies monplan.Do
	died chan struct{}
}

// holds is the lease, as the status of the policy would have it.
type holds struct {
	activities.Policies
	mu     sync.Mutex
	state  lease.State
	claims []string // all that were granted
}

func (h *holds) Policy(_ context.Context, key storage.ClusterKey) (activities.Policy, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return activities.Policy{Key: key, Memory: activities.Memory{Lease: h.state}}, nil
}

// Grant is an activity of the stand-in for the keeper.
func (h *holds) Grant(_ context.Context, c lease.Claim) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, _ = h.state.Request(c).Grant(lease.Rules{
		Together: lease.SameDomain, Gate: func(lease.Claim) storage.Answer { return storage.Answer{OK: true} },
	}, time.Now())
	had, _, _ := h.state.Find(c.WorkflowID, c.RunID)
	h.claims = append(h.claims, c.Domain.Name)
	return had.Token, nil
}

// Return is an activity of the stand-in for the keeper.
func (h *holds) Return(_ context.Context, r workflows.LeaseRef) (struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = h.state.Release(r.WorkflowID, r.RunID)
	return struct{}{}, nil
}

// keeper grants whatever is asked for.
func (h *holds) keeper(ctx workflow.Context, _ workflows.KeeperInput) (workflows.KeeperResult, error) {
	options := workflow.ActivityOptions{StartToCloseTimeout: time.Minute}
	ctx = workflow.WithActivityOptions(ctx, options)
	err := workflow.SetUpdateHandler(ctx, workflows.UpdateRequestLease,
		func(ctx workflow.Context, r workflows.LeaseRequest) error {
			var token int64
			ctx = workflow.WithActivityOptions(ctx, options)
			if err := workflow.ExecuteActivity(ctx, h.Grant, r.Claim).Get(ctx, &token); err != nil {
				return err
			}
			return workflow.SignalExternalWorkflow(ctx, r.Claim.WorkflowID, "", workflows.SignalLease, workflows.LeaseNotice{
				State: workflows.LeaseGranted, RunID: r.Claim.RunID, Ask: r.Claim.Ask, Token: token,
			}).Get(ctx, nil)
		})
	if err != nil {
		return workflows.KeeperResult{}, err
	}
	finish := workflow.GetSignalChannel(ctx, workflows.SignalFinishLease)
	release := workflow.GetSignalChannel(ctx, workflows.SignalReleaseLease)
	for {
		var r workflows.LeaseRef
		done := false
		workflow.NewSelector(ctx).
			AddReceive(finish, func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, &r); done = true }).
			AddReceive(release, func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, &r) }).
			Select(ctx)
		if err := workflow.ExecuteActivity(ctx, h.Return, r).Get(ctx, nil); err != nil {
			return workflows.KeeperResult{}, err
		}
		if done {
			_ = workflow.SignalExternalWorkflow(ctx, r.WorkflowID, "", workflows.SignalLease, workflows.LeaseNotice{
				State: workflows.LeaseReleased, RunID: r.RunID, Ask: r.Ask,
			}).Get(ctx, nil)
		}
	}
}

// onTemporal has MigrateMons move the mons of a world.
func onTemporal(t *testing.T, w *world) *job {
	t.Helper()
	program := filepath.Join(*root, "lab", "bin", "temporal")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("this test needs the lab's Temporal: run `make lab/bin/temporal` first (%v)", err)
	}
	dev, err := testsuite.StartDevServer(t.Context(), testsuite.DevServerOptions{
		ExistingPath: program, ExtraArgs: []string{"--disable-config-env", "--disable-config-file"}, LogLevel: "error",
		Stdout: io.Discard, Stderr: io.Discard, ClientOptions: &client.Options{Logger: quiet{}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = dev.Stop() })
	j := &job{world: w, temporal: dev.Client(), holds: &holds{}, died: make(chan struct{}, 1)}
	j.work()
	t.Cleanup(func() { j.worker.Stop() })
	return j
}

func (j *job) work() {
	j.worker = temporalworker.New(j.temporal, workflows.TaskQueue, temporalworker.Options{
		WorkerStopTimeout: time.Millisecond, Interceptors: []interceptor.WorkerInterceptor{&killer{job: j}},
	})
	j.worker.RegisterWorkflowWithOptions(j.holds.keeper, workflow.RegisterOptions{Name: jobs.Keeper.Type})
	j.worker.RegisterActivity(j.holds.Grant)
	j.worker.RegisterActivity(j.holds.Return)
	j.worker.RegisterWorkflowWithOptions(workflows.MigrateMons, workflow.RegisterOptions{Name: jobs.MigrateMons.Type})
	j.worker.RegisterActivityWithOptions(&activities.MonJob{Mons: j.mons, Policies: j.holds}, activity.RegisterOptions{})
	j.worker.RegisterActivityWithOptions(&activities.Drain{Keepers: worker.NewTemporal(j.temporal)},
		activity.RegisterOptions{})
	require.NoError(j, j.worker.Start())
}

// killer has the worker die in the middle of an act: what the act does may be done, and nobody hears of it.
type killer struct {
	interceptor.WorkerInterceptorBase
	job *job
}

func (k *killer) InterceptActivity(
	_ context.Context, next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	return &killed{interceptor.ActivityInboundInterceptorBase{Next: next}, k.job}
}

type killed struct {
	interceptor.ActivityInboundInterceptorBase
	job *job
}

func (k *killed) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if activity.GetInfo(ctx).ActivityType.Name == "CarryOutMon" && len(in.Args) == 1 {
		step := in.Args[0].(activities.MonStepInput)
		k.job.mu.Lock()
		dies := k.job.dies != "" && step.Seen.Step.Acts[0].Do == k.job.dies
		if dies {
			k.job.dies = ""
		}
		k.job.mu.Unlock()
		if dies {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // in the middle
			defer cancel()
			_, _ = k.Next.ExecuteActivity(ctx, in)
			k.job.died <- struct{}{}
			<-context.WithoutCancel(ctx).Done() // a nil channel: for ever
		}
	}
	return k.Next.ExecuteActivity(ctx, in)
}

// migrate runs the job to its end.
func (j *job) migrate(in workflows.MigrateMonsInput) workflows.MigrateMonsResult {
	j.Helper()
	in.CephMon = j.ref.String()
	run, err := j.temporal.ExecuteWorkflow(j.Context(), client.StartWorkflowOptions{
		ID: jobs.MigrateMons.ID(j.ref.Namespace, j.ref.Name), TaskQueue: workflows.TaskQueue,
	}, jobs.MigrateMons.Type, in)
	require.NoError(j, err)
	ctx, stop := context.WithTimeout(j.Context(), 5*time.Minute)
	defer stop()
	go func() {
		for {
			select {
			case <-j.died:
				old := j.worker
				go old.Stop() // its activity never ends
				j.work()
			case <-ctx.Done():
				return
			}
		}
	}()
	var out workflows.MigrateMonsResult
	if err := run.Get(ctx, &out); err != nil {
		answer, asked := j.temporal.QueryWorkflow(j.Context(), run.GetID(), "", workflows.QueryStatus)
		var s workflows.MigrateMonsStatus
		if asked == nil {
			_ = answer.Get(&s)
		}
		require.NoError(j, err, "it waits for %s in phase %s; %v", s.WaitsFor, s.Phase, s.Survey.Step)
	}
	events := 0
	for iter := j.temporal.GetWorkflowHistory(j.Context(), run.GetID(), run.GetRunID(), false,
		0); iter.HasNext(); events++ {
		_, err := iter.Next()
		require.NoError(j, err)
	}
	j.Logf("%s after %s with %d events: %v %s", out.Outcome, out.Took, events, out.Steps, out.Why)
	return out
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// TestJobMovesToClaims moves all mons, under write load, while the worker dies in the middle of five acts.
func TestJobMovesToClaims(t *testing.T) {
	turns.Await(t, "TestJobMovesToClaims", time.Minute)
	w := start(t, "job", 3, 2)
	w.want("zones: [{name: job-zone-0}, {name: job-zone-1}, {name: job-zone-2}]")
	j := onTemporal(t, w)
	out := j.migrate(workflows.MigrateMonsInput{})
	assert.Equal(t, workflows.OutcomeDone, out.Outcome)
	assert.Empty(t, out.Steps, "adopted mons are left alone")
	w.respec(`{"spec":{"volumeClaimTemplate":{"spec":{"storageClassName":"zone-disk"}}}}`)
	out = j.migrate(workflows.MigrateMonsInput{Migrate: true})
	assert.Equal(t, workflows.OutcomeRefused, out.Outcome)
	assert.Contains(t, out.Why, "zone-disk", "there is no such class")
	w.class("zone-disk")

	stop := w.load()
	j.dies = monplan.Start
	out = j.migrate(workflows.MigrateMonsInput{Migrate: true})
	writes, longest := stop()
	t.Logf("%d writes, the longest took %s", writes, longest)
	assert.Equal(t, workflows.OutcomeDone, out.Outcome)
	assert.Equal(t, []string{
		"Migrate: mon.d for mon.a", "Migrate: mon.e for mon.b", "Migrate: mon.f for mon.c",
	}, out.Steps)
	assert.Equal(t, []string{"d", "e", "f"}, w.quorum())
	assert.Equal(t, []string{"a", "b", "c"}, j.holds.claims, "each under the lease of the mon that it takes away")
	assert.Empty(t, j.holds.state.Holders)
	w.named("d e f", "d e f", "d e f")
}
