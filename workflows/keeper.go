package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Keeper guards one storage cluster: it is the only writer of its budgets, its noout flags and its lease, and runs for
// as long as the MaintenancePolicy exists.
//
// It rests until somebody tells it to look: the watcher (Kubernetes changed), its own activity that watches the storage
// cluster, a job, or a timer. Then it observes, decides, and applies, in this order. What it could not do it tries
// again later; meanwhile the last budgets stay, and those never allow more than what was safe when they were set.
//
// The watcher starts it for every policy. By hand:
//
//	temporal workflow start --type Keeper --task-queue lockkeeper --workflow-id keeper/rook-ceph/rook-ceph \
//	  --input '{"cluster":{"namespace":"rook-ceph","name":"rook-ceph"}}'
func Keeper(ctx workflow.Context, in KeeperInput) (KeeperResult, error) {
	if err := in.validate(ctx); err != nil {
		return KeeperResult{}, err
	}
	k := &keeper{cluster: in.Cluster, wake: workflow.NewBufferedChannel(ctx, 1), jobs: map[string]*following{}}
	// Before anybody is answered: a claim that has come already is taken in as soon as there is a handler for it, and
	// would be overwritten.
	if in.State != nil {
		k.takeUp(*in.State, workflow.Now(ctx))
	}
	if err := k.answer(ctx); err != nil {
		return KeeperResult{}, err
	}
	if in.State == nil {
		if err := k.recall(ctx); err != nil {
			return KeeperResult{}, err
		}
	}
	if k.state.Told == nil {
		k.state.Told = map[string]Told{}
	}
	if err := k.run(ctx); err != nil {
		return KeeperResult{}, err
	}
	return k.retire(ctx)
}

type keeper struct {
	cluster storage.ClusterKey
	state   KeeperState

	observed activities.Observation
	looked   time.Time // when
	// lookFailed: the last look did, and observed is of the one before.
	lookFailed bool
	clean      bool
	reworded   int                   // notices of this round that say the same with other words
	untold     time.Time             // when somebody has to hear what was withheld from him; zero: nothing was
	wake       workflow.Channel      // something that is not a signal asks for a look
	jobs       map[string]*following // by claimID
	noout      []string              // the hosts that carry noout, as of the last look and of what was switched since
	watch      workflow.Future
	watchOf    int64     // the policy's generation that it watches under
	watchAsOf  doubt.Seq // the last doubt that it knows of
	stopWatch  workflow.CancelFunc
	life       workflow.Future // an answer is awaited
	asks       storage.FailureDomain
	asksAsOf   doubt.Seq
	stopLife   workflow.CancelFunc
	trouble    string // what failed in the last pass
	failures   int    // passes in a row with trouble
	next       time.Time
	timer      workflow.Future // ends the rest; nil: nothing does but what happens
	timerAt    time.Time       // when it does
	stopTimer  workflow.CancelFunc
	// The static budgets depend on little that changes; they are applied when a hint says so.
	daemonsDue bool
	leaving    activities.LeavingNodes
	// aside: another policy is in charge, and nothing of ours was left as of asideAsOf.
	aside     bool
	asideAsOf doubt.Seq
	// asked are the hosts that the last look was asked about.
	asked     []storage.Host
	unclaimed int // looks in a row that did not find the claim, which was written after the first of them
	// keptClosed: what is left are the budgets, closed, since nobody else's cover the same pods.
	keptClosed bool
	// marking: pods are being marked; stopMarking asks for an end of that.
	marking     bool
	stopMarking workflow.CancelFunc
	// again: the pass was a step on the way to another, which must follow at once.
	again bool
	// reporting: the status is being written while the keeper goes on; unreported: there is more to write.
	reporting, unreported bool
	// unwritten is why the status could not be written at the last attempt.
	unwritten string
	revoked   []lease.Claim // to be told
	outbox    []outgoing
	// refused says of hosts why the storage cluster did not switch their noout in this pass.
	refused map[string]string
	// closed is what the keeper closed to after its last decision; nil: the decision is in force.
	closed *budget.Decision
	news   []activities.Event // to be reported
}

// Activities by reference: the zero value is never called, only named.
var keeping *activities.Keeper

// recall takes up what the last keeper left. The finalizer comes before anything else is changed.
func (k *keeper) recall(ctx workflow.Context) error {
	memory, err := call(persistent(ctx, "recall lease and noout"), keeping.Recall, k.cluster)
	if err != nil {
		return err
	}
	// The update that started this keeper may have queued a claim already.
	for _, c := range k.state.Memory.Lease.Queue {
		memory.Lease = memory.Lease.Request(c)
	}
	k.state.Memory = memory
	_, err = call(persistent(ctx, "guard the policy"), keeping.GuardPolicy,
		activities.GuardInput{Cluster: k.cluster, On: true})
	return err
}

// run guards the storage cluster until the policy is deleted.
func (k *keeper) run(ctx workflow.Context) error {
	k.daemonsDue = true
	k.doubt(ctx, doubt.Changed, "the keeper began")
	workflow.Go(ctx, k.renew)
	for {
		k.trouble, k.again, k.untold = "", false, time.Time{}
		k.answerDoubts(ctx)
		gone, err := k.pass(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			k.trouble = storage.Clip(message(err), mostMessage)
		}
		if a := k.state.Applied; k.lookFailed && k.observed.Settings.ManagePodBudgets &&
			(a == nil || a.Mode == budget.ModeClosed) {
			k.admitClosed(ctx, "nothing opens before a look, and it fails: "+k.trouble)
		}
		if gone {
			return nil
		}
		if k.failures++; k.trouble == "" {
			k.failures = 0
		}
		if !k.lookFailed { // what keeps a look from succeeding may end a watch at once, again and again
			k.startWatch(ctx)
		}
		if k.again && k.trouble == "" {
			continue
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return k.continueAsNew(ctx)
		}
		if err := k.rest(ctx); err != nil {
			return err
		}
	}
}

// continueAsNew hands everything over to the next run.
func (k *keeper) continueAsNew(ctx workflow.Context) error {
	// Every pass begins a report, so to look whether one is under way would be to wait for ever.
	if err := workflow.Await(ctx, func() bool { return !k.reporting && workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	if err := k.endMarking(ctx); err != nil {
		return err
	}
	// A claim that comes with this very task is taken in by a handler that runs after us, and would be lost.
	if err := letSignalsIn(ctx); err != nil {
		return err
	}
	k.drainHints(ctx)
	k.keepTold()
	return workflow.NewContinueAsNewError(ctx, Keeper,
		KeeperInput{Cluster: k.cluster, State: k.handOn(), Protocol: keeperProtocol})
}

// handOn is the state for the next run, without what it holds twice.
func (k *keeper) handOn() *KeeperState {
	s := k.state
	s.Reported.View = storage.View{}
	if sameMemory(s.Memory, s.Reported.Memory) {
		s.Reported.Memory, s.RememberedAsReported = activities.Memory{}, true
	}
	return &s
}

// takeUp is the reverse of handOn. That the report seems to be another one costs one more. A run of a version that
// numbered no doubts may have had any: then nothing that it proved counts.
func (k *keeper) takeUp(s KeeperState, now time.Time) {
	if s.Doubts.Last == 0 {
		s.Doubts.Raise(now, doubt.Silenced, "an older version ran before")
	}
	if s.RememberedAsReported {
		s.Reported.Memory, s.RememberedAsReported = s.Memory, false
	}
	k.state = s
}

// pass is one round: observe, decide, apply. gone means that the policy is deleted or being deleted.
func (k *keeper) pass(ctx workflow.Context) (gone bool, err error) {
	// A look that fails says nothing, and takes nothing away from what is known.
	look := k.look()
	k.asked = look.Look.Hosts
	observed, err := call(quick(ctx, "look at Kubernetes and the storage cluster"), keeping.ObserveStorage, look)
	if k.lookFailed = err != nil; k.lookFailed {
		return false, err
	}
	k.observed = observed
	if !k.observed.Found || k.observed.Deleting {
		return true, nil
	}
	if v := k.observed.Seen.View; v.Unavailable == "" {
		k.state.LastChange, k.state.Departed = v.ChangeEpoch, v.Departed
	} else if v.Departed != nil {
		k.state.Departed = v.Departed
	}
	k.looked, k.noout = workflow.Now(ctx), slices.Clone(k.observed.Seen.View.Noout)
	if k.observed.Second != "" {
		return false, k.standAside(ctx)
	}
	if k.movedOn() {
		return false, k.leaveOldCluster(ctx)
	}
	k.aside = false
	claimed := k.claim()
	k.notice(ctx)
	in := k.input(ctx)
	k.revoke(&in)
	k.takeBack(&in)
	k.seekLife(ctx, &in)
	k.grant(&in)
	k.decide(ctx, in)
	err = k.apply(ctx)
	k.next = budget.NextTimer(in, k.state.Announced, k.state.Memory.Noout)
	k.lookAgain(ctx)
	k.again = k.again || claimed && err == nil
	return false, err
}

// look names what must be in the View although it may be in perfect order, or although it is so large that not all is
// named.
func (k *keeper) look() activities.ObserveInput {
	l := activities.Look{
		Proof: k.state.Proof, LastChange: k.state.LastChange, Departed: k.state.Departed,
		Hosts: k.nooutHosts(), Bounded: true,
	}
	add := func(d storage.FailureDomain, node string) {
		if d.Name != "" && !slices.Contains(l.Domains, d.Name) {
			l.Domains = append(l.Domains, d.Name)
		}
		if node != "" && !slices.Contains(l.Nodes, node) {
			l.Nodes = append(l.Nodes, node)
		}
	}
	for _, domain := range budget.Turn(budget.Input{
		View: k.observed.Seen.View, Lease: k.state.Memory.Lease,
		Open: k.state.Decision.Open,
	}) {
		add(storage.FailureDomain{Name: domain}, "")
	}
	claims := slices.Concat(k.state.Memory.Lease.Holders, k.state.Memory.Lease.Queue)
	for _, c := range claims[:min(len(claims), mostClaimsSeen)] {
		add(c.Domain, c.Node)
		if c.Next != nil {
			add(c.Next.Domain, c.Next.Node)
		}
		l.Daemons = append(l.Daemons, c.Daemons...)
	}
	add(k.state.Decision.Open, "")
	for _, node := range sortedKeys(k.state.Announced) {
		if k.observed.Seen.View.Others != nil { // its turn is not forgotten because there is no name for it any more
			add(storage.FailureDomain{}, node)
		}
	}
	return activities.ObserveInput{Cluster: k.cluster, Look: l}
}

// mostClaimsSeen is for how many claims what they speak of is looked at in any case. The others have their turn later.
const mostClaimsSeen = 64

// input is all that a decision depends on: no more than the query "status" tells.
func (k *keeper) input(ctx workflow.Context) budget.Input { return k.status().Input(workflow.Now(ctx)) }

// known is what the keeper judges by beside the last look.
func (k *keeper) known() *budget.Known {
	opened, leftOut := k.opened()
	return &budget.Known{
		Settings: k.observed.Settings, Proof: k.state.Proof, Announced: k.state.Announced, HealingSince: k.state.HealingSince,
		Unheard: k.state.Doubts.Unheard(), Open: k.state.Decision.Open, Opened: opened, LeftOut: leftOut, Life: k.lives(),
	}
}

// revoke takes claims away: those that speak of a kind of failure domain that is no longer the pools' smallest one, and
// those that were held in reserve while others waited. Their jobs find out anew where they are, and ask again.
func (k *keeper) revoke(in *budget.Input) {
	for _, c := range budget.Revoked(*in) {
		in.Lease = in.Lease.Release(c.WorkflowID, c.RunID)
		k.revoked = append(k.revoked, c)
	}
}

// takeBack takes the lease back from jobs that are done and healed. Those with a next claim hear of that.
func (k *keeper) takeBack(in *budget.Input) {
	l, released := budget.TakeBack(*in)
	in.Lease = l
	k.state.Released = append(k.state.Released, released...)
}

// grant grants the lease to who may have it now.
func (k *keeper) grant(in *budget.Input) {
	l, granted := budget.Grant(*in, k.askedAbout)
	for _, c := range granted {
		l = l.NoteDownBefore(c.Token, budget.DownBefore(*in, c))
	}
	for i := range l.Queue {
		most := mostReason
		if i >= mostClaimsSeen {
			most = mostReasonLater
		}
		l.Queue[i].WaitsFor = storage.Clip(l.Queue[i].WaitsFor, most)
	}
	in.Lease = l
}

// mostReason is how long what a job waits for may be, and mostMessage a decision's message, in bytes. Both are kept,
// sent and written down many times.
const (
	mostReason  = 400
	mostMessage = 1000
	// mostReasonLater is for claims far behind in the queue: all of them are in the policy's status, which etcd bounds.
	mostReasonLater = 80
)

func (k *keeper) decide(ctx workflow.Context, in budget.Input) {
	d := budget.Decide(in)
	d.Message = storage.Clip(d.Message, mostMessage)
	k.clean = budget.Clean(in)
	k.state.Announced = budget.NextAnnounced(in, d)
	k.state.Proof = budget.NextProof(in)
	if in.Unheard && !budget.NextUnheard(in) {
		k.state.Doubts.Hear(k.state.WatchedAsOf)
	}
	k.state.HealingSince = in.HealingSince
	k.state.Memory.Lease = in.Lease
	if d.Mode != k.state.Decision.Mode || d.Open != k.state.Decision.Open || d.Reason != k.state.Decision.Reason {
		k.state.Since = workflow.Now(ctx)
	}
	k.state.Decision, k.closed = d, nil
}
