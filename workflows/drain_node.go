package workflows

import (
	"strings"
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
	// Policy is "namespace/name" of the MaintenancePolicy; by default the one whose daemons the node hosts.
	Policy string `json:"policy,omitempty"`
	// Reason is shown to everybody who has to wait for this drain.
	Reason string `json:"reason,omitempty"`
	// Observe: somebody else drains the node. Cordon and evict nothing, only guard it: lease, noout, timers, history.
	Observe bool `json:"observe,omitempty"`
	// UncordonAfterReboot: uncordon as soon as the node is Ready with a new boot ID. Otherwise a person uncordons it, or
	// sends the signal `done`.
	UncordonAfterReboot bool                       `json:"uncordonAfterReboot,omitempty"`
	Eviction            activities.EvictionOptions `json:"eviction,omitzero"`
	// State is written by the run before, and not by people.
	State *DrainState `json:"state,omitempty"`

	invalid *input.Error // found while decoding
}

// Outcomes of a drain.
const (
	OutcomeDone    = "Done"    // the node is back, its storage is whole
	OutcomeGone    = "Gone"    // the node is deleted, the data is whole without it
	OutcomeAborted = "Aborted" // by a person; what we changed is changed back
	OutcomeRevoked = "Revoked" // the policy is gone: nothing is guarded any more
)

// DrainNodeResult is how a drain ended.
type DrainNodeResult struct {
	Outcome string        `json:"outcome"`
	Evicted int           `json:"evicted"`
	Took    time.Duration `json:"took"`
	Waited  time.Duration `json:"waitedForLease"`
}

// DrainNode empties a node and stays with it until its storage is whole again. It holds the lease of the node's failure
// domain from before the first eviction until the placement groups are clean, so that no other domain is disrupted
// meanwhile; the keeper keeps noout on the node for that time, at most for the policy's osdMaintenanceTimeout.
//
// It never gives up by itself: it waits, and says for what. `abort` uncordons the node (if the drain cordoned it) and
// gives the lease back. A crash of a worker resumes it at the step it was in; every step may be repeated.
//
//	temporal workflow start --type DrainNode --task-queue lockkeeper --workflow-id drain/node-a --input '{"node":"node-a"}'
func DrainNode(ctx workflow.Context, in DrainNodeInput) (DrainNodeResult, error) {
	d, err := newDrain(ctx, in)
	if err != nil {
		return DrainNodeResult{}, err
	}
	runCtx, cancel := workflow.WithCancel(ctx)
	d.job.listen(ctx, cancel)
	err = d.run(runCtx)
	if workflow.IsContinueAsNewError(err) {
		return DrainNodeResult{}, err
	}
	switch {
	case d.job.Aborted:
		d.result.Outcome, err = OutcomeAborted, nil
	case d.guarded && isType(err, activities.InvalidInput):
		// It was looked after when the drain began, and is no longer: nothing is left to guard.
		d.result.Outcome, err = OutcomeRevoked, nil
	}
	d.result.Took = workflow.Now(ctx).Sub(d.job.Started)
	return d.result, err
}

type drain struct {
	in     DrainNodeInput
	job    *job
	target activities.Target
	lease  *claimant
	// observing: the node's pods are gone, whoever evicted them, so the disruption goes on with or without the lease.
	observing bool
	guarded   bool // once: a lease was granted
	// unguarded: the policy went while the node was away. We stay with the node all the same, to uncordon it when it is
	// back.
	unguarded bool
	// returning: the node's return is waited for, whatever becomes of the lease meanwhile.
	returning bool
	asked     time.Time              // since when the lease is waited for
	back      workflow.Future        // the node's return, once somebody waits for it
	returned  *activities.NodeReturn // how the node came back
	cordoned  bool                   // by us
	released  bool
	result    DrainNodeResult
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

func newDrain(ctx workflow.Context, in DrainNodeInput) (*drain, error) {
	if err := in.validate(ctx); err != nil {
		return nil, err
	}
	d := &drain{in: in, job: newJob(ctx, drainPhases)}
	if in.State != nil {
		d.goOn(*in.State)
		d.lease = newClaimant(ctx, in.State.Lease)
	} else {
		d.lease = newClaimant(ctx, ClaimState{})
	}
	return d, workflow.SetQueryHandler(ctx, QueryStatus, func() (DrainStatus, error) { return d.status(), nil })
}

// DrainStatus answers the query "status".
type DrainStatus struct {
	JobStatus
	Target  activities.Target `json:"target"`
	Observe bool              `json:"observe,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Token   int64             `json:"token,omitempty"`
	Result  DrainNodeResult   `json:"result"`
}

func (d *drain) status() DrainStatus {
	return DrainStatus{
		JobStatus: d.job.JobStatus, Target: d.target, Observe: d.in.Observe, Reason: d.in.Reason,
		Token: d.lease.Token, Result: d.result,
	}
}

func (d *drain) run(ctx workflow.Context) (err error) {
	if !d.goesOn() {
		if err := d.resolve(ctx); err != nil {
			return err
		}
		d.observing = d.in.Observe
	}
	// Registered before anything is changed: a step that timed out may have happened all the same.
	defer func() {
		if !workflow.IsContinueAsNewError(err) {
			d.cleanUp(ctx)
		}
	}()
	if d.in.Observe && !d.target.Gone && d.returned == nil {
		d.watchNode(ctx) // it may be back before we get the lease
	}
	if !d.goesOn() || d.goesOnIn(PhaseLease) && !d.returning {
		if err := d.acquireLease(ctx); err != nil {
			return err
		}
	}
	if d.backEarly() {
		d.result.Outcome = OutcomeDone // the clean-up takes our claim out of the queue
		return nil
	}
	for !d.in.Observe && !d.returning {
		if !d.goesOnIn(PhaseEvict) { // cordoned by the run before
			if err := d.cordon(ctx); err != nil {
				return err
			}
		}
		err := d.evict(ctx)
		if err == nil {
			break
		}
		if !isType(err, activities.LeaseLost) {
			return err
		}
		// The lease was taken away between two evictions: find out where we are now, queue again, and go on where we were.
		if err := d.reacquire(ctx); err != nil {
			return err
		}
	}
	if d.returned == nil {
		back, err := d.awaitReturn(ctx)
		if err != nil {
			return err
		}
		d.returned = &back
	}
	return d.heal(ctx, *d.returned)
}

func (d *drain) resolve(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseResolve)
	in := activities.ResolveInput{Node: d.in.Node}
	in.Cluster.Namespace, in.Cluster.Name, _ = strings.Cut(d.in.Policy, "/")
	target, err := call(persistent(ctx, "find the storage on "+d.in.Node), draining.ResolveNode, in)
	if err != nil {
		return err // the target that we know already is what has to be cleaned up
	}
	d.target, d.lease.Cluster = target, target.Cluster
	return nil
}

func (d *drain) cordon(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseCordon)
	if err := d.gate(ctx); err != nil {
		return err
	}
	// Cordoned by us before the lease was lost: to look now would be to take our own cordon for somebody else's.
	if d.cordoned {
		return nil
	}
	// Somebody may have cordoned it while we waited for the lease. What was before is asked for by itself: an attempt to
	// cordon that is repeated cannot tell the one before it from somebody else.
	before, err := call(persistent(ctx, "look at "+d.target.Node), draining.LookAtNode, d.target.Node)
	if err != nil {
		return err
	}
	d.cordoned = !d.target.Cordoned && !before.Cordoned
	_, err = call(persistent(ctx, "cordon "+d.target.Node), draining.Cordon,
		activities.CordonInput{Node: d.target.Node, UID: d.target.UID, On: true})
	return err
}

// evict empties the node. A pause stops evicting between two pods and goes on where it was.
func (d *drain) evict(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseEvict)
	info := workflow.GetInfo(ctx)
	in := activities.EvictInput{
		Cluster: d.target.Cluster, Node: d.target.Node, UID: d.target.UID, Options: d.in.Eviction,
		WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Token: d.lease.Token,
	}
	for {
		if err := d.gate(ctx); err != nil {
			return err
		}
		waits := "the pods of " + d.target.Node + " to be evicted"
		if d.lease.Stops == lease.StopOneByOne {
			waits += "; its OSDs go one after the other, each when the data is whole without those before"
		}
		d.job.waitFor(ctx, waits)
		evictCtx, cancel := workflow.WithCancel(ctx)
		d.job.onPause = cancel
		evicted := begin(watching(evictCtx, "evict the pods of "+d.target.Node), draining.EvictPods, in)
		err := workflow.Await(ctx, func() bool { return evicted.IsReady() || full(ctx) })
		if err == nil && !evicted.IsReady() {
			cancel() // the next run evicts on; that this attempt ends a moment later does no harm
			return d.continueAsNew(ctx)
		}
		var p activities.EvictionProgress
		err = evicted.Get(ctx, &p)
		d.job.onPause = nil
		cancel()
		if temporal.IsCanceledError(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		d.result.Evicted += p.Total
		return nil
	}
}

// watchNode begins to wait for the node's return.
func (d *drain) watchNode(ctx workflow.Context) {
	d.back = begin(watching(ctx, "wait for "+d.target.Node), draining.AwaitNode, activities.AwaitNodeInput{
		Node: d.target.Node, UID: d.target.UID, BootID: d.target.BootID, AfterReboot: d.in.UncordonAfterReboot,
	})
}

// awaitReturn waits until the node is back in service, gone, or a person says that the work on it is done.
func (d *drain) awaitReturn(ctx workflow.Context) (back activities.NodeReturn, err error) {
	regaining := d.returning && d.goesOnIn(PhaseLease)
	d.job.enter(ctx, PhaseReturn)
	d.observing, d.returning = true, true
	if d.target.Gone {
		return activities.NodeReturn{Gone: true}, nil
	}
	if d.back == nil {
		d.watchNode(ctx)
	}
	waits := d.target.Node + " to be Ready and uncordoned, to be deleted, or for the signal `done`"
	if d.in.UncordonAfterReboot {
		waits = d.target.Node + " to be rebooted, to be deleted, or for the signal `done`"
	}
	if regaining {
		if err := d.regain(ctx, waits, d.acquireLease); err != nil {
			return back, err
		}
	}
	d.job.waitFor(ctx, waits+d.meanwhile())
	for returned := false; !returned; {
		err := workflow.Await(ctx, func() bool {
			return d.back.IsReady() || d.job.done.Len() > 0 ||
				d.withoutLease() || full(ctx)
		})
		switch {
		case err != nil:
			return back, err
		case d.back.IsReady():
			returned, err = true, d.back.Get(ctx, &back)
		case d.job.done.Len() > 0:
			returned = d.job.done.Receive(ctx, nil)
		case d.withoutLease() && d.lease.Ended == LeaseParked:
			d.released = true
			d.job.waitFor(ctx, waits+d.meanwhile())
		case d.withoutLease():
			err = d.regain(ctx, waits, d.reacquire)
		default:
			err = d.continueAsNew(ctx)
		}
		if err != nil {
			return back, err
		}
	}
	return back, nil
}

// meanwhile is what else is to be said of a wait for the node.
func (d *drain) meanwhile() string {
	switch {
	case d.unguarded:
		return "; its MaintenancePolicy is gone, so nothing guards its storage meanwhile"
	case d.released:
		return "; noout has expired and the data is whole without it, so nobody is held back"
	}
	return ""
}

// heal uncordons what we cordoned, and waits until the keeper has seen the storage whole and taken the lease back.
func (d *drain) heal(ctx workflow.Context, back activities.NodeReturn) error {
	d.job.enter(ctx, PhaseHeal)
	if err := d.gate(ctx); err != nil {
		return err
	}
	if !back.Gone {
		if err := d.uncordon(ctx); err != nil {
			return err
		}
	}
	d.result.Outcome = OutcomeDone
	if back.Gone {
		d.result.Outcome = OutcomeGone
	}
	if d.unguarded {
		d.result.Outcome = OutcomeRevoked
	}
	wait := "the storage in " + d.target.Domain.String() + " to be whole again"
	d.job.waitFor(ctx, wait)
	since := d.job.Since
	d.lease.NodeGone = back.Gone
	for !d.released {
		whole, err := d.lease.healed(ctx, func() bool { return full(ctx) }, func(why string) {
			d.job.elaborate(ctx, because(wait, why), since)
		})
		switch {
		case err != nil:
			return err
		case !whole && full(ctx):
			return d.continueAsNew(ctx)
		case whole && d.lease.Ended == LeaseRevoked:
			d.result.Outcome = OutcomeRevoked
		}
		d.released = whole
	}
	d.job.waitFor(ctx, "")
	return nil
}

func (d *drain) uncordon(ctx workflow.Context) error {
	if !d.cordoned {
		return nil
	}
	if _, err := call(persistent(ctx, "uncordon "+d.target.Node), draining.Cordon,
		activities.CordonInput{Node: d.target.Node, UID: d.target.UID}); err != nil &&
		!isType(err, activities.TargetChanged) {
		return err
	}
	d.cordoned = false
	return nil
}

// cleanUp undoes what is left to undo, whatever the reason for ending.
func (d *drain) cleanUp(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	// A drain that was parked has no lease any more, but its cordon.
	if err := d.uncordon(ctx); err != nil {
		workflow.GetLogger(ctx).Error("cannot uncordon", "node", d.target.Node, "error", err)
	}
	d.lease.release(ctx)
}

// because adds a reason, if there is one.
func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

func isType(err error, errorType string) bool {
	return applicationErrorType(err) == errorType
}
