// Package crowd keeps a keeper busy: many jobs that wait for the lease, and one that holds it.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// A job of the crowd wants the lease as a drain does, hears what becomes of its claim, and does nothing. It runs on a
// worker of its own, so that lockkeeper's has the keeper's work alone.
const (
	jobType  = "BenchJob"
	jobQueue = "lockkeeper-bench"
)

// patience is how long one step may take.
const patience = 2 * time.Minute

const (
	attempts     = 10
	attemptEvery = 200 * time.Millisecond
)

// Crowd is one that is there.
type Crowd struct {
	temporal client.Client
	keeper   string
	worker   worker.Worker
	holder   lease.Claim
	waiting  []lease.Claim
	heard    atomic.Int64
}

// Hold starts the job that wants the lease of a failure domain.
func Hold(
	ctx context.Context, temporal client.Client, cluster storage.ClusterKey, held storage.FailureDomain,
) (*Crowd, error) {
	c := &Crowd{temporal: temporal, keeper: workflows.KeeperID(cluster)}
	c.worker = worker.New(temporal, jobQueue, worker.Options{})
	c.worker.RegisterWorkflowWithOptions(c.job, workflow.RegisterOptions{Name: jobType})
	if err := c.worker.Start(); err != nil {
		return nil, err
	}
	var err error
	if c.holder, err = c.begin(ctx, "bench-holder", held); err == nil {
		err = c.ask(ctx, c.holder)
	}
	if err != nil {
		return nil, errors.Join(err, c.Disperse(ctx))
	}
	return c, nil
}

// Fill starts the jobs that wait, each for the lease of one of these failure domains, and returns when all have asked.
func (c *Crowd) Fill(ctx context.Context, jobs int, domains []storage.FailureDomain) error {
	c.waiting = make([]lease.Claim, jobs)
	err := c.each(ctx, func(ctx context.Context, i int) error {
		var err error
		c.waiting[i], err = c.begin(ctx, fmt.Sprintf("bench-%03d", i), domains[i%len(domains)])
		return err
	})
	if err != nil {
		return err
	}
	return c.AskAgain(ctx)
}

// Silence waits until nobody has heard anything for a while.
func (c *Crowd) Silence(ctx context.Context) error {
	for last := int64(-1); last != c.heard.Load(); {
		last = c.heard.Load()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// asksPerSecond is how many jobs lockkeeper tells in a second when many are to hear something new. As fast as they can,
// the jobs alone would take all processors, and it would be their own load that is measured.
const asksPerSecond = 40

// AskAgain has every job that waits ask again: it keeps its place in the queue, and is told where it stands once more.
func (c *Crowd) AskAgain(ctx context.Context) error {
	pace := rate.NewLimiter(asksPerSecond, 1)
	return c.each(ctx, func(ctx context.Context, i int) error {
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		return c.ask(ctx, c.waiting[i])
	})
}

// Busy has every job ask again, and returns when the keeper has begun to tell them; how many it has told since is told
// by the function that it returns. asked ends when all have asked.
func (c *Crowd) Busy(ctx context.Context) (told func() int64, asked <-chan error, err error) {
	began := c.heard.Load()
	told = func() int64 { return c.heard.Load() - began }
	done := make(chan error, 1)
	go func() { done <- c.AskAgain(ctx) }()
	for told() == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("in vain for the first notice: %w", ctx.Err())
		}
	}
	return told, done, nil
}

// Disperse ends all jobs.
func (c *Crowd) Disperse(ctx context.Context) error {
	defer c.worker.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := c.each(ctx, func(ctx context.Context, i int) error { return c.end(ctx, c.waiting[i]) })
	// The holder last, or somebody else would be granted the lease.
	return errors.Join(err, c.end(ctx, c.holder))
}

// job is the workflow.
func (c *Crowd) job(ctx workflow.Context) error {
	notices := workflow.GetSignalChannel(ctx, workflows.SignalLease)
	for ctx.Err() == nil {
		var n workflows.LeaseNotice
		notices.Receive(ctx, &n)
		if !workflow.IsReplaying(ctx) {
			c.heard.Add(1)
		}
	}
	return ctx.Err()
}

// begin starts a job, which does not ask by itself.
func (c *Crowd) begin(ctx context.Context, name string, domain storage.FailureDomain) (lease.Claim, error) {
	id := jobs.DrainNode.ID(name)
	run, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: jobQueue}, jobType)
	if err != nil {
		return lease.Claim{}, err
	}
	return lease.Claim{
		WorkflowID: id, RunID: run.GetRunID(), Domain: domain, Reason: "bench",
		Priority: jobs.DrainNode.Priority,
	}, nil
}

// ask asks until the keeper has heard: while it continues as new it may not, and the activity of a real job would ask
// again, too.
func (c *Crowd) ask(ctx context.Context, claim lease.Claim) (err error) {
	for range attempts {
		if err = c.askOnce(ctx, claim); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(attemptEvery)
	}
	return err
}

func (c *Crowd) askOnce(ctx context.Context, claim lease.Claim) error {
	update, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: c.keeper, UpdateName: workflows.UpdateRequestLease, Args: []any{workflows.LeaseRequest{Claim: claim}},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = update.Get(ctx, nil)
	}
	if err != nil {
		return fmt.Errorf("%s asks for the lease: %w", claim.WorkflowID, err)
	}
	return nil
}

func (c *Crowd) end(ctx context.Context, claim lease.Claim) error {
	if claim.RunID == "" {
		return nil
	}
	return c.temporal.TerminateWorkflow(ctx, claim.WorkflowID, claim.RunID, "the bench is over")
}

// each does something for every job that waits. Temporal takes ten updates of a workflow at a time.
func (c *Crowd) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range c.waiting {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}
