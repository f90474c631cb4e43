package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// DrainNodeInput starts a drain, or goes on with it after continue-as-new. Only the node is required.
type DrainNodeInput struct {
	Node string `json:"node"`
	// Policy is "namespace/name" of the MaintenancePolicy, or of several, with commas; by default of all whose daemons the
	// node hosts. Daemons of others are evicted as well, as far as their budgets allow, but nothing is asked for them. A
	// drain that observes guards these and all others that have daemons on the node.
	Policy string `json:"policy,omitempty"`
	// Reason is shown to everybody who has to wait for this drain.
	Reason string `json:"reason,omitempty"`
	// Observe: somebody else drains the node. Cordon and evict nothing, only guard it: lease, noout, timers, history.
	Observe bool `json:"observe,omitempty"`
	// UncordonAfterReboot: uncordon as soon as the node is Ready with a new boot ID. Otherwise a person uncordons it, or
	// sends the signal `done`.
	UncordonAfterReboot bool `json:"uncordonAfterReboot,omitempty"`
	// Taint is the key of a taint of the node with the effect NoExecute, by which somebody wants its pods driven off:
	// those are evicted that do not tolerate it, and when it is gone the node is uncordoned and the drain ends, at
	// whatever step it was. The watcher starts such a drain where deletions are guarded.
	Taint    string                     `json:"taint,omitempty"`
	Eviction activities.EvictionOptions `json:"eviction,omitzero"`
	// State is written by the run before, and not by people.
	State *DrainState `json:"state,omitempty"`

	invalid *input.Error // found while decoding
}

// Outcomes of a drain.
const (
	OutcomeDone    = "Done"    // the node is back, its storage is whole
	OutcomeGone    = "Gone"    // the node is deleted, the data is whole without it
	OutcomeRevoked = "Revoked" // the policy is gone: nothing is guarded any more
)

// DrainNodeResult is how a drain ended.
type DrainNodeResult struct {
	Outcome string        `json:"outcome"`
	Evicted int           `json:"evicted"`
	Took    time.Duration `json:"took"`
	Waited  time.Duration `json:"waitedForLease"`
	AttachedByHand
}

// DrainNode empties a node and stays with it until its storage is whole again. It holds the lease of the node's failure
// domain from before the first eviction until the placement groups are clean, so that no other domain is disrupted
// meanwhile; the keeper keeps noout on the node for that time, at most for the policy's osdMaintenanceTimeout. On a
// node with daemons of several storage clusters it holds the lease of each, and nothing opens in any of them before it
// has all.
//
// It never gives up by itself: it waits, and says for what. `abort` uncordons the node (if the drain cordoned it) and
// gives the lease back. A crash of a worker resumes it at the step it was in; every step may be repeated.
//
//	temporal workflow start --type DrainNode --task-queue lockkeeper --workflow-id drain/node-a --input '{"node":"node-a"}'
func DrainNode(ctx workflow.Context, in DrainNodeInput) (DrainNodeResult, error) {
	d := &drain{in: in}
	if in.State != nil {
		d.state = *in.State
	}
	d.job = newJob(ctx, drainPhases, d.state.JobState)
	err := runJob(ctx, d.job, d)
	d.state.Result.Took = workflow.Now(ctx).Sub(d.job.Started)
	return d.state.Result, err
}

// DrainState is what a drain hands on to its next run.
type DrainState struct {
	JobState
	Target activities.Target `json:"target"`
	Asked  time.Time         `json:"asked,omitzero"` // since when the lease is waited for
	Result DrainNodeResult   `json:"result"`
	// Returned is how the node came back; nil as long as it has not.
	Returned *activities.NodeReturn `json:"returned,omitempty"`
	// Returning: the pods of the node are gone, and its return is waited for, whatever becomes of the lease meanwhile.
	Returning bool `json:"returning,omitempty"`
	Guarded   bool `json:"guarded,omitempty"` // a lease was granted
	// Unguarded: the policy went while the node was away. The drain stays all the same, to uncordon the node when it is
	// back.
	Unguarded bool `json:"unguarded,omitempty"`
	Cordoned  bool `json:"cordoned,omitempty"` // by us
	Released  bool `json:"released,omitempty"` // no lease is needed any more
}

type drain struct {
	in    DrainNodeInput
	job   *job
	state DrainState
	back  workflow.Future // the node's return, once somebody waits for it
}

var draining *activities.Drain

// The phases of a drain, in order.
const (
	PhaseResolve = "Resolving"
	PhaseLease   = "AcquiringLease"
	PhaseCordon  = "Cordoning"
	PhaseEvict   = "Evicting"
	PhaseReturn  = "AwaitingNode"
	PhaseHeal    = "Healing"
)

var drainPhases = []string{PhaseResolve, PhaseLease, PhaseCordon, PhaseEvict, PhaseReturn, PhaseHeal}

// DrainStatus answers the query "status".
type DrainStatus struct {
	JobStatus
	Target  activities.Target `json:"target"`
	Observe bool              `json:"observe,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Token   int64             `json:"token,omitempty"`
	// Leases are those of several storage clusters; none if there is only one.
	Leases []LeaseStanding `json:"leases,omitempty"`
	Result DrainNodeResult `json:"result"`
}

func (d *drain) status() any {
	token, leases := standing(d.state.Target, d.claims())
	return DrainStatus{
		JobStatus: d.job.JobStatus, Target: d.state.Target, Observe: d.in.Observe, Reason: d.in.Reason,
		Token: token, Leases: leases, Result: d.state.Result,
	}
}

func (d *drain) outcome() *string { return &d.state.Result.Outcome }

func (d *drain) again(ctx workflow.Context, s JobState) error {
	d.state.JobState = s
	d.in.State = &d.state
	return workflow.NewContinueAsNewError(ctx, DrainNode, d.in)
}

// work empties the node and waits until it is back. It begins with the lease, or without it if the node is back early.
func (d *drain) work(ctx workflow.Context) error {
	if d.held() && !d.state.Asked.IsZero() {
		d.state.Guarded = true
		d.state.Result.Waited += workflow.Now(ctx).Sub(d.state.Asked)
		d.state.Asked = time.Time{}
	}
	switch {
	case d.state.Returning:
	case d.backEarly():
		for _, c := range d.claims() {
			if !c.held() {
				c.release(ctx) // the claim is taken out of the queue
			}
		}
		if !d.anyClaim(func(c *claimant) bool { return c.held() }) {
			d.state.Result.Outcome = OutcomeDone
			return nil
		}
	case d.in.Taint != "" && !d.state.Cordoned && d.back != nil && d.back.IsReady(): // before anything was done
	case !d.in.Observe:
		if !d.job.goesOnIn(PhaseEvict) { // cordoned by the run before
			if err := d.cordon(ctx); err != nil {
				return err
			}
		}
		if err := d.evict(ctx); err != nil {
			return err
		}
	}
	if d.state.Returned == nil {
		if err := d.awaitReturn(ctx); err != nil {
			return err
		}
	}
	return d.finish(ctx)
}

func (d *drain) cordon(ctx workflow.Context) error {
	// The run before may have ended between the decision whose the cordon is and the cordon.
	unsure := d.job.goesOnIn(PhaseCordon)
	d.job.enter(ctx, PhaseCordon)
	if err := d.job.gate(ctx); err != nil {
		return err
	}
	target := d.state.Target
	// Cordoned by us before the lease was lost: to look now would be to take our own cordon for somebody else's.
	if d.state.Cordoned && !unsure {
		return nil
	}
	if !d.state.Cordoned {
		// Somebody may have cordoned it while we waited for the lease. What was before is asked for by itself: an attempt to
		// cordon that is repeated cannot tell the one before it from somebody else.
		before, err := perform(persistent(ctx, "look at "+target.Node), d.job, draining.LookAtNode, target.Node)
		if err != nil {
			return err
		}
		d.state.Cordoned = !target.Cordoned && !before.Cordoned
	}
	_, err := perform(persistent(ctx, "cordon "+target.Node), d.job, draining.Cordon,
		activities.CordonInput{Node: target.Node, UID: target.UID, On: true})
	return err
}

// evict empties the node. A pause stops evicting between two pods and goes on where it was.
func (d *drain) evict(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseEvict)
	info, target := workflow.GetInfo(ctx), d.state.Target
	grants := d.grants()
	in := activities.EvictInput{
		Cluster: target.Cluster, Node: target.Node, UID: target.UID, Options: d.in.Eviction, Taint: d.in.Taint,
		WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Token: grants[0].Token, Others: grants[1:],
	}
	for {
		if err := d.job.gate(ctx); err != nil {
			return err
		}
		// Not before the node is cordoned, or it may be attached again; and once more after a pause.
		if err := d.job.detachByHand(ctx, target, &d.state.Result.AttachedByHand); err != nil {
			return err
		}
		waits := "the pods of " + target.Node + " to be evicted"
		if d.anyClaim(func(c *claimant) bool { return c.Stops == lease.StopOneByOne }) {
			waits += "; its OSDs go one after the other, each when the data is whole without those before"
		}
		d.job.waitFor(ctx, waits)
		evictCtx, cancel := workflow.WithCancel(ctx)
		d.job.onPause = cancel
		// If the history is full the next run evicts on; that this attempt ends a moment later does no harm.
		p, err := perform(watching(evictCtx, "evict the pods of "+target.Node), d.job, draining.EvictPods, in)
		d.job.onPause = nil
		cancel()
		if temporal.IsCanceledError(err) && ctx.Err() == nil {
			continue
		}
		d.state.Result.Evicted += p.Total
		return err
	}
}

// watchNode begins to wait for the node's return.
func (d *drain) watchNode(ctx workflow.Context) {
	d.back = begin(watching(ctx, "wait for "+d.state.Target.Node), draining.AwaitNode, activities.AwaitNodeInput{
		Node: d.state.Target.Node, UID: d.state.Target.UID, BootID: d.state.Target.BootID,
		AfterReboot: d.in.UncordonAfterReboot, Taint: d.in.Taint,
	})
}

// awaitReturn waits until the node is back in service, gone, or a person says that the work on it is done.
func (d *drain) awaitReturn(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseReturn)
	d.state.Returning = true
	if d.state.Target.Gone {
		d.state.Returned = &activities.NodeReturn{Gone: true}
		return nil
	}
	if d.back == nil {
		d.watchNode(ctx)
	}
	waits := d.state.Target.Node + " to be Ready and uncordoned, to be deleted, or for the signal `done`"
	switch {
	case d.in.Taint != "":
		waits = d.state.Target.Node + " to be Ready without the taint " + d.in.Taint +
			", to be deleted, or for the signal `done`"
	case d.in.UncordonAfterReboot:
		waits = d.state.Target.Node + " to be rebooted, to be deleted, or for the signal `done`"
	}
	for {
		meanwhile := d.meanwhile()
		d.job.waitFor(ctx, waits+meanwhile)
		if err := d.job.await(ctx, func() bool {
			d.job.listen() // the keeper may take the lease back while the node is away
			return d.back.IsReady() || d.job.done.Len() > 0 || !d.state.Released && (d.lost() || d.parked()) ||
				d.meanwhile() != meanwhile
		}); err != nil {
			return err
		}
		var back activities.NodeReturn
		switch {
		case d.back.IsReady():
			err := d.back.Get(ctx, &back)
			if err == nil {
				d.state.Returned = &back
			}
			return err
		case d.job.done.Len() > 0:
			d.job.done.Receive(ctx, nil)
			d.state.Returned = &back
			return nil
		case d.state.Released:
		case d.lost():
			return errLost
		case d.parked():
			d.state.Released = true
		}
	}
}

// meanwhile is what else is to be said of a wait for the node.
func (d *drain) meanwhile() string {
	switch {
	case d.state.Unguarded:
		return "; its MaintenancePolicy is gone, so nothing guards its storage meanwhile"
	case d.state.Released:
		return "; noout has expired and the data is whole without it, so nobody is held back"
	}
	for _, c := range d.claims() {
		if c.parked() && d.job.several() {
			return "; noout has expired in " + c.where(c.Claim.Domain) +
				" and the data is whole there without it, so nobody is held back there"
		}
	}
	return ""
}

// finish uncordons what we cordoned, and says how the drain ends when the storage is whole.
func (d *drain) finish(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseHeal)
	if err := d.job.gate(ctx); err != nil {
		return err
	}
	for _, c := range d.claims() {
		c.NodeGone = d.state.Returned.Gone
	}
	if d.state.Returned.Gone {
		d.state.Result.Outcome = OutcomeGone
		return nil
	}
	d.state.Result.Outcome = OutcomeDone
	return d.uncordon(ctx)
}

func (d *drain) uncordon(ctx workflow.Context) error {
	if !d.state.Cordoned {
		return nil
	}
	in := activities.CordonInput{Node: d.state.Target.Node, UID: d.state.Target.UID}
	_, err := perform(persistent(ctx, "uncordon "+in.Node), d.job, draining.Cordon, in)
	if err != nil && !isType(err, activities.TargetChanged) {
		return err
	}
	d.state.Cordoned = false
	return nil
}

// cleanUp undoes what is left to undo, whatever the reason for ending.
func (d *drain) cleanUp(ctx workflow.Context) {
	// A drain that was parked has no lease any more, but its cordon.
	if err := d.uncordon(ctx); err != nil {
		workflow.GetLogger(ctx).Error("cannot uncordon", "node", d.state.Target.Node, "error", err)
	}
}
