package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file is when a drain asks for the lease, and what it does without it.

// acquireLease waits until the keeper grants the node's failure domain. By then noout is set on the node and the domain
// is open for eviction.
func (d *drain) acquireLease(ctx workflow.Context) error {
	for {
		d.job.enter(ctx, PhaseLease)
		if d.asked.IsZero() {
			d.asked = workflow.Now(ctx)
		}
		wait := "the lease of " + d.target.Domain.String()
		d.job.waitFor(ctx, wait)
		since := d.job.Since
		granted, err := d.lease.acquire(ctx, d.wanted(), func() bool { return d.backEarly() || full(ctx) }, func(why string) {
			d.job.elaborate(ctx, because(wait, why), since)
		})
		switch {
		case err != nil || d.backEarly():
			return err
		case granted:
			d.guarded = true
			d.result.Waited += workflow.Now(ctx).Sub(d.asked)
			d.asked = time.Time{}
			return nil
		case full(ctx):
			return d.continueAsNew(ctx)
		}
		d.asked = time.Time{}
		if err := d.resolveAgain(ctx); err != nil {
			return err
		}
	}
}

// wanted is what the drain claims.
func (d *drain) wanted() lease.Claim {
	reason := d.in.Reason
	if reason == "" {
		reason = "drain of " + d.in.Node
		if d.in.Observe {
			reason = d.in.Node + " is drained from outside"
		}
	}
	c := lease.Claim{
		Domain: d.target.Domain, Node: d.target.Node, Reason: reason, Priority: jobs.DrainNode.Priority,
		Observing: d.observing, NooutHosts: d.target.Hosts,
	}
	if d.target.Gone {
		c.NooutHosts = nil // nobody comes back to what noout would preserve
	}
	return c
}

// reacquire asks anew for a lease that was taken away.
func (d *drain) reacquire(ctx workflow.Context) error {
	if err := d.resolveAgain(ctx); err != nil {
		return err
	}
	return d.acquireLease(ctx)
}

// resolveAgain finds out where the drain is, since its lease was taken away: the node may belong to another failure
// domain now, or to none that is looked after, which is then the reason why the drain ends.
func (d *drain) resolveAgain(ctx workflow.Context) error {
	d.lease.end(LeaseRevoked) // a token that does not count any more, perhaps
	before := d.target
	if err := d.resolve(ctx); err != nil {
		return err
	}
	// Whose the cordon is, and which node it was, was settled when the drain began.
	d.target.Cordoned, d.target.UID, d.target.BootID = before.Cordoned, before.UID, before.BootID
	return nil
}

// backEarly: the node that somebody else drains was back before we were granted the lease.
func (d *drain) backEarly() bool {
	return !d.lease.held() && d.in.Observe && d.back != nil && d.back.IsReady()
}

// withoutLease: the keeper has taken the lease back while the node is away.
func (d *drain) withoutLease() bool {
	d.lease.listen()
	return !d.released && d.lease.Stage == claimFree
}

// regain gets the lease back that was revoked while the node is away.
func (d *drain) regain(ctx workflow.Context, waits string, again func(workflow.Context) error) error {
	err := again(ctx)
	if workflow.IsContinueAsNewError(err) {
		return err
	}
	d.job.enter(ctx, PhaseReturn)
	if isType(err, activities.InvalidInput) {
		// Nobody looks after its storage any more. To uncordon a node that somebody works on would be worse than to wait.
		d.unguarded, d.released, err = true, true, nil
	}
	d.job.waitFor(ctx, waits+d.meanwhile())
	return err
}
