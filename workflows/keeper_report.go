package workflows

import (
	"reflect"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// reportLater writes the status while the keeper goes on. Only people wait for it, and the next look may be urgent.
func (k *keeper) reportLater(ctx workflow.Context) {
	k.unreported = true
	if k.reporting || k.writesAgain {
		return
	}
	k.reporting = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { k.reporting = false }()
		for k.unreported && ctx.Err() == nil {
			k.unreported = false
			err := k.write(ctx)
			if k.unwritten = ""; err != nil {
				k.unreported, k.unwritten = true, message(err)
				k.pauseReports(ctx)
			}
		}
	})
}

// pauseReports lets some time pass after a status that could not be written. It is not being written meanwhile: a pass
// must not wait for a status that nobody may write, or nobody would look any more.
func (k *keeper) pauseReports(ctx workflow.Context) {
	if !k.goesOn {
		_ = workflow.Sleep(ctx, retryAfter)
		return
	}
	k.reporting, k.writesAgain = false, true
	_ = workflow.Sleep(ctx, retryAfter)
	// What a pass writes comes first, or the older would win.
	_ = workflow.Await(ctx, func() bool { return !k.reporting })
	k.reporting, k.writesAgain = true, false
}

// report writes the status before the keeper goes on: it is the memory that outlives this workflow. One that is being
// written comes first, or the older would win.
func (k *keeper) report(ctx workflow.Context) error {
	if err := workflow.Await(ctx, func() bool { return !k.reporting }); err != nil {
		return err
	}
	return k.write(ctx)
}

// write writes the policy's status and events, if they say anything new.
func (k *keeper) write(ctx workflow.Context) error {
	r := k.draft(k.state.Reported)
	if len(k.news) == 0 && reflect.DeepEqual(r, k.state.Reported) {
		if k.renewal(workflow.Now(ctx)) > 0 {
			return nil
		}
		if confirmed, err := k.confirm(ctx); confirmed || err != nil {
			return err
		}
	}
	r.AsOf = workflow.Now(ctx)
	news := k.news
	k.news = nil
	in := activities.ReportInput{Cluster: k.cluster, Report: k.signed(r.AsOf, r, k.state.Reported, news)}
	if err := k.say(ctx, in); err != nil {
		k.news = append(news, k.news...)
		return err
	}
	k.state.Reported = r
	workflow.SetCurrentDetails(ctx, k.details())
	return nil
}

// say writes a report. What only rewords the one before is written within the workflow task, if the API server is
// quick.
func (k *keeper) say(ctx workflow.Context, in activities.ReportInput) error {
	if k.here && rewords(in.Report, k.state.Reported) {
		if _, err := callHere(briefly(ctx, "status"), keeping.ReportStatus, in); err == nil {
			return nil
		}
	}
	_, err := call(quick(ctx, "status and events"), keeping.ReportStatus, in)
	return err
}
