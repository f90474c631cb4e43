package workflows

import (
	"context"

	"go.temporal.io/sdk/workflow"
)

// call runs an activity and returns its result. The SDK takes any function with any arguments; this takes only an
// activity with the input that it was written for.
func call[I, O any](ctx workflow.Context, activity func(context.Context, I) (O, error), in I) (O, error) {
	var out O
	err := workflow.ExecuteActivity(ctx, activity, in).Get(ctx, &out)
	return out, err
}

// begin is call without waiting for the result.
func begin[I, O any](ctx workflow.Context, activity func(context.Context, I) (O, error), in I) workflow.Future {
	return workflow.ExecuteActivity(ctx, activity, in)
}

// callHere is call within the workflow task that asks for it. It costs the history one event instead of six, and no way
// through Temporal. But the workflow hears nothing until it has ended, and if the worker dies meanwhile nobody knows
// that it ever began. So it is for what only looks, or may be done again without a record of it, and never for what
// takes long.
func callHere[I, O any](ctx workflow.Context, activity func(context.Context, I) (O, error), in I) (O, error) {
	var out O
	err := workflow.ExecuteLocalActivity(ctx, activity, in).Get(ctx, &out)
	return out, err
}
