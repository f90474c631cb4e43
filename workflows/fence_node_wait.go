package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// This file is how a fence waits, and what it says meanwhile.

// back tells whether the node was started again, or recovered, since its Machine was released. A Machine whose deletion
// has begun is doomed all the same.
func (f *fence) back() bool {
	now, before := f.state.Patient, f.state.Before
	return now.Found && now.Ready && now.Unhealthy.IsZero() && now.Deleting.IsZero() &&
		(!before.Unhealthy.IsZero() || now.BootID != before.BootID)
}

// comparesWithTheLookBefore is the change since when the first look at a node after its release is compared with the
// one before. It may be seen well by then, and is not to wait for a change that it has behind it.
const comparesWithTheLookBefore = "compares-with-the-look-before"

// releasedSince tells whether its Machine was released since a look at it.
func (f *fence) releasedSince(ctx workflow.Context, look fencing.Patient) bool {
	return f.released() && f.state.Before.Machine.UID == "" && look.Machine.UID != "" &&
		workflow.GetVersion(ctx, comparesWithTheLookBefore, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// await waits until there is something new.
func (f *fence) await(ctx workflow.Context) error {
	every := lookAtNodeEvery
	if f.released() {
		every = lookAtReleaseEvery
		if f.job.Phase != PhaseRemediate {
			f.job.enter(ctx, PhaseRemediate)
		}
		f.job.waitFor(ctx, f.remedy())
	} else {
		if f.job.Phase != PhaseHeld {
			f.job.enter(ctx, PhaseHeld)
		}
		f.job.waitFor(ctx, f.heldBecause())
	}
	if next := f.state.Patient.Next; !next.IsZero() {
		every = min(every, max(next.Sub(workflow.Now(ctx)), time.Second))
	}
	news, err := f.job.awaitAtMost(ctx, every, "look at "+f.in.Node+" again", func() bool {
		f.job.listen()
		return f.take() || f.state.Stale || f.job.done.Len() > 0 || f.askedAnew() || f.paused()
	})
	f.state.Stale = f.state.Stale || !news
	// A keeper may have died before it had noted what it was asked for.
	switch {
	case err != nil || f.released():
	case !news && (every == lookAtNodeEvery || f.askedLongAgo(ctx)):
		if f.askAnew(); f.asksWhenQuiet(ctx) {
			return f.remind(ctx)
		}
	case news && f.overrideSpent(ctx):
		f.state.Stale = true // the node may be well, and the same word would let it go again
	case news && f.toldLongAgo(ctx):
		f.askAnew()
		return f.remind(ctx)
	}
	return err
}

// remind asks once more for the lease, which the keeper may never have come to write down.
func (f *fence) remind(ctx workflow.Context) error {
	for _, c := range f.job.claims {
		if c.Stage != claimAsked {
			continue
		}
		if err := c.ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

// paused: nothing is to be released for now. What was released stays so.
func (f *fence) paused() bool { return f.job.Paused && !f.released() }

func (f *fence) heldBecause() string {
	if f.state.Doubt.Outcome != "" {
		return "the keeper to say whether it let go of the Machine: nothing holds it"
	}
	for _, c := range f.state.Clusters {
		if c.Stage == fencing.StageHeld {
			s := fmt.Sprintf("the release of its Machine by %s: %s", c.Cluster, c.Message)
			if c.Returns > 0 && c.Reason != fencing.ReasonNotFenced { // which says so
				s += fmt.Sprintf(" (released %d times before, and nobody fenced it in time)", c.Returns)
			}
			return s
		}
	}
	return "the keeper's answer"
}

func (f *fence) remedy() string {
	name := f.state.Patient.Machine.Name
	if !f.state.Before.Deleting.IsZero() {
		return fmt.Sprintf("Machine %s to be gone: it is being deleted, which cannot be taken back", name)
	}
	s := fmt.Sprintf("whatever fences %s: its Machine %s to be gone, or the node back", f.in.Node, name)
	if f.state.Trouble != "" {
		s += "; the pods of its dead daemons stay until then, which may hold that up: " + f.state.Trouble
	}
	return s
}

// heal waits until the data is whole in all storage clusters. again: the node has failed meanwhile.
func (f *fence) heal(ctx workflow.Context) (again bool, err error) {
	over := func() bool {
		f.take()
		return !slices.ContainsFunc(f.state.Clusters, func(c FenceStanding) bool { return c.Stage != fencing.StageOver })
	}
	for !over() || f.state.Stale && f.hearsAll && len(f.state.Clusters) > 0 {
		if f.job.Phase != PhaseHeal {
			f.job.enter(ctx, PhaseHeal)
		}
		if err := f.repeat(ctx); err != nil {
			return false, err
		}
		known := f.unheard() // in a run that does not repeat it
		f.job.waitFor(ctx, "the data to be whole again without "+f.in.Node+", or with it")
		done, err := f.job.awaitAtMost(ctx, remindAfter, "ask whether the data is whole", func() bool {
			return over() || f.state.Stale || f.unheard() && !known
		})
		if err != nil {
			return false, err
		}
		if f.state.Stale {
			if err := f.examine(ctx); err != nil {
				return false, err
			}
			if f.failsAgain() {
				return true, nil
			}
			continue
		}
		for _, c := range f.state.Clusters {
			if !done && c.Stage != fencing.StageOver {
				if err := f.request(ctx, c.Cluster, true); err != nil {
					return false, err
				}
			}
		}
	}
	f.job.waitFor(ctx, "")
	return false, nil
}

// failsAgain tells whether the node is to be fenced, or its Machine is being deleted, that was back, or whose place
// another Machine has taken; or a person wants it to go. What it had when it was released, and a person calls done, is
// nothing new.
func (f *fence) failsAgain() bool {
	now, before := f.state.Patient, f.state.Before
	return now.Machine.UID != "" &&
		(f.state.Again || now.Unhealthy.After(before.Unhealthy) || f.hears && now.Deleting.After(before.Deleting))
}
