package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Keeper guards one storage cluster: it is the only writer of its budgets, its flags and its lease, and runs for
// as long as the MaintenancePolicy exists.
//
// It rests until somebody tells it to look: the watcher (Kubernetes changed), its own activity that watches the storage
// cluster, a job, or a timer. Then it observes, decides, and applies, in this order. What it could not do it tries
// again later; meanwhile the last budgets stay, and those never allow more than what was safe when they were set.
//
// The watcher starts it for every policy. By hand:
//
//	temporal workflow start --type Keeper --task-queue lockkeeper --workflow-id keeper/storage/main \
//	  --input '{"cluster":{"namespace":"storage","name":"main"}}'
func Keeper(ctx workflow.Context, in KeeperInput) (KeeperResult, error) {
	if err := in.validate(ctx); err != nil {
		return KeeperResult{}, err
	}
	k := &keeper{mind: mind{cluster: in.Cluster}, wake: workflow.NewBufferedChannel(ctx, 1), jobs: map[string]*following{}}
	k.here = workflow.GetVersion(ctx, looksHere, workflow.DefaultVersion, 1) == 1
	k.commits = workflow.GetVersion(ctx, commitsFirst, workflow.DefaultVersion, 1) == 1
	k.regrets = workflow.GetVersion(ctx, regretsReleases, workflow.DefaultVersion, 1) == 1
	k.bears = workflow.GetVersion(ctx, bearsLostNodes, workflow.DefaultVersion, 1) == 1
	k.waits = workflow.GetVersion(ctx, waitsToHoldAnew, workflow.DefaultVersion, 1) == 1
	k.countsLetGo = workflow.GetVersion(ctx, countsWhatWasLetGo, workflow.DefaultVersion, 1) == 1
	k.closesNumber = workflow.GetVersion(ctx, closesNumberToo, workflow.DefaultVersion, 1) == 1
	k.awaitsReturns = workflow.GetVersion(ctx, awaitsWhoReturns, workflow.DefaultVersion, 1) == 1
	k.bearsForItself = workflow.GetVersion(ctx, bearsForItself, workflow.DefaultVersion, 1) == 1
	k.shuts = workflow.GetVersion(ctx, shutsForFences, workflow.DefaultVersion, 1) == 1
	k.renews = workflow.GetVersion(ctx, renewsFences, workflow.DefaultVersion, 1) == 1
	k.goesOn = workflow.GetVersion(ctx, goesOnUnwritten, workflow.DefaultVersion, 1) == 1
	k.putsOff = workflow.GetVersion(ctx, putsOffOthers, workflow.DefaultVersion, 1) == 1
	k.datesLooks = workflow.GetVersion(ctx, datesLooks, workflow.DefaultVersion, 1) == 1
	k.doubtsMoves = workflow.GetVersion(ctx, doubtsMoves, workflow.DefaultVersion, 1) == 1
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

// keeper is the shell of a mind: it looks, listens, carries out and tells, in workflows' time.
type keeper struct {
	mind
	wake      workflow.Channel      // something that is not a signal asks for a look
	jobs      map[string]*following // by claimID
	watch     workflow.Future
	watchOf   int64     // the policy's generation that it watches under
	watchAsOf doubt.Seq // the last doubt that it knows of
	stopWatch workflow.CancelFunc
	life      workflow.Future // an answer is awaited
	asks      storage.FailureDomain
	asksAsOf  doubt.Seq
	stopLife  workflow.CancelFunc
	timer     workflow.Future // ends the rest; nil: nothing does but what happens
	timerAt   time.Time       // when it does
	stopTimer workflow.CancelFunc
	// here: looks are taken within the workflow task, and reports that tell nothing new are written there.
	here bool
	// overtaken: the last pass was no more than a look, since something happened meanwhile.
	overtaken   bool
	stopMarking workflow.CancelFunc // asks for an end of marking
	// reporting: the status is being written while the keeper goes on; unreported: there is more to write; writesAgain: it
	// could not be written, and is tried again later.
	reporting, unreported, writesAgain bool
	// goesOn: nobody waits for a status that could not be written.
	goesOn bool
}

// Activities by reference: the zero value is never called, only named.
var keeping *activities.Keeper

// recall takes up what the last keeper left. The finalizer comes before anything else is changed.
func (k *keeper) recall(ctx workflow.Context) error {
	memory, err := call(persistent(ctx, "recall lease and flags"), keeping.Recall, k.cluster)
	if err != nil {
		return err
	}
	// The update that started this keeper may have queued a claim already.
	for _, c := range k.state.Memory.Lease.Queue {
		memory.Lease = memory.Lease.Request(c)
	}
	if asked := k.state.Memory.Fencing; asked != nil {
		if memory.Fencing == nil {
			memory.Fencing = &fencing.Ledger{}
		}
		for _, c := range asked.Cases {
			if k.renews && c.Stage == fencing.StageHeld {
				memory.Fencing.Renew(c.Target)
			}
			memory.Fencing.Request(workflow.Now(ctx), c.Target)
		}
	}
	k.state.Memory = memory
	_, err = call(persistent(ctx, "guard the policy"), keeping.GuardPolicy,
		activities.GuardInput{Cluster: k.cluster, On: true})
	return err
}

// run guards the storage cluster until the policy is deleted.
func (k *keeper) run(ctx workflow.Context) error {
	k.daemonsDue, k.began = true, workflow.Now(ctx)
	k.doubt(k.began, doubt.Changed, "the keeper began")
	workflow.Go(ctx, k.renew)
	for {
		k.trouble, k.again, k.late, k.untold = "", false, false, time.Time{}
		k.answerDoubts(ctx)
		gone, err := k.pass(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			k.trouble = storage.Clip(message(err), mostMessage)
		}
		if a := k.state.Applied; k.lookFailed && k.state.Manages &&
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
		k.ahead = nil
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

// pass is one round: observe, decide, apply. gone means that the policy is deleted or being deleted.
func (k *keeper) pass(ctx workflow.Context) (gone bool, err error) {
	// A look that fails says nothing, and takes nothing away from what is known.
	observed, err := k.observe(ctx)
	if k.lookFailed = err != nil; k.lookFailed {
		return false, err
	}
	k.observed, k.state.Manages = observed, observed.Settings.ManagePodBudgets
	if !k.observed.Found || k.observed.Deleting {
		return true, nil
	}
	k.sawAll(workflow.Now(ctx))
	if k.observed.Second != "" {
		return false, k.standAside(ctx)
	}
	if k.movedOn() {
		return false, k.leaveOldCluster(ctx)
	}
	if k.mustLookOnceMore(ctx) {
		return false, nil
	}
	j := k.judge(workflow.Now(ctx))
	k.ask(ctx, j.question)
	err = k.apply(ctx)
	k.next = k.nextTimer(j.Input)
	k.lookAgain(workflow.Now(ctx))
	if at := k.lookAtMachinesAgain(workflow.Now(ctx)); !at.IsZero() && (k.next.IsZero() || at.Before(k.next)) {
		k.next = at
	}
	k.again = k.again || (j.claimed || k.mustCommit()) && err == nil
	return false, err
}

// observe takes a look, unless one was taken already. What happened since that one counts for nothing in it.
func (k *keeper) observe(ctx workflow.Context) (activities.Observation, error) {
	before := k.ahead
	k.lookAsOf = k.state.Doubts.Last
	if k.ahead = nil; before != nil && before.asOf == k.state.Doubts.Last {
		k.asked, k.askedNodes, k.askedCommit = before.asked, before.nodes, before.commit
		return before.Observation, nil
	}
	look := k.look()
	k.asked, k.askedNodes, k.askedCommit = look.Look.Hosts, look.Look.Nodes, look.Look.Commit
	const summary = "look at Kubernetes and the storage cluster"
	if k.here {
		return callHere(here(ctx, summary), keeping.ObserveStorage, look)
	}
	return call(quick(ctx, summary), keeping.ObserveStorage, look)
}

// looksHere is the change since when a keeper looks within the workflow task. A history from before it goes on as it
// began.
const looksHere = "looks-here"

// commitsFirst is the change since when a look begins with a commit if somebody may go because of it.
const commitsFirst = "commits-first"

// regretsReleases is the change since when a release of a Machine is judged until somebody makes use of it, and
// Machines are held by what pods tell while the storage cluster is silent.
const regretsReleases = "regrets-releases"

// bearsLostNodes is the change since when a fence bears with other nodes that are lost and held back, and since when
// Machines are held at once as the policy says, however they were held before.
const bearsLostNodes = "bears-lost-nodes"

// closesNumberToo is the change since when an alarm closes a MachineDisruptionBudget also where the budgets of pods are
// closed already, as beside a node that is lost.
const closesNumberToo = "closes-number-too"

// countsWhatWasLetGo is the change since when what runs on a node that was let go to be fenced counts as going, and
// what the budgets let go counts where another node is to be fenced.
const countsWhatWasLetGo = "counts-what-was-let-go"

// awaitsWhoReturns is the change since when a Machine whose daemons are down is not released before those that live had
// time to say so, when the storage cluster was silent.
const awaitsWhoReturns = "awaits-who-returns"

// bearsForItself is the change since when a fence bears with other nodes that are lost for its own opening, and not for
// that of a failure domain where something is down.
const bearsForItself = "bears-for-itself"

// renewsFences is the change since when a fence that asks anew, since its node has failed again, is taken at its word,
// whatever the keeper had noted of the release before.
const renewsFences = "renews-fences"

// shutsForFences is the change since when nothing opens for a fence that takes only what is to end anyway, while others
// are to end elsewhere.
const shutsForFences = "shuts-for-fences"

// goesOnUnwritten is the change since when a keeper goes on looking while its status cannot be written.
const goesOnUnwritten = "goes-on-unwritten"

// waitsToHoldAnew is the change since when another way to hold Machines waits until no node is to be fenced.
const waitsToHoldAnew = "waits-to-hold-anew"

// putsOffOthers is the change since when other budgets wait for those that decide.
const putsOffOthers = "puts-off-others"

// datesLooks is the change since when a look at the budgets answers only the doubts from before it began.
const datesLooks = "dates-looks"

// doubtsMoves is the change since when data may have been moved though the answer about a plan says that it was not: an
// attempt that was given up may have gone on.
const doubtsMoves = "doubts-moves"

// mustLookOnceMore tells whether anything happened while the keeper looked. Then it is taken in, and the look is taken
// again, so that one decision is for all of it; but not twice in a row, since something may happen all the time.
func (k *keeper) mustLookOnceMore(ctx workflow.Context) bool {
	if k.overtaken = !k.overtaken && k.hear(ctx); k.overtaken {
		k.again = true
	}
	return k.overtaken
}
