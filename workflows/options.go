package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// quick is for one look or one change: a few requests. The keeper does not wait long for any of them, since the next
// look may be more urgent; it tries again on its own.
func quick(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    10 * time.Second,
		ScheduleToCloseTimeout: 20 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 2 * time.Second, MaximumAttempts: 4,
		},
		Summary: summary,
	})
}

// here is quick for callHere.
func here(ctx workflow.Context, summary string) workflow.Context {
	o := workflow.GetActivityOptions(quick(ctx, summary))
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: o.StartToCloseTimeout, ScheduleToCloseTimeout: o.ScheduleToCloseTimeout,
		RetryPolicy: o.RetryPolicy, Summary: summary,
	})
}

// briefly is for callHere beside other work: what else the task commands waits for it.
func briefly(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
}

// prompt is quick for a change that is right only for as long as the look that it rests on is recent: a worker that
// comes back must not carry out what was decided before it went.
func prompt(ctx workflow.Context, within time.Duration, summary string) workflow.Context {
	return workflow.WithScheduleToCloseTimeout(quick(ctx, summary), within)
}

// staleAfter is how long after a look a budget may still be opened because of it.
const staleAfter = 6 * time.Second

// persistent is for one look or one change that the job cannot go on without: retried until the job is aborted.
func persistent(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2,
			MaximumInterval: 15 * time.Second,
		},
		// A change that is under way when the job is aborted has to be over before the clean-up undoes it.
		WaitForCancellation: true,
		Summary:             summary,
	})
}

// thorough is persistent for what is many requests. While it is at it, it says so, and a worker that died is noticed
// all the same.
func thorough(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute,
		HeartbeatTimeout:    10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2,
			MaximumInterval: 5 * time.Second,
		},
		WaitForCancellation: true,
		Summary:             summary,
	})
}

// marking is for writing marks: one request for each pod, and first a proof. It says how far it is, and gives up soon:
// the next pass knows better what is left.
func marking(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute,
		HeartbeatTimeout:    10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2,
			MaximumInterval: 5 * time.Second, MaximumAttempts: 3,
		},
		// A budget that counts fewer pods must not be written while a mark may still be.
		WaitForCancellation: true,
		Summary:             summary,
	})
}

// stopping is watching for what takes daemons down. When the job is aborted it has to be over before the lease is given
// back.
func stopping(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithWaitForCancellation(watching(ctx, summary), true)
}

// watching is for an activity that keeps looking until there is something to tell. It only reads or repeats idempotent
// steps, so that losing a heartbeat costs a new attempt and nothing else; that is why the timeout may be short, and a
// killed worker is noticed soon.
func watching(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 30 * 24 * time.Hour,
		HeartbeatTimeout:    10 * time.Second,
		WaitForCancellation: false,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 1.5,
			MaximumInterval: 5 * time.Second,
		},
		Summary: summary,
	})
}
