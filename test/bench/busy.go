package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// A job of the bench wants the lease as a drain does, hears what becomes of its claim, and does nothing. It runs on a worker of the
// bench's own, so that lockkeeper's has the keeper's work alone.
const (
	jobType  = "BenchJob"
	jobQueue = "lockkeeper-bench"
)

const zoneLabel = "topology-location-zone"

// crowd are jobs that wait for the lease, and one that holds it for a failure domain which the budgets leave open meanwhile.
type crowd struct {
	*world
	worker worker.Worker
	held   string // the failure domain that is open
	claims []lease.Claim
	holder lease.Claim
	heard  atomic.Int64 // notices
}

// gather starts the jobs, and returns when one holds the lease and all others were told that they wait.
func (w *world) gather(ctx context.Context, jobs int) (*crowd, error) {
	osds, err := w.osds(ctx)
	if err != nil {
		return nil, err
	}
	c := &crowd{world: w, held: osds[0].Spec.Template.Labels[zoneLabel]}
	var others []string
	for i := range osds {
		if zone := osds[i].Spec.Template.Labels[zoneLabel]; zone != c.held {
			others = append(others, zone)
		}
	}
	c.worker = worker.New(w.temporal, jobQueue, worker.Options{MaxConcurrentWorkflowTaskPollers: 4})
	c.worker.RegisterWorkflowWithOptions(c.job, workflow.RegisterOptions{Name: jobType})
	if err := c.worker.Start(); err != nil {
		return nil, err
	}
	if c.holder, err = c.begin(ctx, "bench-holder", c.held); err != nil {
		return c, err
	}
	if err := c.ask(ctx, c.holder); err != nil {
		return c, err
	}
	if err := c.isOpen(ctx); err != nil {
		return c, err
	}
	c.claims = make([]lease.Claim, jobs)
	if err := c.each(ctx, func(ctx context.Context, i int) error {
		var err error
		c.claims[i], err = c.begin(ctx, fmt.Sprintf("bench-%03d", i), others[i%len(others)])
		return err
	}); err != nil {
		return c, err
	}
	return c, c.askAll(ctx)
}

// job is the workflow.
func (c *crowd) job(ctx workflow.Context) error {
	notices := workflow.GetSignalChannel(ctx, workflows.SignalLease)
	for {
		var n workflows.LeaseNotice
		notices.Receive(ctx, &n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !workflow.IsReplaying(ctx) {
			c.heard.Add(1)
		}
	}
}

// begin starts a job, which does not ask by itself.
func (c *crowd) begin(ctx context.Context, name, zone string) (lease.Claim, error) {
	id := workflows.DrainID(name)
	run, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: jobQueue}, jobType)
	if err != nil {
		return lease.Claim{}, err
	}
	return lease.Claim{
		WorkflowID: id, RunID: run.GetRunID(), Domain: storage.FailureDomain{Type: "zone", Name: zone}, Reason: "bench", Priority: lease.PriorityDrain,
	}, nil
}

// ask asks for the lease. To ask once more keeps the place in the queue, and is answered once more.
func (c *crowd) ask(ctx context.Context, claim lease.Claim) error {
	update, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: c.keeperID(), UpdateName: workflows.UpdateRequestLease, Args: []any{workflows.LeaseRequest{Claim: claim}},
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

func (c *crowd) askAll(ctx context.Context) error {
	return c.each(ctx, func(ctx context.Context, i int) error { return c.ask(ctx, c.claims[i]) })
}

// each does something for every waiting job. Temporal takes ten updates of a workflow at a time.
func (c *crowd) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range c.claims {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

func (c *crowd) isOpen(ctx context.Context) error {
	b, err := c.watchBudgets(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()
	_, err = b.until(ctx, c.held+" is open", func(b budgets) bool { return b.opensFor(c.held) })
	return err
}

// silence waits until nobody has heard anything for a while.
func (c *crowd) silence(ctx context.Context) error {
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

// busy is one event: an OSD elsewhere stops while the keeper tells everybody where they stand.
type busy struct {
	pod          string
	reaction     time.Duration
	before, then int64 // jobs that had been told when the pod stopped being ready, and when the budgets were closed
}

// stopOneMeanwhile has all jobs ask again, and stops an OSD of another failure domain than the one that is open once the keeper has
// begun to tell them.
func (c *crowd) stopOneMeanwhile(ctx context.Context, i int) (busy, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := c.isOpen(ctx); err != nil {
		return busy{}, err
	}
	if err := c.silence(ctx); err != nil {
		return busy{}, err
	}
	all, err := c.osds(ctx)
	if err != nil {
		return busy{}, err
	}
	var osds []appsv1.Deployment
	for _, o := range all {
		if o.Spec.Template.Labels[zoneLabel] != c.held {
			osds = append(osds, o)
		}
	}
	began := c.heard.Load()
	asking := make(chan error, 1)
	var e busy
	s, err := c.stopOSD(ctx, osds[i%len(osds)], func() error {
		go func() { asking <- c.askAll(ctx) }()
		for c.heard.Load() == began { // the keeper tells what it has to tell when it has looked
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("in vain for the first notice: %w", ctx.Err())
			}
		}
		e.before = c.heard.Load() - began
		return nil
	})
	if err != nil {
		return busy{}, err
	}
	s.budgets.Stop()
	e.pod, e.reaction, e.then = s.pod.Name, s.closed.Sub(s.down), c.heard.Load()-began
	return e, <-asking
}

// disperse ends all jobs.
func (c *crowd) disperse(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	end := func(ctx context.Context, claim lease.Claim) error {
		if claim.RunID == "" {
			return nil
		}
		return c.temporal.TerminateWorkflow(ctx, claim.WorkflowID, claim.RunID, "the bench is over")
	}
	err := c.each(ctx, func(ctx context.Context, i int) error { return end(ctx, c.claims[i]) })
	if err == nil {
		err = end(ctx, c.holder) // last, or somebody else would be granted the lease
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "end the jobs of the bench:", err)
	}
	c.worker.Stop()
}
