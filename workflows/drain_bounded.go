package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// DrainState is what a drain hands on to its next run.
type DrainState struct {
	Started time.Time         `json:"started"`
	Wait    Wait              `json:"wait"` // in which the run before ended, and where this one goes on
	Target  activities.Target `json:"target"`
	Lease   ClaimState        `json:"lease"`
	Asked   time.Time         `json:"asked,omitzero"` // since when the lease is waited for
	Result  DrainNodeResult   `json:"result"`
	// Returned is how the node came back; nil as long as it has not.
	Returned  *activities.NodeReturn `json:"returned,omitempty"`
	Paused    bool                   `json:"paused,omitempty"`
	Done      bool                   `json:"done,omitempty"` // the signal came, and nobody has waited for it yet
	Observing bool                   `json:"observing,omitempty"`
	Returning bool                   `json:"returning,omitempty"`
	Guarded   bool                   `json:"guarded,omitempty"`
	Unguarded bool                   `json:"unguarded,omitempty"`
	Cordoned  bool                   `json:"cordoned,omitempty"` // by us
	Released  bool                   `json:"released,omitempty"`
}

// continueAsNew goes on with the present wait in a new history. Everything that was heard is taken in before, and
// `abort` ends the drain here.
func (d *drain) continueAsNew(ctx workflow.Context) error {
	wait := d.job.wait()
	if err := letSignalsIn(ctx); err != nil {
		return err
	}
	in := d.in
	in.State = &DrainState{
		Started: d.job.Started, Wait: wait, Target: d.target, Lease: d.lease.state(), Asked: d.asked, Result: d.result,
		Returned: d.returned, Paused: d.job.Paused, Done: d.job.done.Len() > 0, Observing: d.observing,
		Returning: d.returning, Guarded: d.guarded, Unguarded: d.unguarded, Cordoned: d.cordoned, Released: d.released,
	}
	return workflow.NewContinueAsNewError(ctx, DrainNode, in)
}

// goOn takes up what the run before left.
func (d *drain) goOn(s DrainState) {
	d.target, d.asked, d.result, d.returned = s.Target, s.Asked, s.Result, s.Returned
	d.observing, d.returning, d.guarded, d.unguarded, d.cordoned, d.released = s.Observing, s.Returning, s.Guarded,
		s.Unguarded, s.Cordoned, s.Released
	d.job.Started, d.job.Paused, d.job.goesOn = s.Started, s.Paused, s.Wait
	if s.Done {
		d.job.done.SendAsync(struct{}{})
	}
}

// goesOn: this run begins in the middle of a drain.
func (d *drain) goesOn() bool { return d.in.State != nil }

// goesOnIn tells whether it begins in this phase, and has not left it yet.
func (d *drain) goesOnIn(phase string) bool { return d.job.goesOn.Phase == phase }

// gate holds the drain while it is paused.
func (d *drain) gate(ctx workflow.Context) error {
	if !d.job.Paused {
		return nil
	}
	d.job.waitFor(ctx, pausedWait)
	if err := workflow.Await(ctx, func() bool { return !d.job.Paused || full(ctx) }); err != nil || !d.job.Paused {
		return err
	}
	return d.continueAsNew(ctx)
}
