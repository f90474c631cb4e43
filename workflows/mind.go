package workflows

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// mind is what a keeper knows, and all that it decides: by pure functions of that, of what happened, and of the time.
// What happened comes in by hint, request, finish, saw, lived, judge, took and sent; what is to be done about it comes
// out as a judgement, a plan and notices.
type mind struct {
	cluster storage.ClusterKey
	state   KeeperState

	observed activities.Observation
	looked   time.Time // when
	began    time.Time // when this run of the keeper did
	// lookFailed: the last look did, and observed is of the one before.
	lookFailed bool
	ahead      *ahead // the next look, if it was taken already
	// asked are the hosts that the last look was asked about.
	asked []storage.Host
	// askedNodes are the nodes that the last look was asked about.
	askedNodes []string
	// askedCommit: the last look began with a commit. commits: looks may.
	askedCommit, commits bool
	// regrets: a release of a Machine is judged until somebody makes use of it, and in doubt Machines are held.
	regrets bool
	// bears: a fence bears with other nodes that are lost and held back, and Machines are held anew at once when the
	// policy says another way.
	bears bool
	// waits: another way to hold Machines waits until no node is to be fenced.
	waits bool
	// closesNumber: a MachineDisruptionBudget that lets one go is closed though the budgets of pods are closed already.
	closesNumber bool
	// countsLetGo: what runs on a node that was let go to be fenced counts as going.
	countsLetGo bool
	// awaitsReturns: daemons that are down may have had no time to say that they live, when the storage was silent.
	awaitsReturns bool
	// bearsForItself: a fence bears with other nodes that are lost for its own opening only.
	bearsForItself bool
	// shuts: nothing opens for a fence whose node's daemons are to end anyway, as others are elsewhere.
	shuts bool
	// renews: a fence that asks anew, since its node has failed again, has not been fenced by what was noted before.
	renews bool
	// putsOff: other budgets wait while those that decide are written step by step.
	putsOff bool
	// datesLooks: what a look saw of the budgets answers only the doubts from before it.
	datesLooks bool
	// doubtsMoves: an attempt of which nobody hears may have moved data.
	doubtsMoves bool
	// bare are the Machines that had no hold at the last look, or whose hold this keeper has meant to take away since.
	// nil: not known, so that nobody is blamed for the lack of one.
	bare []string
	// What the last decision about Machines left: when to look at them again, what failed, whether to try that again, and
	// whose holds are gone.
	fenceNext      time.Time
	fenceFailed    string
	fenceRetry     bool
	letGo          []fencing.Machine
	maxUnavailable *int
	flagged
	unclaimed int // looks in a row that did not find the claim, which was written after the first of them
	verdict   guard.Verdict
	next      time.Time // when a decision could change although nothing happens
	trouble   string    // what failed in the last pass
	failures  int       // passes in a row with trouble
	// lookAsOf is the last doubt that was known when the look began.
	lookAsOf doubt.Seq
	// again: the pass was a step on the way to another, which must follow at once.
	again bool
	// late: an API server does not know yet what the budgets say, and that is worth a word although the next pass follows.
	late bool
	// closed is what the keeper closed to after its last decision; nil: the decision is in force.
	closed *budget.Decision
	// marking: pods are being marked.
	marking bool
	// The static budgets depend on little that changes; they are applied when a hint says so.
	daemonsDue bool
	leaving    activities.LeavingNodes
	// relocated is what the storage cluster was told last of the data on nodes that are leaving; nil: not known. unmoved
	// is why it could not be told.
	relocated []storage.Relocation
	unmoved   string
	// heldAsOf is the last look of which it is taken in that autoscalers were not held back from all nodes that stay.
	heldAsOf time.Time
	// others are the nodes on which their daemons were as of othersAsOf; nil: not known.
	others     map[string]bool
	othersAsOf time.Time
	// aside: another policy is in charge, and nothing of ours was left as of asideAsOf.
	aside     bool
	asideAsOf doubt.Seq
	// keptClosed: what is left are the budgets, closed, since nobody else's cover the same pods.
	keptClosed bool
	revoked    []lease.Claim // to be told
	outbox     []outgoing
	reworded   int       // notices of this round that say the same with other words
	untold     time.Time // when somebody has to hear what was withheld from him; zero: nothing was
	news       []activities.Event
	// unwritten is why the status could not be written at the last attempt.
	unwritten string
}

// handOn is the state for the next run, without what it holds twice.
func (m *mind) handOn() *KeeperState {
	s := m.state
	s.Reported.View = storage.View{}
	if sameMemory(s.Memory, s.Reported.Memory) {
		s.Reported.Memory, s.RememberedAsReported = activities.Memory{}, true
	}
	s.Manages = s.Manages && !m.aside
	return &s
}

// takeUp is the reverse of handOn. That the report seems to be another one costs one more. A run of a version that
// numbered no doubts may have had any: then nothing that it proved counts.
func (m *mind) takeUp(s KeeperState, now time.Time) {
	if s.Doubts.Last == 0 {
		s.Doubts.Raise(now, doubt.Silenced, "an older version ran before")
	}
	if s.RememberedAsReported {
		s.Reported.Memory, s.RememberedAsReported = s.Memory, false
	}
	m.state = s
}

// sawAll takes note of what the look saw.
func (m *mind) sawAll(now time.Time) {
	m.sawKind()
	m.sawSilence()
	if v := m.observed.Seen.View; v.Unavailable == "" {
		m.state.LastChange, m.state.Departed = v.ChangeEpoch, v.Departed
	} else if v.Departed != nil {
		m.state.Departed = v.Departed
	}
	if !m.commits {
		m.observed.Seen.View.Committed = true // as it was taken before
	}
	m.looked = now
	m.sawFlags()
	m.sawOverrides(now)
}

// sawSilence takes note of when no answer counted, and as of what the last one was that did. Of what was before the
// first look nobody knows. All of it goes by the clock of the worker that looks: where another one with a clock that is
// behind goes on, the silence was not after its look.
func (m *mind) sawSilence() {
	switch v := m.observed.Seen.View; {
	case v.Unavailable != "" || m.state.Silent.IsZero():
		m.state.Silent, m.state.SilentAsOf = v.At, m.state.LastChange
	case v.Silent.After(m.state.Silent):
		m.state.Silent, m.state.SilentAsOf = v.Silent, m.state.LastChange
	case v.At.Before(m.state.Silent):
		m.state.Silent = v.At
	}
}

// sawKind takes note of which kind of storage was seen. A look that failed tells of none, and the storage is what it
// was before. Of a kind that this version does not know nothing counts that was seen.
func (m *mind) sawKind() {
	seen := &m.observed.Seen
	if seen.Kind != "" || seen.View.Unavailable == "" {
		m.state.Kind = seen.Kind
	}
	if guards[m.state.Kind] == nil {
		seen.View = storage.View{Unavailable: fmt.Sprintf("this version knows no storage of kind %q", m.state.Kind)}
	}
}

// judgement is what a decision rests on, and what it leaves open.
type judgement struct {
	guard.Input
	question
	claimed bool // the claim to the storage cluster is about to be written
}

// judge decides: who holds the lease, what the budgets are to say, and what has to be asked before something may open.
func (m *mind) judge(now time.Time) (j judgement) {
	m.aside = false
	j.claimed = m.claim()
	m.notice(now)
	j.Input = m.input(now)
	m.revoke(&j.Input)
	m.takeBack(&j.Input)
	j.question = m.wonder(now, &j.Input)
	m.grant(&j.Input)
	m.decide(now, j.Input)
	return j
}

// look names what must be in the View although it may be in perfect order, or although it is so large that not all is
// named.
func (m *mind) look() activities.ObserveInput {
	l := activities.Look{
		Proof: m.state.Proof, LastChange: m.state.LastChange, Departed: m.state.Departed,
		Hosts: m.flagHosts(), Commit: m.commits && m.verdict.Commit, Bounded: true,
	}
	interest := m.interest()
	l.Daemons, l.Held, l.Last = interest.Daemons, interest.Held, interest.Last
	l.Went, l.Over = interest.Went, interest.Over
	domains, nodes := append(interest.Domains, m.state.Decision.Open.Name), interest.Nodes
	nodes = append(nodes, m.state.Memory.Fencing.Nodes()...)
	l.Machines = m.state.Memory.Fencing.UIDs()
	if m.observed.Seen.View.Others != nil { // their turn is not forgotten because there is no name for them any more
		nodes = append(nodes, sortedKeys(m.state.Announced)...)
	}
	l.Domains, l.Nodes = distinct(domains), distinct(nodes)
	return activities.ObserveInput{Cluster: m.cluster, Look: l}
}

// interest is what the look has to be about because of the lease.
func (m *mind) interest() storage.Interest {
	claims := slices.Concat(m.state.Memory.Lease.Holders, m.state.Memory.Lease.Queue)
	in := guard.Input{Own: m.observed.Seen.Own}
	in.View, in.Lease, in.Open = m.observed.Seen.View, m.state.Memory.Lease, m.state.Decision.Open
	in.Announced = m.state.Announced
	_, in.LeftOut = m.opened()
	return m.guard().Interest(in, claims[:min(len(claims), mostClaimsSeen)])
}

// distinct are the names in the order in which each is first named.
func distinct(names []string) (out []string) {
	for _, name := range names {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// ahead is a look that was taken when the decision before it had been carried out.
type ahead struct {
	activities.Observation
	asked []storage.Host
	nodes []string
	// commit: it began with one.
	commit bool
	asOf   doubt.Seq
}

// input is all that a decision depends on: no more than the query "status" tells.
func (m *mind) input(now time.Time) guard.Input {
	s := m.status()
	return guard.Input{Input: s.Input(now), Own: s.Own}
}

// known is what the keeper judges by beside the last look.
func (m *mind) known() *budget.Known {
	opened, leftOut := m.opened()
	return &budget.Known{
		Settings: m.observed.Settings, Proof: m.state.Proof, Announced: m.state.Announced, HealingSince: m.state.HealingSince,
		Unheard: m.state.Doubts.Unheard(), Open: m.state.Decision.Open, Opened: opened, LeftOut: leftOut,
		Going: m.inForce().Going(), Life: m.lives(), HeldBack: m.heldBack(),
		Released: m.unheld(), Shuts: m.shuts, BearsForItself: m.bearsForItself,
	}
}

// revoke takes claims away: those that mean nothing any more, and those that were held in reserve while others waited.
// Their jobs find out anew where they are, and ask again.
func (m *mind) revoke(in *guard.Input) {
	for _, c := range guard.Revoked(m.guard(), *in) {
		in.Lease = in.Lease.Release(c.WorkflowID, c.RunID)
		m.revoked = append(m.revoked, c)
	}
}

// takeBack takes the lease back from jobs that are done and healed. Those with a next claim hear of that.
func (m *mind) takeBack(in *guard.Input) {
	l, released := guard.TakeBack(m.guard(), *in)
	in.Lease = l
	m.state.Released = append(m.state.Released, released...)
}

// grant grants the lease to who may have it now.
func (m *mind) grant(in *guard.Input) {
	l, _ := guard.Grant(m.guard(), *in, m.askedAbout)
	for i := range l.Queue {
		most := mostReason
		if i >= mostClaimsSeen {
			most = mostReasonLater
		}
		l.Queue[i].WaitsFor = storage.Clip(l.Queue[i].WaitsFor, most)
	}
	in.Lease = l
}

func (m *mind) decide(now time.Time, in guard.Input) {
	m.verdict = m.guard().Decide(in)
	d := m.verdict.Decision
	d.Message = storage.Clip(d.Message, mostMessage)
	if m.verdict.Heard {
		m.state.Doubts.Hear(m.state.WatchedAsOf)
	}
	m.state.Remembered, m.state.Memory.Lease = m.verdict.Remembered, in.Lease
	if d.Mode != m.state.Decision.Mode || d.Open != m.state.Decision.Open || d.Reason != m.state.Decision.Reason {
		m.state.Since = now
	}
	m.state.Decision, m.closed = d, nil
}

// nextTimer is when a decision could change although nothing happens; zero: never.
func (m *mind) nextTimer(in guard.Input) time.Time {
	next := m.guard().Next(in, m.state.Remembered, m.ourFlags())
	for _, at := range []time.Time{
		guard.NextRevoked(m.guard(), in), m.commitAgain(in.Now), m.moveAgain(in.Now), m.overridesEnd(),
	} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func (m *mind) doubt(now time.Time, kind doubt.Kind, why string) {
	m.state.Doubts.Raise(now, kind, why)
}

// watched is what the watch saw, and was proved since the last doubt about the data.
func (m *mind) watched() activities.Watched {
	w := m.state.Watched
	w.Health.Fresh = w.Health.Fresh && m.state.WatchedAsOf >= m.state.Doubts.Data
	return w
}

// health is that of the data, as far as it was proved since the last doubt about it.
func (m *mind) health() storage.Health { return m.watched().Health }

// notice takes in what the look tells of what happened before it. A budget that is not as it was left is one of which
// nobody knows what it says.
func (m *mind) notice(now time.Time) {
	m.state.Doubts.Look(now, m.observed.Seen.View, m.observed.Book)
	if !m.observed.Book.Same(m.state.AppliedBook) {
		m.state.Applied = nil
	}
}

// untilNext is until when to rest at most; the zero time: for as long as nothing happens.
func (m *mind) untilNext(now time.Time) (time.Time, string) {
	if m.trouble != "" {
		pause := min(retryAfter<<min(m.failures-1, 8), retryAfterMax)
		return now.Add(pause), clip("try again: " + m.trouble)
	}
	return m.next, "next expiry"
}

// hint takes in what the watcher tells, and tells whether it is a reason to look.
func (m *mind) hint(now time.Time, h Hint) (reason bool) {
	m.daemonsDue = m.daemonsDue || h.Daemons
	if h.Alarm {
		m.doubt(now, doubt.PodStopped, "a storage daemon's pod stopped serving")
	}
	if h.Tampered {
		m.doubt(now, doubt.Tampered, "somebody changed or deleted a budget of lockkeeper")
	}
	if h.Disowned {
		m.state.Reported.MayDrain = "" // not what the status says any more, so it is written anew
	}
	if h.echo(m.state.AppliedBook) {
		return false
	}
	m.doubt(now, doubt.Changed, h.Reason)
	return true
}

// saw takes in what the watch saw, as of a doubt, and tells whether it is a reason to look.
func (m *mind) saw(now time.Time, w activities.Watched, asOf doubt.Seq) (reason bool) {
	reason = !m.onlyFlags(w)
	m.state.Watched, m.state.WatchedAsOf = w, asOf
	if w.Unavailable != "" {
		m.doubt(now, doubt.Mute, w.Unavailable)
	}
	if w.Opens != "" {
		m.doubt(now, doubt.Opening, w.Opens+" is about to leave")
	}
	m.noteLived(w, asOf)
	return reason
}

// mostClaimsSeen is for how many claims what they speak of is looked at in any case. The others have their turn later.
const mostClaimsSeen = 64

// mostReason is how long what a job waits for may be, and mostMessage a decision's message, in bytes. Both are kept,
// sent and written down many times.
const (
	mostReason  = 400
	mostMessage = 1000
	// mostReasonLater is for claims far behind in the queue: all of them are in the policy's status, which etcd bounds.
	mostReasonLater = 80
)

func sameMemory(a, b activities.Memory) bool { return reflect.DeepEqual(a, b) }
