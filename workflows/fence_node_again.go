package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// This file is a node that fails again, or that nothing holds any more, when it was fenced and the storage heals under
// the lease of its failure domain. What is missed because of a node that failed again may never heal without another
// fence; and a fence that nothing holds back would not hear of it.

// hearsToTheEnd is the change since when a job looks at what is reported while it ends, of which nobody else hears, and
// at a Machine that is deleted while the storage heals; since its second version also at what a person says then, and
// at what it saw under the lease, if the keeper was done with it by then; since its third for another policy, if its
// own holds nothing any more: that one may hold a Machine that is to be fenced, of which nobody tells once more.
const hearsToTheEnd = "hears-to-the-end"

// reopen tells whether the node is to be fenced once more, of which was reported when the job ended. Whoever reported
// it has begun no other one, since this one still ran.
func (f *fence) reopen(ctx workflow.Context) (again bool, err error) {
	ended := f.state.Result
	err = f.examine(ctx)
	if isType(err, activities.InvalidInput) {
		err = nil // nobody is concerned any more
	}
	if err != nil || !f.failsAgain() || len(f.state.Clusters) == 0 {
		f.state.Result, f.state.Again = ended, false
		return false, err
	}
	f.begin(ctx)
	return true, nil
}

// Since when a fence notices that the node fails again, and that nothing holds it.
const (
	failsUnderLease = "fails-under-lease"
	endsUnderLease  = "ends-under-lease"
	// watchesEveryLease: also that of a run that began when the Machine was released, or of a job that released nothing.
	watchesEveryLease = "watches-every-lease"
)

func (f *fence) watchesLeases(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, watchesEveryLease, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// leased sees the node through under the lease. If nothing was released nothing has to heal.
func (f *fence) leased(ctx workflow.Context) error {
	err := f.proceed(ctx, true)
	if err == nil && f.state.Settled && f.state.Clusters == nil && f.watchesLeases(ctx) {
		f.giveBack(ctx)
	}
	return err
}

// watchOver looks at the node while the storage heals under the lease, until stop is called.
func (f *fence) watchOver(ctx workflow.Context) (stop func()) {
	ctx, stop = workflow.WithCancel(ctx)
	if workflow.GetVersion(ctx, failsUnderLease, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return stop
	}
	f.hurries = f.state.Settled && f.unheld(ctx) // since the run before
	workflow.Go(ctx, func(ctx workflow.Context) {
		for !f.hurries {
			//nolint:forbidigo // beside the job's own wait, which ends when the history is full
			if err := workflow.Await(ctx, f.heard); err != nil {
				return
			}
			if err := f.examine(ctx); err != nil {
				return // whoever waits for the data to be whole looks again
			}
			f.hurries = f.unheld(ctx) || f.failsAgain()
		}
		f.state.Stale = true // it is looked at once more when the lease was given back
	})
	return stop
}

// unheld: the policy names no fencing any more. If it does so later, another fence sees to what happens then.
func (f *fence) unheld(ctx workflow.Context) bool {
	return len(f.state.Clusters) == 0 &&
		workflow.GetVersion(ctx, endsUnderLease, workflow.DefaultVersion, 1) > workflow.DefaultVersion
}

// heard: something is new of a node that was fenced.
func (f *fence) heard() bool { return f.state.Settled && f.state.Stale && len(f.state.Clusters) > 0 }

// inHurry ends the wait under the lease.
func (f *fence) inHurry() bool { return f.hurries }

// healUnderLease goes on waiting where the run before ended.
func (f *fence) healUnderLease(ctx workflow.Context) error {
	defer f.watchOver(ctx)()
	return f.job.underLease(ctx, []request{{hurry: f.inHurry}}, nil)
}
