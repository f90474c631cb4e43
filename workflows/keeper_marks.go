package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file sets the marks on the storage daemons' pods and takes them away (internal/budget/marks.go decides).

// mark marks pods while the keeper goes on: at rest the budget lets fewer go until it is through, and nothing else
// waits for it.
func (k *keeper) mark(ctx workflow.Context, marks budget.MarkPlan) {
	if k.marking {
		return
	}
	k.marking = true
	ctx, k.stopMarking = workflow.WithCancel(ctx)
	in := activities.MarkInput{
		Cluster: k.cluster, Marking: activities.Marking{Unclean: marks.Unclean, Most: marks.Most, Held: marks.Held},
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		out, err := call(marking(ctx, "mark pods that are proved"), keeping.MarkPods, in)
		if err != nil || out.Left > 0 {
			_ = workflow.Sleep(ctx, retryAfter) // pods that change all the time are not to be looked at all the time
		}
		k.marking = false
		k.wakeUp()
	})
}

// endMarking waits until no mark is being written any more.
func (k *keeper) endMarking(ctx workflow.Context) error {
	if !k.marking {
		return nil
	}
	k.stopMarking()
	return workflow.Await(ctx, func() bool { return !k.marking })
}

// unmarkUnsaid is how long marks may be taken away before the status says that everything is closed meanwhile. Mostly
// it is one mark.
const unmarkUnsaid = 2 * time.Second

// unmark takes marks away, while both budgets are closed.
func (k *keeper) unmark(ctx workflow.Context, marks budget.MarkPlan) error {
	if err := k.endMarking(ctx); err != nil {
		return err
	}
	slow, done := workflow.WithCancel(ctx)
	defer done()
	workflow.Go(slow, func(slow workflow.Context) {
		if workflow.Sleep(slow, unmarkUnsaid) == nil {
			k.admitClosed(ctx, "marks of pods have to go first")
		}
	})
	_, err := call(marking(ctx, "take marks away"), keeping.UnmarkPods, activities.UnmarkInput{
		Cluster: k.cluster, Unmarking: activities.Unmarking{All: marks.UnsetAll, Held: marks.Held},
	})
	return err
}

// releasePods takes away all marks, and then all budgets of ours. If the policy wants them by then those that are left
// stay, and the keeper has to look again.
func (k *keeper) releasePods(ctx workflow.Context) error {
	if err := k.endMarking(ctx); err != nil {
		return err
	}
	r, err := call(marking(ctx, "take all marks away, then our budgets"), keeping.ReleasePods,
		activities.ReleasePodsInput{ClusterKey: k.cluster, ID: k.observed.Seen.ID})
	k.again = k.again || r.Moved
	return err
}
