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

// DrainNodeInput starts a drain. Only the node is required.
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
	switch {
	case d.job.Aborted:
		d.result.Outcome, err = OutcomeAborted, nil
	case d.result.Waited > 0 && isType(err, activities.InvalidInput):
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
	claim  lease.Claim
	// observing: the node's pods are gone, whoever evicted them, so the disruption goes on with or without the lease.
	observing bool
	token     int64
	// reminders in a row that brought no word of the keeper
	reminders int
	back      workflow.Future // the node's return, once somebody waits for it
	cordoned  bool            // by us
	released  bool
	result    DrainNodeResult
	notices   workflow.ReceiveChannel
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
	d := &drain{in: in, notices: workflow.GetSignalChannel(ctx, SignalLease)}
	d.job = newJob(ctx, drainPhases)
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
	return DrainStatus{JobStatus: d.job.JobStatus, Target: d.target, Observe: d.in.Observe, Reason: d.in.Reason, Token: d.token, Result: d.result}
}

func (d *drain) run(ctx workflow.Context) error {
	if err := d.resolve(ctx); err != nil {
		return err
	}
	d.observing = d.in.Observe
	// Registered before anything is changed: a step that timed out may have happened all the same.
	defer d.cleanUp(ctx)
	if d.in.Observe && !d.target.Gone {
		d.watchNode(ctx) // it may be back before we get the lease
	}
	if err := d.acquireLease(ctx); err != nil {
		return err
	}
	if d.backEarly() {
		d.result.Outcome = OutcomeDone // the clean-up takes our claim out of the queue
		return nil
	}
	for !d.in.Observe {
		if err := d.cordon(ctx); err != nil {
			return err
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
	back, err := d.awaitReturn(ctx)
	if err != nil {
		return err
	}
	return d.heal(ctx, back)
}

func (d *drain) resolve(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseResolve)
	in := activities.ResolveInput{Node: d.in.Node}
	in.Cluster.Namespace, in.Cluster.Name, _ = strings.Cut(d.in.Policy, "/")
	target, err := call(persistent(ctx, "find the storage on "+d.in.Node), draining.ResolveNode, in)
	if err != nil {
		return err // the target that we know already is what has to be cleaned up
	}
	d.target = target
	return nil
}

// acquireLease waits until the keeper grants the node's failure domain. By then noout is set on the node and the domain
// is open for eviction.
func (d *drain) acquireLease(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseLease)
	began := workflow.Now(ctx)
	reason := d.in.Reason
	if reason == "" {
		reason = "drain of " + d.in.Node
		if d.in.Observe {
			reason = d.in.Node + " is drained from outside"
		}
	}
	info := workflow.GetInfo(ctx)
	d.claim = lease.Claim{
		WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Domain: d.target.Domain, Node: d.target.Node,
		Reason: reason, Priority: lease.PriorityDrain, Observing: d.observing, NooutHost: d.target.Host,
	}
	if d.target.Gone {
		d.claim.NooutHost = "" // nobody comes back to what noout would preserve
	}
	wait := "the lease of " + d.target.Domain.String()
	d.job.waitFor(ctx, wait)
	for {
		// Asking again keeps the place in the queue, and brings back a claim that the keeper never came to write down.
		if _, err := call(persistent(ctx, "ask for the lease"), draining.RequestLease, activities.LeaseInput{Cluster: d.target.Cluster, Claim: d.claim}); err != nil {
			return err
		}
		for {
			n, ok, err := d.notice(ctx)
			if err != nil {
				return err
			}
			if d.backEarly() {
				return nil
			}
			if !ok {
				break // nothing was heard for long: ask again
			}
			switch n.State {
			case LeaseGranted:
				d.token = n.Token
				d.result.Waited += workflow.Now(ctx).Sub(began)
				return nil
			case LeaseRevoked:
				return d.reacquire(ctx)
			case LeaseWaiting, LeaseHealing, LeaseReleased, LeaseParked:
				d.job.waitFor(ctx, because(wait, n.WaitsFor))
			}
		}
	}
}

// reacquire begins anew after the lease was revoked: the node may belong to another failure domain now, or to none that
// is looked after, which is then the reason why the drain ends.
func (d *drain) reacquire(ctx workflow.Context) error {
	before := d.target
	if err := d.resolve(ctx); err != nil {
		return err
	}
	// Whose the cordon is, and which node it was, was settled when the drain began.
	d.target.Cordoned, d.target.UID, d.target.BootID = before.Cordoned, before.UID, before.BootID
	d.token = 0
	return d.acquireLease(ctx)
}

// backEarly: the node that somebody else drains was back before we were granted the lease.
func (d *drain) backEarly() bool {
	return d.token == 0 && d.in.Observe && d.back != nil && d.back.IsReady()
}

// A drain that hears nothing from the keeper for this long asks again, then after twice as long, and so on. A keeper that
// was terminated in the wrong moment has forgotten what it had not written down yet; that is rare, and history is finite.
const (
	remindAfter    = 2 * time.Minute
	remindAfterMax = 2 * time.Hour
)

// notice receives the next word of the keeper about our claim. ok is false when none came for long, when one came that
// nobody can read, or when the node that is only observed is back. It never blocks on the channel itself: Receive passes
// over a signal that it cannot decode and waits for the next, and then neither the timer nor `abort` would be heard.
func (d *drain) notice(ctx workflow.Context) (n LeaseNotice, ok bool, err error) {
	timerCtx, stopTimer := workflow.WithCancel(ctx)
	defer stopTimer()
	late := workflow.NewTimerWithOptions(timerCtx, min(remindAfter<<min(d.reminders, 8), remindAfterMax), workflow.TimerOptions{Summary: "remind the keeper"})
	for {
		s := workflow.NewSelector(ctx)
		s.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
		s.AddReceive(d.notices, func(c workflow.ReceiveChannel, _ bool) { ok = c.ReceiveAsync(&n) })
		s.AddFuture(late, func(workflow.Future) {})
		if d.in.Observe && d.token == 0 && d.back != nil {
			s.AddFuture(d.back, func(workflow.Future) {})
		}
		s.Select(ctx)
		if ctx.Err() != nil {
			return n, false, ctx.Err()
		}
		if !ok {
			d.reminders++
			return LeaseNotice{}, false, nil
		}
		if n.RunID == workflow.GetInfo(ctx).FirstRunID {
			d.reminders = 0
			return n, true, nil
		}
		n, ok = LeaseNotice{}, false
	}
}

func (d *drain) cordon(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseCordon)
	if err := d.job.gate(ctx); err != nil {
		return err
	}
	d.cordoned = !d.target.Cordoned
	_, err := call(persistent(ctx, "cordon "+d.target.Node), draining.Cordon, activities.CordonInput{Node: d.target.Node, UID: d.target.UID, On: true})
	return err
}

// evict empties the node. A pause stops evicting between two pods and goes on where it was.
func (d *drain) evict(ctx workflow.Context) error {
	d.job.enter(ctx, PhaseEvict)
	info := workflow.GetInfo(ctx)
	in := activities.EvictInput{
		Cluster: d.target.Cluster, Node: d.target.Node, UID: d.target.UID, Options: d.in.Eviction,
		WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Token: d.token,
	}
	for {
		if err := d.job.gate(ctx); err != nil {
			return err
		}
		d.job.waitFor(ctx, "the pods of "+d.target.Node+" to be evicted")
		evictCtx, cancel := workflow.WithCancel(ctx)
		d.job.onPause = cancel
		p, err := call(watching(evictCtx, "evict the pods of "+d.target.Node), draining.EvictPods, in)
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
	d.job.enter(ctx, PhaseReturn)
	d.observing = true
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
	d.job.waitFor(ctx, waits)
	for returned := false; !returned; {
		s := workflow.NewSelector(ctx)
		s.AddFuture(d.back, func(f workflow.Future) { err, returned = f.Get(ctx, &back), true })
		s.AddReceive(d.job.done, func(c workflow.ReceiveChannel, _ bool) { returned = c.Receive(ctx, nil) })
		s.AddReceive(d.notices, func(c workflow.ReceiveChannel, _ bool) {
			var n LeaseNotice
			if !c.ReceiveAsync(&n) || n.RunID != workflow.GetInfo(ctx).FirstRunID {
				return
			}
			switch n.State {
			case LeaseParked:
				d.released = true
				d.job.waitFor(ctx, waits+"; noout has expired and the data is whole without it, so nobody is held back")
			case LeaseRevoked:
				if err = d.reacquire(ctx); err != nil {
					returned = true
				}
				d.job.enter(ctx, PhaseReturn)
				d.job.waitFor(ctx, waits)
			case LeaseWaiting, LeaseGranted, LeaseHealing, LeaseReleased:
			}
		})
		s.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { returned = true })
		s.Select(ctx)
	}
	if ctx.Err() != nil {
		return back, ctx.Err()
	}
	return back, err
}

// heal uncordons what we cordoned, and waits until the keeper has seen the storage whole and taken the lease back.
func (d *drain) heal(ctx workflow.Context, back activities.NodeReturn) error {
	d.job.enter(ctx, PhaseHeal)
	if err := d.job.gate(ctx); err != nil {
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
	wait := "the storage in " + d.target.Domain.String() + " to be whole again"
	d.job.waitFor(ctx, wait)
	for !d.released {
		if err := d.finish(ctx, back.Gone); err != nil {
			return err
		}
		for heard := true; heard && !d.released; {
			n, ok, err := d.notice(ctx)
			if err != nil {
				return err
			}
			heard = ok
			switch n.State {
			case LeaseReleased, LeaseParked:
				d.released = true
			case LeaseRevoked:
				d.released, d.result.Outcome = true, OutcomeRevoked
			case LeaseHealing:
				d.job.waitFor(ctx, because(wait, n.WaitsFor))
			case LeaseWaiting, LeaseGranted: // sent before the keeper heard that we are done
			}
		}
	}
	d.job.waitFor(ctx, "")
	return nil
}

// finish tells the keeper that our work is done. One that is not running is started by asking for what we hold already.
func (d *drain) finish(ctx workflow.Context, nodeGone bool) error {
	info := workflow.GetInfo(ctx)
	ref := LeaseRef{WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, NodeGone: nodeGone}
	err := workflow.SignalExternalWorkflow(ctx, KeeperID(d.target.Cluster), "", SignalFinishLease, ref).Get(ctx, nil)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, err := call(persistent(ctx, "start the keeper again"), draining.RequestLease, activities.LeaseInput{Cluster: d.target.Cluster, Claim: d.claim}); err != nil {
		return err
	}
	return workflow.SignalExternalWorkflow(ctx, KeeperID(d.target.Cluster), "", SignalFinishLease, ref).Get(ctx, nil)
}

func (d *drain) uncordon(ctx workflow.Context) error {
	if !d.cordoned {
		return nil
	}
	if _, err := call(persistent(ctx, "uncordon "+d.target.Node), draining.Cordon, activities.CordonInput{Node: d.target.Node, UID: d.target.UID}); err != nil && !isType(err, activities.TargetChanged) {
		return err
	}
	d.cordoned = false
	return nil
}

// cleanUp undoes what is left to undo, whatever the reason for ending.
func (d *drain) cleanUp(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	log := workflow.GetLogger(ctx)
	// A drain that was parked has no lease any more, but its cordon.
	if err := d.uncordon(ctx); err != nil {
		log.Error("cannot uncordon", "node", d.target.Node, "error", err)
	}
	if d.released {
		return
	}
	info := workflow.GetInfo(ctx)
	ref := LeaseRef{WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID}
	if err := workflow.SignalExternalWorkflow(ctx, KeeperID(d.target.Cluster), "", SignalReleaseLease, ref).Get(ctx, nil); err != nil {
		log.Error("cannot release the lease; the keeper takes it back when this job has ended", "error", err)
	}
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
