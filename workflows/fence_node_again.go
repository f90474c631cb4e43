package workflows

import "go.temporal.io/sdk/workflow"

// This file is a node that fails again when it was fenced and the storage heals under the lease of its failure domain.
// What is missed because of that may never heal without another fence.

// failsUnderLease is the change since when that is noticed.
const failsUnderLease = "fails-under-lease"

// watchOver looks at the node while the storage heals under the lease, until stop is called.
func (f *fence) watchOver(ctx workflow.Context) (stop func()) {
	ctx, stop = workflow.WithCancel(ctx)
	if workflow.GetVersion(ctx, failsUnderLease, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return stop
	}
	f.failed = false
	workflow.Go(ctx, func(ctx workflow.Context) {
		for !f.failed {
			//nolint:forbidigo // beside the job's own wait, which ends when the history is full
			if err := workflow.Await(ctx, f.heard); err != nil {
				return
			}
			if err := f.examine(ctx); err != nil {
				return // whoever waits for the data to be whole looks again
			}
			f.failed = len(f.state.Clusters) > 0 && f.failsAgain()
		}
		f.state.Stale = true // it is looked at once more when the lease was given back
	})
	return stop
}

// heard: something is new of a node that was fenced.
func (f *fence) heard() bool { return f.state.Settled && f.state.Stale && len(f.state.Clusters) > 0 }

// hasFailed ends the wait under the lease.
func (f *fence) hasFailed() bool { return f.failed }

// healUnderLease goes on waiting where the run before ended.
func (f *fence) healUnderLease(ctx workflow.Context) error {
	defer f.watchOver(ctx)()
	return f.job.underLease(ctx, []request{{hurry: f.hasFailed}}, nil)
}
