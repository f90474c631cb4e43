package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what a job does with all of its claims together.

// request is a lease that a job needs for its work.
type request struct {
	of   *claimant // nil: none, and only the wait after the work is meant
	want lease.Claim
	// unless ends the wait for the lease: the work begins without it.
	unless func() bool
	// hurry ends the wait for the storage to be whole after the work: the lease is given back as it is. nil: it is waited
	// for.
	hurry func() bool
	// meanwhile is what the job does while the storage heals, for a moment. nil: nothing.
	meanwhile func(workflow.Context) error
}

func never() bool { return false }

// claimOn is the job's claim in a storage cluster. Claims are never forgotten: Ask rises over all of them.
func (j *job) claimOn(cluster storage.ClusterKey) *claimant {
	for _, c := range j.claims {
		if c.Cluster == cluster {
			return c
		}
	}
	if first := j.claims[0]; first.Cluster == (storage.ClusterKey{}) {
		first.Cluster = cluster
		return first
	}
	c := &claimant{ClaimState: ClaimState{Cluster: cluster}, job: j}
	j.claims = append(j.claims, c)
	return c
}

// underLease asks for leases, waits until all are granted, does the work, tells the keepers that it is done, and waits
// until the storage is whole. A job that holds the leases already, as after continue-as-new, does the work again; if
// the keepers were told that it is done, only the wait is left. If a lease is taken away it returns errLost, and the
// claims are free.
func (j *job) underLease(ctx workflow.Context, requests []request, work func(workflow.Context) error) error {
	if !slices.ContainsFunc(j.claims, (*claimant).finished) {
		err := j.acquire(ctx, requests)
		if err == nil {
			err = work(ctx)
		}
		if errors.Is(err, errLost) || isType(err, activities.LeaseLost) {
			j.lose(ctx, requests, err)
			return errLost
		}
		if err != nil {
			return err
		}
	}
	if err := j.tellAllDone(ctx); err != nil {
		return err
	}
	hurry := func() bool {
		return slices.ContainsFunc(requests, func(r request) bool { return r.hurry != nil && r.hurry() })
	}
	for _, r := range requests {
		if r.meanwhile == nil || hurry() {
			continue
		}
		if err := r.meanwhile(ctx); err != nil {
			return err
		}
	}
	for _, c := range j.claims {
		for c.Stage != claimFree {
			if _, err := c.whole(ctx, hurry, func() {}); err != nil {
				return err
			}
			if hurry() {
				c.release(ctx)
			}
		}
	}
	j.waitFor(ctx, "")
	return nil
}

// lose ends the claims of a job that has lost one of them. Those that it still has it gives back: what it holds in one
// storage cluster keeps others away who could go on, and nothing of what it opens is of use.
func (j *job) lose(ctx workflow.Context, requests []request, why error) {
	for _, r := range requests {
		switch c := r.of; {
		case c == nil:
		case len(requests) == 1:
			c.end(LeaseRevoked) // its token may not count any more
		case c.Stage != claimFree:
			c.release(ctx)
		case c.parked() && !errors.Is(why, errLost):
			c.end(LeaseRevoked) // the work was not done yet: it is needed again
		}
	}
}

// tellAllDone has the storage of all clusters heal side by side.
func (j *job) tellAllDone(ctx workflow.Context) error {
	held := 0
	for _, c := range j.claims {
		if c.Stage != claimFree {
			held++
		}
	}
	if held < 2 {
		return nil
	}
	j.enter(ctx, PhaseHeal)
	for _, c := range j.claims {
		if c.Stage == claimTold {
			continue
		}
		if err := c.tellDone(ctx); err != nil {
			return err
		}
	}
	return nil
}

// acquire waits until all leases are granted. All jobs ask in the order of the storage clusters, so that no two of them
// wait for each other.
func (j *job) acquire(ctx workflow.Context, requests []request) error {
	if len(requests) > 1 {
		return j.acquireAll(ctx, requests)
	}
	for _, r := range requests {
		if r.of == nil {
			continue
		}
		if granted, err := r.of.acquire(ctx, r.want, r.unless, func() {}); err != nil {
			return err
		} else if !granted && !r.unless() {
			return errLost
		}
	}
	return nil
}

// acquireAll is acquire for several leases, by the steps that nextStep gives.
func (j *job) acquireAll(ctx workflow.Context, requests []request) error {
	slices.SortFunc(requests, func(a, b request) int {
		return strings.Compare(a.of.Cluster.String(), b.of.Cluster.String())
	})
	next := func() (step, int) {
		j.listen()
		claims := make([]ClaimState, len(requests))
		for i, r := range requests {
			claims[i] = r.of.ClaimState
		}
		// A disruption that goes on anyway must not wait for another cluster to be guarded.
		return nextStep(claims, !requests[0].want.Observing)
	}
	for {
		do, i := next()
		r := requests[i]
		switch {
		case r.unless() || do == stepBegin:
			return nil
		case do == stepLost:
			return errLost
		case do == stepReserve && (r.of.Stage == claimAsked || r.of.Stage == claimUnsure):
			r.want.Reserve = r.of.Claim.Reserve
		case do == stepReserve:
			r.want.Reserve = r.of.patience()
		case do == stepReady:
			r.want.Reserve, r.want.Ready = r.of.Claim.Reserve, true
		}
		lost := func() bool { now, _ := next(); return now == stepLost }
		granted, err := r.of.acquire(ctx, r.want, func() bool { return r.unless() || lost() }, func() {})
		if err != nil {
			return err
		}
		if !granted && !r.unless() {
			return errLost
		}
	}
}

// hear takes in the next notice that is about a claim of the job, and returns that claim; nil: there is none.
func (j *job) hear() (about *claimant, n LeaseNotice) {
	for j.notices.Len() > 0 {
		n = LeaseNotice{}
		j.notices.ReceiveAsync(&n)
		for _, c := range j.claims {
			if c.take(n) {
				return c, n
			}
		}
	}
	return nil, LeaseNotice{}
}

// listen takes in what keepers have said meanwhile.
func (j *job) listen() {
	for about, _ := j.hear(); about != nil; about, _ = j.hear() {
	}
}

// several tells whether the job has to do with several storage clusters.
func (j *job) several() bool { return len(j.claims) > 1 }

// inReserve says what the job holds in reserve while it waits for c.
func (j *job) inReserve(c *claimant) (s string) {
	for _, other := range j.claims {
		if other != c && other.reserved() {
			s += fmt.Sprintf("; that of %s is held in reserve meanwhile, for %s at most once others wait for it",
				other.where(other.Claim.Domain), other.Claim.Reserve)
		}
	}
	return s
}
