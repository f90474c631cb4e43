package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is how a job talks with keepers, and how it holds their leases.

// errLost ends the work under a lease that was taken away. The job decides what comes next.
var errLost = errors.New("the lease was taken away")

// request is a lease that a job needs for its work.
type request struct {
	of   *claimant
	want lease.Claim
	// unless ends the wait for the lease: the work begins without it.
	unless func() bool
	// hurry ends the wait for the storage to be whole after the work: the lease is given back as it is. nil: it is waited
	// for.
	hurry func() bool
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

// claimant is a job's side of its talk with one keeper. One claim is made at a time; what follows it may be asked for
// while the storage heals.
type claimant struct {
	ClaimState
	job *job
}

func (c *claimant) ref(ctx workflow.Context) LeaseRef {
	info := workflow.GetInfo(ctx)
	return LeaseRef{
		WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Ask: c.Claim.Ask,
		NodeGone: c.NodeGone, Next: c.Next,
	}
}

const (
	// tellAfter is how long a claim may take before anybody is told that it is waited for: mostly it is granted at once.
	tellAfter = 2 * time.Second
	// A job that hears nothing from the keeper for this long asks again, then after twice as long, and so on. A keeper
	// that was terminated in the wrong moment has forgotten what it had not written down yet; that is rare, and history is
	// finite.
	remindAfter    = 2 * time.Minute
	remindAfterMax = 2 * time.Hour
)

// acquire asks for the lease, if that was not done, and waits until it is granted, or until stop says that it is not
// wanted any more. It calls told when the status says why it is not granted, or, after a while, that it is waited for.
func (c *claimant) acquire(
	ctx workflow.Context, want lease.Claim, stop func() bool, told func(),
) (granted bool, err error) {
	if c.job.listen(); c.covers(want) {
		return true, nil
	}
	c.job.enter(ctx, PhaseLease)
	wait := "the lease of " + c.where(want.Domain)
	if len(want.Daemons) > 0 {
		wait += " for " + strings.Join(want.Daemons, ", ")
	}
	c.job.waitFor(ctx, wait)
	since := c.job.Since
	waits := func(why string) {
		c.job.elaborate(ctx, because(wait, why)+c.job.inReserve(c), since)
		told()
	}
	switch {
	case want.Ready && c.Stage == claimReserved:
		c.Claim.Ready, c.Stage = true, claimUnsure // until the keeper is told
	case !c.waitsFor(want):
		c.begin(c.following(ctx, want))
		c.Stage = claimUnsure // until it is asked for
	}
	if c.Why != "" {
		waits(c.Why)
	}
	for ask, patient := c.Stage == claimUnsure, c.Why != ""; ; {
		if ask {
			if err := c.ask(ctx); err != nil {
				return false, err
			}
		}
		n, err := c.word(ctx, patient, stop)
		if err != nil || stop() {
			return false, err
		}
		ask = false
		switch n.State {
		case "": // nothing was heard for long
			if ask = patient; !patient {
				waits("")
			}
			patient = true
		case LeaseGranted:
			return true, nil
		case LeaseRevoked, LeaseReleased, LeaseParked:
			return false, nil
		case LeaseReserved:
			if !want.Ready {
				return true, nil
			}
			waits(n.WaitsFor)
			patient = true
		case LeaseWaiting, LeaseHealing:
			if want.Ready && n.Token == 0 {
				return false, nil // it was taken back while the keeper was told that the job is ready, and queues anew
			}
			waits(n.WaitsFor)
			patient = true
		}
	}
}

// ask queues the claim. Asking again keeps the place in the queue, and brings back a claim that the keeper never came
// to write down.
func (c *claimant) ask(ctx workflow.Context) error {
	if _, err := perform(persistent(ctx, "ask for the lease"), c.job, draining.RequestLease,
		activities.LeaseInput{Cluster: c.Cluster, Claim: c.Claim}); err != nil {
		return err
	}
	if c.Stage == claimUnsure {
		c.Stage = claimAsked
	}
	return nil
}

// following is a claim that comes after all that the job has made. Ask rises over continue-as-new, too.
func (c *claimant) following(ctx workflow.Context, want lease.Claim) lease.Claim {
	ref := c.ref(ctx)
	want.WorkflowID, want.RunID = ref.WorkflowID, ref.RunID
	want.Ask = workflow.Now(ctx).UnixMilli()
	for _, other := range c.job.claims {
		want.Ask = max(want.Ask, other.Claim.Ask+1)
	}
	return want
}

// word is the keeper's next word about the claim, or about the next one, which then is the claim. It is waited for only
// a moment unless patient. The zero notice: none came for long, or stop came true.
func (c *claimant) word(ctx workflow.Context, patient bool, stop func() bool) (n LeaseNotice, err error) {
	long, then := tellAfter, "tell that we wait"
	if patient {
		long, then = min(remindAfter<<min(c.Reminders, 8), remindAfterMax), "remind the keeper"
		c.Reminders++
	}
	_, err = c.job.awaitAtMost(ctx, long, then, func() bool {
		for about, next := c.job.hear(); about != nil; about, next = c.job.hear() {
			if about == c {
				n, c.Reminders = next, 0
				return true
			}
		}
		return stop()
	})
	return n, err
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

// tellDone says that the work is done: the keeper takes the lease back when it has seen the storage whole.
func (c *claimant) tellDone(ctx workflow.Context) error {
	if c.Stage == claimFree {
		return nil
	}
	c.Stage = claimDone
	if err := c.signal(ctx, SignalFinishLease); err != nil {
		return err
	}
	c.Stage = claimTold
	return nil
}

// finishFor says the same, and what is wanted next.
func (c *claimant) finishFor(ctx workflow.Context, want lease.Claim) error {
	if c.Stage == claimFree || c.Next != nil {
		return nil
	}
	next := c.following(ctx, want)
	c.Next = &next
	return c.tellDone(ctx)
}

// whole tells the keeper that the work is done, and waits until it has seen the storage whole and taken the lease back,
// or has gone on to the next claim, until stop says that there is more to do, or until nothing was heard for long. It
// calls told before the status says how far that is.
func (c *claimant) whole(ctx workflow.Context, stop func() bool, told func()) (over bool, err error) {
	if c.Stage == claimFree {
		return true, nil
	}
	wait := "the storage in " + c.where(c.Claim.Domain) + " to be whole again"
	if c.job.Phase != PhaseHeal || !strings.HasPrefix(c.job.WaitsFor, wait) {
		c.job.enter(ctx, PhaseHeal)
		c.job.waitFor(ctx, wait)
	}
	since := c.job.Since
	if c.job.several() && c.Stage == claimTold && c.Why != "" { // said while another cluster was waited for
		c.job.elaborate(ctx, because(wait, c.Why), since)
	}
	if c.Stage != claimTold || c.Reminders > 0 {
		if err := c.tellDone(ctx); err != nil {
			return false, err
		}
	}
	for c.finished() {
		n, err := c.word(ctx, true, stop)
		if err != nil || n.State == "" {
			return false, err
		}
		if n.State == LeaseHealing {
			told()
			c.job.elaborate(ctx, because(wait, n.WaitsFor), since)
		}
	}
	return true, nil
}

// release gives the lease, or the place in the queue, back at once. The keeper takes it back anyway when the job has
// ended.
func (c *claimant) release(ctx workflow.Context) {
	if c.Stage == claimFree {
		return
	}
	c.end(LeaseReleased)
	if err := c.signal(ctx, SignalReleaseLease); err != nil {
		workflow.GetLogger(ctx).Error("cannot release the lease; the keeper takes it back when this job has ended",
			"error", err)
	}
}

// signal tells the keeper something. One that is not running is started by asking for what we hold already.
func (c *claimant) signal(ctx workflow.Context, name string) error {
	err := workflow.SignalExternalWorkflow(ctx, KeeperID(c.Cluster), "", name, c.ref(ctx)).Get(ctx, nil)
	if err == nil || ctx.Err() != nil || name == SignalReleaseLease {
		return err
	}
	if _, err := perform(persistent(ctx, "start the keeper again"), c.job, draining.RequestLease,
		activities.LeaseInput{Cluster: c.Cluster, Claim: c.Claim}); err != nil {
		return err
	}
	return workflow.SignalExternalWorkflow(ctx, KeeperID(c.Cluster), "", name, c.ref(ctx)).Get(ctx, nil)
}

// several tells whether the job has to do with several storage clusters.
func (j *job) several() bool { return len(j.claims) > 1 }

// where names a failure domain, and its storage cluster if there is another one that could be meant.
func (c *claimant) where(d storage.FailureDomain) string {
	if c.job.several() {
		return d.String() + " of " + c.Cluster.String()
	}
	return d.String()
}

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

// because adds a reason, if there is one.
func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
