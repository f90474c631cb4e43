package workflows

import (
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/input"
)

// Signals of FenceNode beside those of all jobs.
const (
	// SignalFenceChanged: the watcher saw a change of the node, its Machine or a health check. Takes a reason.
	SignalFenceChanged = "fence-changed"
	// SignalFenceRelease overrides the judge. Takes a FenceRelease.
	SignalFenceRelease = "release"
)

// Outcomes of a fence, beside Done (the node is back, and the data whole) and Gone (its Machine is gone, and the data
// whole).
const (
	OutcomeRecovered = "Recovered" // the node recovered before its Machine was released
	OutcomeNotHeld   = "NotHeld"   // nothing holds it: it has no Machine, or the policy names no fencing any more
)

// FenceNodeResult is how the fencing of a node ended.
type FenceNodeResult struct {
	Outcome string `json:"outcome"`
	// Released is why its Machine was released; "": it was not. Against is what a person passed over.
	Released string        `json:"released,omitempty"`
	Against  string        `json:"against,omitempty"`
	Took     time.Duration `json:"took"`
}

// FenceNode sees a node through its fencing, which somebody else does: a health check that deletes its Machine or has
// it rebooted, or a person who deletes the Machine. The Machine is held until the keepers of all storage clusters with
// daemons on the node let it go: because nothing on it serves any more, or because its failure domain is open for it,
// under the lease. Then the job waits until the node is gone or back, and until the data is whole.
//
// It never fences by itself, and sets no noout: the node may not come back. When the node recovers before it was
// released, the job ends and the hold stays. A release that nobody makes use of is taken back after the policy's
// remediationTimeout, so that another node has its turn. A node that fails once more before the data is whole waits for
// its release once more. `abort` ends the job; the Machine is held again.
//
//	temporal workflow start --type FenceNode --task-queue lockkeeper --workflow-id fence/node-a --input '{"node":"node-a"}'
func FenceNode(ctx workflow.Context, in FenceNodeInput) (FenceNodeResult, error) {
	f := &fence{in: in, notices: workflow.GetSignalChannel(ctx, SignalFence)}
	if in.State != nil {
		f.state = *in.State
	}
	f.job = newJob(ctx, fencePhases, f.state.JobState)
	err := runJob(ctx, f.job, f)
	f.state.Result.Took = workflow.Now(ctx).Sub(f.job.Started)
	return f.state.Result, err
}

// FenceState is what a fence hands on to its next run.
type FenceState struct {
	JobState
	Patient fencing.Patient `json:"patient"`
	// Before is how the node was when its Machine was released.
	Before   fencing.Patient   `json:"before,omitzero"`
	Doubt    FenceDoubt        `json:"doubt,omitzero"`
	Why      fencing.Why       `json:"why,omitempty"`
	WhySince time.Time         `json:"whySince,omitzero"`
	Override *fencing.Override `json:"override,omitempty"`
	Clusters []FenceStanding   `json:"clusters,omitempty"`
	AskedAt  time.Time         `json:"askedAt,omitzero"` // when the keepers were last asked
	// Settled: nothing more is to be released, and only the data may have to heal.
	Settled bool `json:"settled,omitempty"`
	// Buried: the pods of dead daemons were deleted, or need not be.
	Buried  bool            `json:"buried,omitempty"`
	Stale   bool            `json:"stale,omitempty"` // something happened since the node was looked at
	Again   bool            `json:"again,omitempty"` // a person wants the Machine to go that was settled
	Trouble string          `json:"trouble,omitempty"`
	Result  FenceNodeResult `json:"result"`
}

type fence struct {
	hurries bool // the lease is to be given back although the storage has not healed
	hears   bool // whatever is reported until the job ends is looked at
	over    bool // it had ended when something was reported
	in      FenceNodeInput
	job     *job
	state   FenceState
	notices workflow.ReceiveChannel

	// hearsAll: a person is heard until then, too, and what was seen under a lease counts when the keeper is done.
	hearsAll bool
	// hearsNext: so does who holds the Machine next, if its policies hold nothing any more.
	hearsNext bool
}

var fencingNode *activities.Fence

// The phases of a fence, in order. It shares those of the lease and of healing with a drain.
const (
	PhaseExamine   = "Examining"
	PhaseHeld      = "Held"
	PhaseRemediate = "AwaitingRemediation"
)

var fencePhases = []string{PhaseExamine, PhaseHeld, PhaseLease, PhaseRemediate, PhaseHeal}

// FenceStatus answers the query "status".
type FenceStatus struct {
	JobStatus
	Node     string            `json:"node"`
	Reason   string            `json:"reason,omitempty"`
	Why      fencing.Why       `json:"why,omitempty"`
	WhySince time.Time         `json:"whySince,omitzero"`
	Patient  fencing.Patient   `json:"patient"`
	Override *fencing.Override `json:"override,omitempty"`
	Clusters []FenceStanding   `json:"clusters,omitempty"`
	Result   FenceNodeResult   `json:"result"`
}

func (f *fence) status() any {
	return FenceStatus{
		JobStatus: f.job.JobStatus, Node: f.in.Node, Reason: f.in.Reason, Why: f.state.Why, WhySince: f.state.WhySince,
		Patient: f.state.Patient, Override: f.state.Override, Clusters: f.state.Clusters, Result: f.state.Result,
	}
}

func (f *fence) outcome() *string { return &f.state.Result.Outcome }

func (f *fence) again(ctx workflow.Context, s JobState) error {
	f.take() // what has come is not in the next run's history
	f.state.JobState = s
	f.in.State = &f.state
	return workflow.NewContinueAsNewError(ctx, FenceNode, f.in)
}

// UnmarshalJSON passes over fields that it does not know: the run before may have been of another version.
func (s *FenceState) UnmarshalJSON(data []byte) error {
	type plain FenceState
	return json.Unmarshal(data, (*plain)(s))
}

// run sees the node through. What a claim was asked for in the run before goes on under it.
func (f *fence) run(ctx workflow.Context) error {
	if f.over {
		if again, err := f.reopen(ctx); !again || err != nil {
			return err
		}
	} else {
		version := workflow.GetVersion(ctx, hearsToTheEnd, workflow.DefaultVersion, 3)
		f.hears, f.hearsAll, f.hearsNext = version >= 1, version >= 2, version >= 3
		f.serve(ctx)
		if r := f.in.Release; r != nil && f.in.State == nil && f.state.Override == nil {
			f.override(ctx, *r)
		}
	}
	for {
		if err := f.release(ctx); err != nil {
			return err
		}
		if f.claims() { // the run before ended while the storage healed
			if err := f.healUnderLease(ctx); err != nil && !errors.Is(err, errLost) {
				return err
			}
		}
		if again, err := f.heal(ctx); !again || err != nil {
			f.over = err == nil
			return err
		}
		f.begin(ctx)
	}
}

// release goes on until the node is fenced, or need not be.
func (f *fence) release(ctx workflow.Context) error {
	for !f.state.Settled {
		if !f.claims() {
			if err := f.proceed(ctx, false); err != nil {
				return err
			}
		}
		if f.state.Settled {
			break
		}
		stop := f.watchOver(ctx)
		err := f.job.underLease(ctx, f.requests(ctx), f.leased)
		stop()
		if err != nil && !errors.Is(err, errLost) {
			return err
		}
	}
	return nil
}

// begin has the node wait for its release once more: it has failed again, or a person wants it. Data that is missed
// because of a failure may never heal without it.
func (f *fence) begin(ctx workflow.Context) {
	f.drop(ctx)
	for f.job.done.ReceiveAsync(nil) { // it was said of what is over
	}
	for i := range f.state.Clusters {
		f.state.Clusters[i] = FenceStanding{Cluster: f.state.Clusters[i].Cluster}
	}
	f.state.Settled, f.state.Buried = false, false
	if !f.state.Again { // or it was said of this release
		f.state.Override = nil
	}
	f.state.Again = false
	f.state.Before, f.state.Doubt, f.state.Result = fencing.Patient{}, FenceDoubt{}, FenceNodeResult{}
	f.state.AskedAt = time.Time{}
	if workflow.GetVersion(ctx, saysSinceAnew, workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		f.state.Why, f.state.WhySince = f.state.Patient.Why()
	}
}

// saysSinceAnew is the change since when a job whose node has failed again says so to a keeper that knows only of the
// time before.
const saysSinceAnew = "says-since-anew"

// serve takes in what the watcher and people say.
func (f *fence) serve(ctx workflow.Context) {
	var why string
	serve(ctx, SignalFenceChanged, &why, func() { f.state.Stale, f.job.changed = true, f.hears })
	var release wholeRelease
	serve(ctx, SignalFenceRelease, &release, func() { f.override(ctx, FenceRelease(release)) })
}

// How long a job waits for news before it looks by itself. A watcher that is away costs that much.
const (
	lookAtNodeEvery    = 5 * time.Minute
	lookAtReleaseEvery = time.Minute
)

// proceed goes on until the node is fenced, or need not be, or, when no lease is held, one is needed.
func (f *fence) proceed(ctx workflow.Context, leased bool) error {
	for {
		if f.state.Stale || len(f.state.Clusters) == 0 {
			if err := f.examine(ctx); err != nil || f.state.Settled {
				return err
			}
		}
		if err := f.ask(ctx); err != nil {
			return err
		}
		f.take()
		if f.refuted(ctx) {
			return nil
		}
		if done, err := f.settle(ctx); done || err != nil {
			return err
		}
		switch {
		case leased && f.hadItsTurn(ctx):
			f.giveBack(ctx)
			return nil
		case leased && !f.claims():
			return errLost
		case !leased && f.wantsLease():
			return nil
		}
		if err := f.await(ctx); err != nil {
			return err
		}
	}
}

// examine looks at the node and its Machine, and finds out why it is to be fenced.
func (f *fence) examine(ctx workflow.Context) error {
	if len(f.state.Clusters) == 0 {
		f.job.enter(ctx, PhaseExamine)
	}
	in := activities.ExamineInput{Node: f.in.Node}
	for _, c := range f.state.Clusters {
		in.Clusters = append(in.Clusters, c.Cluster)
	}
	if len(in.Clusters) == 0 {
		in.Clusters, _ = input.PolicyKeys("policy", f.in.Policy)
	}
	f.state.Stale, f.job.changed = false, false
	seen, err := perform(persistent(ctx, "look at "+f.in.Node+" and its Machine"), f.job, fencingNode.ExamineNode, in)
	if isType(err, activities.InvalidInput) && len(f.state.Clusters) > 0 {
		if !f.state.Settled { // it was held when the job began
			f.state.Result.Outcome, f.state.Settled = OutcomeNotHeld, true
			f.job.changed = f.hearsNext
		}
		f.state.Clusters = nil
		return nil
	}
	if err != nil {
		f.state.Stale = true // the next run looks, if it is the history that is full
		return err
	}
	before := f.state.Patient
	if f.releasedSince(ctx, before) {
		f.state.Before = before
	}
	f.state.Patient = seen.Patient
	if uid := seen.Patient.Machine.UID; uid == "" || uid != before.Machine.UID {
		f.state.Again = false // it was said of a Machine that is gone, and not of the next one
	}
	why, since := seen.Patient.Why()
	if f.released() || f.wasFenced(ctx) {
		return nil // its reason stays what it was
	}
	if why != f.state.Why || f.letGoUnsaid(ctx, before) {
		f.askAnew()
	}
	if f.state.Why, f.state.WhySince = why, since; len(f.state.Clusters) == 0 {
		for _, key := range seen.Clusters {
			f.state.Clusters = append(f.state.Clusters, FenceStanding{Cluster: key})
		}
	}
	outcome := ""
	switch {
	case seen.Patient.Machine.UID == "":
		outcome = OutcomeNotHeld
	case why == fencing.WhyRecovered && (f.state.Override == nil || f.overrideSpent(ctx)):
		outcome = OutcomeRecovered
	}
	switch {
	case outcome == "":
		f.state.Doubt = FenceDoubt{} // it is to be fenced
	case !f.doubts(ctx, before, outcome):
		f.end(ctx, outcome)
	}
	return nil
}

// end withdraws what was asked for. The hold stays.
func (f *fence) end(ctx workflow.Context, outcome string) {
	f.state.Result.Outcome, f.state.Settled = outcome, true
	f.drop(ctx)
	f.state.Clusters = nil
}

// settle finds out whether the node is fenced by now.
func (f *fence) settle(ctx workflow.Context) (bool, error) {
	if !f.released() && !f.wasFenced(ctx) {
		if f.state.Buried = false; !f.remembers(ctx) {
			f.state.Before = fencing.Patient{}
		}
		return false, nil
	}
	if f.state.Before.Machine.UID == "" {
		if f.state.Before = f.state.Patient; f.state.Doubt.Outcome != "" {
			f.state.Before = f.state.Doubt.Before
		}
		f.state.Result.Released, f.state.Result.Against = f.state.Clusters[0].Reason, f.state.Clusters[0].Against
	}
	gone := f.all(func(c FenceStanding) bool { return c.Stage == fencing.StageHealing || c.Stage == fencing.StageOver })
	switch {
	case gone:
		f.state.Result.Outcome = OutcomeGone
		if f.hearsNext && f.because(fencing.StageOver, fencing.ReasonNotHeld) {
			// The next policy has released nothing, and is another one.
			f.job.changed, f.state.Before, f.state.Clusters = true, fencing.Patient{}, nil
		}
	case f.back() || f.job.done.Len() > 0:
		f.state.Result.Outcome = OutcomeDone
		word := f.state.Override
		for i := range f.state.Clusters {
			c := &f.state.Clusters[i]
			if err := f.tell(ctx, c.Cluster, false); err != nil {
				return false, err
			}
			c.Stage = fencing.StageHealing
		}
		if f.state.Override != word && f.hearsAll {
			f.state.Again, f.state.Stale = true, true // it was said meanwhile
		}
	default:
		return false, f.bury(ctx)
	}
	f.state.Settled = true
	return true, nil
}

// bury deletes the pods of dead daemons, so that no closed budget of ours holds up whoever fences the node. If that
// fails it is tried again with the next look; Kubernetes does the same after a while.
func (f *fence) bury(ctx workflow.Context) error {
	if f.state.Buried || f.state.Patient.Ready {
		return nil
	}
	for _, c := range f.state.Clusters {
		_, err := perform(quick(ctx, "delete the pods of dead daemons on "+f.in.Node), f.job, fencingNode.BuryPods,
			activities.BuryInput{Cluster: c.Cluster, Node: f.in.Node})
		if errors.Is(err, errFull) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			f.state.Trouble = message(err)
			return nil
		}
	}
	f.state.Buried, f.state.Trouble = true, ""
	return nil
}

// cleanUp has the Machine held again, if it was released and is still there.
func (f *fence) cleanUp(ctx workflow.Context) { f.drop(ctx) }
