package workflows

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is how a drain comes to its leases: of the one storage cluster that has daemons on the node, or of several.

// LeaseStanding is where a drain stands with the lease of one storage cluster.
type LeaseStanding struct {
	Cluster storage.ClusterKey    `json:"cluster"`
	Domain  storage.FailureDomain `json:"domain"`
	Stage   string                `json:"stage,omitempty"` // "": it has none, and does not ask for it
	Token   int64                 `json:"token,omitempty"`
}

func (d *drain) run(ctx workflow.Context) error {
	for {
		err := d.underLease(ctx)
		switch {
		case errors.Is(err, errLost): // find out where the node is now, queue again, and go on
		case d.state.Returning && !d.state.Unguarded && isType(err, activities.InvalidInput):
			// Nobody looks after its storage any more. To uncordon a node that somebody works on would be worse than to wait.
			d.endClaims(ctx)
			d.state.Unguarded, d.state.Released = true, true
		case d.state.Guarded && isType(err, activities.InvalidInput):
			// It was looked after when the drain began, and is no longer: nothing is left to guard.
			d.state.Result.Outcome = OutcomeRevoked
			return nil
		default:
			return err
		}
	}
}

// underLease does the drain's work under the leases of the node's failure domains, one in each storage cluster. When
// they are granted noout is set on the node and the domains are open for eviction. For a node that is back, and after
// its lease was parked, none is asked for.
func (d *drain) underLease(ctx workflow.Context) error {
	needed := d.state.Returned == nil && !d.state.Released
	if needed && !d.anyClaim(func(c *claimant) bool { return c.Stage != claimFree }) {
		if err := d.resolve(ctx); err != nil {
			return err
		}
	}
	if d.sinceBefore() && d.back == nil && !d.state.Target.Gone && d.state.Returned == nil {
		d.watchNode(ctx) // it may be back before we get the lease
	}
	var requests []request
	if needed {
		if d.state.Asked.IsZero() {
			d.state.Asked = workflow.Now(ctx)
		}
		for _, on := range d.state.Target.Storage() {
			if c := d.job.claimOn(on.Cluster); !c.parked() || !d.state.Returning {
				requests = append(requests, request{of: c, want: d.wanted(on), unless: d.backEarly})
			}
		}
	}
	err := d.job.underLease(ctx, requests, d.work)
	if err == nil && d.state.Returned != nil &&
		d.anyClaim(func(c *claimant) bool { return c.Stage == claimFree && c.Ended == LeaseRevoked }) {
		d.state.Result.Outcome = OutcomeRevoked
	}
	return err
}

// resolve finds out where the node is: at the beginning, and again when the lease was taken away. The node may belong
// to another failure domain then, or to none that is looked after, which is the reason why the drain ends.
func (d *drain) resolve(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseResolve)
	in := activities.ResolveInput{Node: d.in.Node, All: d.in.Observe, Again: d.state.Guarded}
	if keys, _ := input.PolicyKeys("policy", d.in.Policy); len(keys) > 0 {
		in.Cluster, in.More = keys[0], keys[1:]
	}
	target, err := perform(persistent(ctx, "find the storage on "+d.in.Node), d.job, draining.ResolveNode, in)
	if err != nil {
		return err // the target that we know already is what has to be cleaned up
	}
	if before := d.state.Target; before.Node != "" { // whose the cordon is, and which node it was, is settled
		target.Cordoned, target.UID, target.BootID = before.Cordoned, before.UID, before.BootID
	}
	d.state.Target = target
	d.claims()
	if !d.in.Observe {
		return nil
	}
	return d.job.detachByHand(ctx, target, &d.state.Result.AttachedByHand) // it is being emptied already
}

// wanted is what the drain claims in one storage cluster.
func (d *drain) wanted(on activities.Hosted) lease.Claim {
	reason := d.in.Reason
	if reason == "" {
		reason = "drain of " + d.in.Node
		switch {
		case d.in.Taint != "":
			reason = d.in.Node + " is tainted " + d.in.Taint
		case d.in.Observe:
			reason = d.in.Node + " is drained from outside"
		}
	}
	c := lease.Claim{
		Domain: on.Domain, Node: d.state.Target.Node, Reason: reason, Priority: jobs.DrainNode.Priority,
		// The pods of the node are gone, whoever evicted them, so the disruption goes on with or without the lease.
		Observing: d.in.Observe || d.state.Returning, FlagHosts: on.Hosts,
	}
	if d.state.Target.Gone {
		c.FlagHosts = nil // nobody comes back to what noout would preserve
	}
	return c
}

// backEarly: the node that somebody else drains, or wants drained, was back before we were granted all leases.
func (d *drain) backEarly() bool {
	return d.sinceBefore() && d.back != nil && d.back.IsReady() && !d.held()
}

// sinceBefore: somebody wanted the node emptied before the drain began, and may want it no more before it gets a lease.
func (d *drain) sinceBefore() bool { return d.in.Observe || d.in.Taint != "" }

// claims are those of the storage clusters that have daemons on the node, in the order of their keys; none before the
// node was looked at.
func (d *drain) claims() (out []*claimant) {
	if d.state.Target.Node == "" {
		return nil
	}
	for _, on := range d.state.Target.Storage() {
		out = append(out, d.job.claimOn(on.Cluster))
	}
	return out
}

func (d *drain) anyClaim(is func(*claimant) bool) bool { return slices.ContainsFunc(d.claims(), is) }

// held tells whether every lease is held, but for those that are not needed any more.
func (d *drain) held() bool {
	return !d.anyClaim(func(c *claimant) bool { return !c.held() && !c.parked() })
}

// lost tells whether one of the leases was taken away.
func (d *drain) lost() bool {
	return d.anyClaim(func(c *claimant) bool { return c.Stage == claimFree && !c.parked() })
}

// parked tells whether all leases were taken back because the data is whole without the node.
func (d *drain) parked() bool { return !d.anyClaim(func(c *claimant) bool { return !c.parked() }) }

// endClaims gives back what the drain has or asked for. A single claim has ended already.
func (d *drain) endClaims(ctx workflow.Context) {
	claims := d.claims()
	for _, c := range claims {
		if len(claims) > 1 {
			c.release(ctx)
		}
		c.end(LeaseRevoked)
	}
}

// grants are the leases under which the pods may go.
func (d *drain) grants() (out []activities.Grant) {
	for _, c := range d.claims() {
		out = append(out, activities.Grant{Cluster: c.Cluster, Token: c.Token})
	}
	return out
}

// standing says of each of several leases where it stands.
func standing(target activities.Target, claims []*claimant) (token int64, all []LeaseStanding) {
	for i, c := range claims {
		if i == 0 {
			token = c.Token
		}
		if len(claims) > 1 {
			all = append(all, LeaseStanding{
				Cluster: c.Cluster, Domain: target.Storage()[i].Domain, Stage: string(c.Stage), Token: c.Token,
			})
		}
	}
	return token, all
}
