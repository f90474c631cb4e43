package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what a fence asks of the keepers, and what they say.

// FenceStanding is where a fence stands with one storage cluster.
type FenceStanding struct {
	Cluster storage.ClusterKey `json:"cluster"`
	// Asked: the keeper was asked for what is wanted now, InReserve if so.
	Asked     bool                  `json:"asked,omitempty"`
	InReserve bool                  `json:"inReserve,omitempty"`
	Stage     fencing.Stage         `json:"stage,omitempty"` // "": the keeper has said nothing yet
	Reason    string                `json:"reason,omitempty"`
	Message   string                `json:"message,omitempty"`
	Against   string                `json:"against,omitempty"`
	Returns   int                   `json:"returns,omitempty"`
	Domain    storage.FailureDomain `json:"domain,omitzero"`
}

// override takes in a person's word. One without a name or a reason says nothing.
func (f *fence) override(ctx workflow.Context, r FenceRelease) {
	if required("by", r.By) != nil || required("reason", r.Reason) != nil {
		return
	}
	f.state.Override = &fencing.Override{
		By: storage.Clip(r.By, mostReason), Reason: storage.Clip(r.Reason, mostReason), At: workflow.Now(ctx),
	}
	if f.state.Settled && f.hearsAll {
		f.state.Again, f.state.Stale, f.job.changed = true, true, true
	}
	f.askAnew()
}

func (f *fence) askAnew() {
	for i := range f.state.Clusters {
		f.state.Clusters[i].Asked = false
	}
}

// claims tells whether the lease of any storage cluster is held, or asked for.
func (f *fence) claims() bool {
	return slices.ContainsFunc(f.job.claims, func(c *claimant) bool { return c.Stage != claimFree })
}

// ask tells the keepers what is wanted.
func (f *fence) ask(ctx workflow.Context) error {
	if f.paused() {
		f.drop(ctx) // or a keeper releases it meanwhile
		for i := range f.state.Clusters {
			f.state.Clusters[i] = FenceStanding{Cluster: f.state.Clusters[i].Cluster}
		}
		if err := f.job.gate(ctx); err != nil {
			return err
		}
		f.state.Stale = true
	}
	for i := range f.state.Clusters {
		c, reserve := &f.state.Clusters[i], fencing.InReserve(f.stages(), i)
		if c.Asked && c.InReserve == reserve {
			continue
		}
		c.InReserve = reserve
		if err := f.request(ctx, c.Cluster, false); err != nil {
			return err
		}
		c.Asked, f.state.AskedAt = true, workflow.Now(ctx)
	}
	return nil
}

func (f *fence) stages() (all []fencing.Stage) {
	for _, c := range f.state.Clusters {
		all = append(all, c.Stage)
	}
	return all
}

func (f *fence) request(ctx workflow.Context, cluster storage.ClusterKey, healing bool) error {
	info := workflow.GetInfo(ctx)
	_, err := perform(persistent(ctx, "ask for the release of "+f.in.Node), f.job, fencingNode.RequestFence,
		activities.FenceInput{Cluster: cluster, Healing: healing, Target: fencing.Target{
			Node: f.in.Node, Why: f.state.Why, Since: f.state.WhySince, WorkflowID: info.WorkflowExecution.ID,
			RunID: info.FirstRunID, DisksGo: f.state.Patient.DisksGo, Override: f.state.Override,
			InReserve: !healing && slices.ContainsFunc(f.state.Clusters, func(c FenceStanding) bool {
				return c.Cluster == cluster && c.InReserve
			}),
		}})
	return err
}

// take takes in what keepers have said, and tells whether they have.
func (f *fence) take() (news bool) {
	for n := (FenceNotice{}); f.notices.ReceiveAsync(&n); n = (FenceNotice{}) {
		for i := range f.state.Clusters {
			// What it has to say of a release that is over it may have said before it heard of this one.
			old := n.Stage == fencing.StageHealing || n.Stage == fencing.StageOver && n.Reason != fencing.ReasonNotHeld
			if c := &f.state.Clusters[i]; c.Cluster == n.Cluster && (c.Stage != "" || !old) {
				c.Stage, c.Reason, c.Message, c.Against, c.Returns = n.Stage, n.Reason, n.Message, n.Against, n.Returns
				if news = true; !n.Domain.IsZero() {
					c.Domain = n.Domain
				}
			}
		}
	}
	return news
}

func (f *fence) all(is func(FenceStanding) bool) bool {
	return len(f.state.Clusters) > 0 &&
		!slices.ContainsFunc(f.state.Clusters, func(c FenceStanding) bool { return !is(c) })
}

// released tells whether all keepers have let the Machine go.
func (f *fence) released() bool {
	return f.all(func(c FenceStanding) bool { return c.Stage != fencing.StageHeld && c.Stage != "" })
}

// wantsLease tells whether a keeper waits for the job to hold the lease.
func (f *fence) wantsLease() bool {
	return slices.ContainsFunc(f.state.Clusters, func(c FenceStanding) bool {
		return c.Stage == fencing.StageHeld && c.Reason == fencing.ReasonAwaitsLease && !c.Domain.IsZero()
	})
}

// hadItsTurn tells whether a keeper has taken its release back since nobody made use of it. Others are to have theirs
// before it asks for the lease again. Nor does it keep the lease while the quorum needs its node's mon: another one may
// be away on a node that is to be fenced, too.
func (f *fence) hadItsTurn(ctx workflow.Context) bool {
	return f.because(fencing.StageHeld, fencing.ReasonNotFenced) ||
		f.because(fencing.StageHeld, fencing.ReasonMonQuorum) &&
			workflow.GetVersion(ctx, givesWayForMons, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// because tells whether a keeper has said so.
func (f *fence) because(stage fencing.Stage, reason string) bool {
	return slices.ContainsFunc(f.state.Clusters, func(c FenceStanding) bool {
		return c.Stage == stage && c.Reason == reason
	})
}

// givesWayForMons is the change since when a fence gives the lease back while the quorum needs its node's mon.
const givesWayForMons = "gives-way-for-mons"

// giveBack gives all leases back at once: nothing was taken, so that nothing has to heal.
func (f *fence) giveBack(ctx workflow.Context) {
	for _, c := range f.job.claims {
		c.release(ctx)
	}
}

// requests are the leases under which the Machine can be released.
func (f *fence) requests(ctx workflow.Context) (out []request) {
	reason := f.in.Reason
	if reason == "" {
		reason = fmt.Sprintf("fencing of %s (%s)", f.in.Node, f.state.Why)
	}
	for _, c := range f.state.Clusters {
		if c.Domain.IsZero() || c.Stage != fencing.StageHeld {
			continue
		}
		out = append(out, request{
			of: f.job.claimOn(c.Cluster), unless: f.moved, hurry: f.inHurry,
			want: lease.Claim{Domain: c.Domain, Node: f.in.Node, Reason: reason, Priority: f.state.Why.Priority()},
		})
	}
	if len(out) == 0 && f.watchesLeases(ctx) {
		out = []request{{hurry: f.inHurry}} // it holds what it needed since the run before
	}
	return out
}

// moved ends the wait for a lease: it may not be needed any more.
func (f *fence) moved() bool {
	f.take()
	return f.state.Stale || f.released()
}

func (f *fence) askedAnew() bool { return !f.all(func(c FenceStanding) bool { return c.Asked }) }

// tell ends a case with one keeper: at once, or when the data is whole.
func (f *fence) tell(ctx workflow.Context, cluster storage.ClusterKey, drop bool) error {
	info := workflow.GetInfo(ctx)
	ref := FenceRef{WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Drop: drop}
	err := workflow.SignalExternalWorkflow(ctx, KeeperID(cluster), "", SignalEndFence, ref).Get(ctx, nil)
	if err == nil || drop || ctx.Err() != nil {
		return err
	}
	return f.request(ctx, cluster, true) // the keeper was not running
}

// dropsAll is the change since when a keeper forgets what it was asked for, too, that is to be asked for anew.
const dropsAll = "drops-all"

// drop has all keepers forget the case. A keeper that cannot be told hears it from the end of this job.
func (f *fence) drop(ctx workflow.Context) {
	for _, c := range f.state.Clusters {
		knows := c.Asked || c.Stage != "" && workflow.GetVersion(ctx, dropsAll, workflow.DefaultVersion, 1) == 1
		if !knows || c.Stage == fencing.StageOver {
			continue
		}
		if err := f.tell(ctx, c.Cluster, true); err != nil {
			workflow.GetLogger(ctx).Warn("cannot tell the keeper that the fence is over", "cluster", c.Cluster, "error", err)
		}
	}
}
