package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file follows the jobs that hold or want the lease, so that one that ends in whatever way loses its claim.

// followedTogether is how many jobs one activity follows at most. One activity for each would be hundreds of them where
// hundreds wait, each with heartbeats of its own, and all of them begun anew whenever the keeper continues as new.
const followedTogether = 50

// following is what follows some jobs. Jobs never join it: it would have to begin anew for every one that comes. When
// the keeper continues as new they are divided up again.
type following struct {
	claims []lease.Claim
	cancel workflow.CancelFunc
}

// followJobs watches everybody who holds or wants the lease.
func (k *keeper) followJobs(ctx workflow.Context) {
	claims := slices.Concat(k.state.Memory.Lease.Holders, k.state.Memory.Lease.Queue)
	if l := k.state.Memory.Fencing; l != nil {
		for _, c := range l.Cases {
			claims = append(claims, lease.Claim{WorkflowID: c.WorkflowID, RunID: c.RunID})
		}
	}
	claimed := map[string]bool{}
	var fresh []lease.Claim
	for _, c := range claims {
		id := claimID(c)
		if !claimed[id] && k.jobs[id] == nil {
			fresh = append(fresh, c)
		}
		claimed[id] = true
	}
	if len(fresh) > 0 {
		for some := range slices.Chunk(fresh, followedTogether) {
			k.follow(ctx, some)
		}
	}
	for _, id := range sortedKeys(k.jobs) {
		if !claimed[id] {
			k.unfollow(id)
		}
	}
}

// follow watches some jobs until all of them have ended or given up their claims.
func (k *keeper) follow(ctx workflow.Context, claims []lease.Claim) {
	f := &following{claims: claims}
	ctx, f.cancel = workflow.WithCancel(ctx)
	for _, c := range claims {
		k.jobs[claimID(c)] = f
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for len(f.claims) > 0 {
			ended, err := awaitEnd(ctx, f.claims)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				// A claim that nobody follows would outlast its job: another activity follows these.
				workflow.GetLogger(ctx).Error("cannot wait for the end of jobs", "error", err)
				k.forget(f, func(lease.Claim) bool { return true })
			}
			for _, job := range ended {
				k.state.Memory.Lease = k.state.Memory.Lease.Release(job.WorkflowID, job.RunID)
				k.endFence(FenceRef{WorkflowID: job.WorkflowID, RunID: job.RunID, Drop: true})
				// A request of this job may still be under way. The claim that it makes is followed anew, and ends at once.
				k.forget(f, func(c lease.Claim) bool { return c.WorkflowID == job.WorkflowID && c.RunID == job.RunID })
			}
			k.wakeUp()
		}
	})
}

// forget takes claims from those that f follows.
func (k *keeper) forget(f *following, which func(lease.Claim) bool) {
	for _, c := range f.claims {
		if id := claimID(c); which(c) && k.jobs[id] == f {
			delete(k.jobs, id)
		}
	}
	f.claims = slices.DeleteFunc(f.claims, which)
}

// unfollow ends the watch over a job, whose claim is no more. The activity goes on as long as another job of it has
// one.
func (k *keeper) unfollow(id string) {
	f := k.jobs[id]
	k.forget(f, func(c lease.Claim) bool { return claimID(c) == id })
	if len(f.claims) == 0 {
		f.cancel()
	}
}

// awaitEnd returns the jobs that have ended, at least one.
func awaitEnd(ctx workflow.Context, claims []lease.Claim) ([]activities.JobInput, error) {
	jobs := make([]activities.JobInput, len(claims))
	for i, c := range claims {
		jobs[i] = activities.JobInput{WorkflowID: c.WorkflowID, RunID: c.RunID}
	}
	summary := "the claim lasts until " + jobs[0].WorkflowID + " ends"
	if len(jobs) > 1 {
		summary = fmt.Sprintf("the claims last until %s and %d more end", jobs[0].WorkflowID, len(jobs)-1)
	}
	ended, err := call(watching(ctx, summary), keeping.AwaitJobsEnd, activities.JobsInput{Jobs: jobs})
	return ended.Ended, err
}
