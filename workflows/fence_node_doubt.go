package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// This file is what a fence does when its node need not be fenced any more, and its Machine is not held, although no
// keeper has said that it let go: the keeper may have died in between, or its notice may be on its way. Then the node
// was fenced, and the job has to end so. The keeper's ledger knows: it was written before the hold went.

// asksWhoLetGo is the change since when the keeper is asked.
const asksWhoLetGo = "asks-who-let-go"

// asksWho tells whether this run is one that does so.
func asksWho(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, asksWhoLetGo, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// remembersFences is the change since when a job whose Machine is held again remembers that it was let go.
const remembersFences = "remembers-fences"

// remembers tells whether its Machine was let go before and is held again, in a run that takes note of that.
func (f *fence) remembers(ctx workflow.Context) bool {
	return f.state.Before.Machine.UID != "" && !f.released() &&
		workflow.GetVersion(ctx, remembersFences, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// wasFenced tells whether the node was started again since its Machine was let go, although that is held again by now:
// its daemons served once more before the job saw that it is back, and somebody else might have disrupted the storage
// cluster.
func (f *fence) wasFenced(ctx workflow.Context) bool {
	return f.remembers(ctx) && f.back() && f.state.Patient.BootID != f.state.Before.BootID
}

// letGoUnsaid tells whether somebody does not hold the Machine any more, although no keeper has said that it let go of
// it. One may have died with what it was asked for, and the next one does not hold a Machine whose node has nothing
// left to lose.
func (f *fence) letGoUnsaid(ctx workflow.Context, before fencing.Patient) bool {
	return fewerHold(before, f.state.Patient) && asksWho(ctx)
}

// fewerHold tells whether of those who held a Machine one does not any more. Looks of older versions did not count
// them.
func fewerHold(before, now fencing.Patient) bool {
	return now.Machine.UID == before.Machine.UID &&
		(now.Holders < before.Holders || before.Machine.Held && !now.Machine.Held)
}

// askedLongAgo tells whether it is time to ask again although nothing has changed. The looks at a node may come more
// often, whose next condition is met soon.
func (f *fence) askedLongAgo(ctx workflow.Context) bool {
	return workflow.Now(ctx).Sub(f.state.AskedAt) >= lookAtNodeEvery && asksWho(ctx)
}

// asksThoughTold is the change since when a keeper is asked again although there is always something new of the node.
const asksThoughTold = "asks-though-told"

// toldLongAgo tells whether it is time to ask again, however much there is to hear of the node.
func (f *fence) toldLongAgo(ctx workflow.Context) bool {
	return workflow.Now(ctx).Sub(f.state.AskedAt) >= lookAtNodeEvery &&
		workflow.GetVersion(ctx, asksThoughTold, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// remindsWhenQuiet is the change since when a keeper is asked for the lease again although the node is quiet.
const remindsWhenQuiet = "reminds-when-quiet"

func (f *fence) asksWhenQuiet(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, remindsWhenQuiet, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// endsOverrides is the change since when a person's word ends with the first release that nobody made use of.
const endsOverrides = "ends-overrides"

// overrideSpent tells whether its Machine was let go by a person's word before, and nobody made use of that in time. Of
// a node that is well by now nobody will, and each release leaves it unheld for as long as a remediator may take.
func (f *fence) overrideSpent(ctx workflow.Context) bool {
	returned := slices.ContainsFunc(f.state.Clusters, func(c FenceStanding) bool { return c.Returns > 0 })
	return f.state.Override != nil && returned &&
		workflow.GetVersion(ctx, endsOverrides, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// FenceDoubt is the question whether a keeper has let go of a Machine.
type FenceDoubt struct {
	// Outcome is how the job ends if none has. "": there is no doubt.
	Outcome string `json:"outcome,omitempty"`
	// Before is how the node was when it was last to be fenced.
	Before fencing.Patient `json:"before,omitzero"`
}

// doubts tells whether it has to be asked who let go of the Machine that was seen before. The keepers are asked with
// the reason Recovered, which releases nothing, and leaves what is released as it is.
func (f *fence) doubts(ctx workflow.Context, before fencing.Patient, outcome string) bool {
	if f.state.Doubt.Outcome != "" {
		f.state.Why = fencing.WhyRecovered
		return true
	}
	asked := !f.state.AskedAt.IsZero() // the keeper may have died before it said anything
	held := f.state.Patient.Machine.Held && f.state.Patient.Machine.UID == before.Machine.UID
	if !asked || held || before.Machine.UID == "" || !asksWho(ctx) {
		return false
	}
	f.take()
	f.state.Why, f.state.Doubt = fencing.WhyRecovered, FenceDoubt{Outcome: outcome, Before: before}
	for i := range f.state.Clusters {
		if c := &f.state.Clusters[i]; c.Stage == fencing.StageHeld || c.Stage == "" {
			*c = FenceStanding{Cluster: c.Cluster, Stage: fencing.StageHeld, Domain: c.Domain}
		}
	}
	return true
}

// refuted tells whether a keeper has answered that it did not let go. Then the job is over.
func (f *fence) refuted(ctx workflow.Context) bool {
	doubt := f.state.Doubt
	if doubt.Outcome == "" || doubt.Outcome == OutcomeRecovered && f.state.Override != nil && !f.overrideSpent(ctx) ||
		!slices.ContainsFunc(f.state.Clusters, func(c FenceStanding) bool {
			return c.Stage == fencing.StageHeld && (c.Reason == fencing.ReasonRecovered || c.Reason == fencing.ReasonNoMachine)
		}) {
		return false
	}
	f.state.Doubt = FenceDoubt{}
	f.end(ctx, doubt.Outcome)
	return true
}

// repeat tells the keepers once more that the node is fenced that have not heard of it: one that begins anew knows what
// the one before had noted.
func (f *fence) repeat(ctx workflow.Context) error {
	if !f.unheard() || !asksWho(ctx) {
		return nil
	}
	for i := range f.state.Clusters {
		if c := &f.state.Clusters[i]; c.unheard() {
			if err := f.request(ctx, c.Cluster, true); err != nil {
				return err
			}
			c.Stage = fencing.StageHealing
		}
	}
	return nil
}

func (f *fence) unheard() bool { return slices.ContainsFunc(f.state.Clusters, FenceStanding.unheard) }

// unheard: the keeper waits for what is over, as far as the job is concerned.
func (c FenceStanding) unheard() bool {
	return c.Stage == fencing.StageReleased || c.Stage == fencing.StageHeld
}
