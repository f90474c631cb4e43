package workflows

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the keeper hears from jobs, and what each of them is to hear.

// Every notice costs a job's history six events. So a job hears at once that its claim stands elsewhere, but ever more
// seldom that only the wording of what it waits for has changed: after 5 s, 10 s, 20 s, and in the end every 5 minutes.
// The last word is not lost: it is told when its time has come.
const (
	noticeEvery    = 5 * time.Second
	noticeEveryMax = 5 * time.Minute
)

// Told is what a job was told of its claim last.
type Told struct {
	State LeaseState `json:"state"`
	Token int64      `json:"token,omitempty"`
	Ask   int64      `json:"ask,omitempty"`
	Words uint64     `json:"words,omitempty"` // a hash of what it was told to wait for
	At    time.Time  `json:"at"`
	First time.Time  `json:"first"` // since when its claim stands where it stands
}

// next is when the job may be told that only the wording has changed.
func (t Told) next() time.Time {
	return t.At.Add(min(max(t.At.Sub(t.First), noticeEvery), noticeEveryMax))
}

func words(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// outgoing is a notice that is to be sent.
type outgoing struct {
	claim  lease.Claim
	notice LeaseNotice
	told   Told
}

// Who waits and hears that it is for another reason is in no hurry, but every notice wakes a job. Hundreds of them at
// once keep the processors from whoever has to close in that moment. So they go out a few at a time.
const (
	rewordedAtOnce = 20
	rewordedEvery  = 500 * time.Millisecond
)

// withhold has a job hear later.
func (m *mind) withhold(until time.Time) {
	if m.untold.IsZero() || until.Before(m.untold) {
		m.untold = until
	}
}

// sent takes note of a notice, and tells whether it came to somebody. A job that cannot be told has ended: its claim
// goes.
func (m *mind) sent(now time.Time, o outgoing, err error) (heard bool) {
	switch {
	case err != nil:
		m.state.Memory.Lease = m.state.Memory.Lease.Release(o.claim.WorkflowID, o.claim.RunID)
		delete(m.state.Told, o.claim.RunID)
		return false
	case o.notice.State == LeaseReleased || o.notice.State == LeaseParked || o.notice.State == LeaseRevoked:
		delete(m.state.Told, o.claim.RunID) // of a claim that is no more
	default:
		o.told.At = now
		m.state.Told[o.claim.RunID] = o.told
	}
	return true
}

// request takes in that a job wants the lease.
func (m *mind) request(now time.Time, c lease.Claim) {
	c.Requested = now
	m.state.Memory.Lease = m.state.Memory.Lease.Request(c)
	delete(m.state.Told, c.RunID)
}

// finish takes in that a job has done its work.
func (m *mind) finish(now time.Time, r LeaseRef) {
	had, holds, asked := m.state.Memory.Lease.Find(r.WorkflowID, r.RunID)
	switch {
	case asked && had.Ask > r.Ask: // what it wanted next is its claim already, and it did not hear of it
	case holds:
		m.state.Memory.Lease = m.state.Memory.Lease.Finish(r.WorkflowID, r.RunID, r.NodeGone, r.next())
		return
	case r.next() != nil: // the claim before was released while it said what it wants next
		next := *r.next()
		next.Requested = now
		m.state.Memory.Lease = m.state.Memory.Lease.Request(next)
	default:
		// Released before, and the job did not hear of it; or never granted, and there is nothing to heal.
		m.state.Memory.Lease = m.state.Memory.Lease.Release(r.WorkflowID, r.RunID)
		m.state.Released = append(m.state.Released,
			lease.Claim{WorkflowID: r.WorkflowID, RunID: r.RunID, Ask: r.Ask, Finishing: true})
	}
	delete(m.state.Told, r.RunID)
}

// tellAll has every job hear what has changed about its claim.
func (m *mind) tellAll(now time.Time) {
	m.reworded = 0
	for _, c := range m.state.Memory.Lease.Holders {
		n := LeaseNotice{
			State: LeaseGranted, Token: c.Token, Epoch: m.observed.Seen.View.ChangeEpoch,
			Alive: m.state.Answered, Since: c.Granted, Stops: c.Stops,
		}
		last := m.state.Told[c.RunID]
		switch d, refused := m.said(), m.refusedOf(c); {
		case c.Reserved():
			n.State, n.WaitsFor = LeaseReserved, c.WaitsFor
		case c.Finishing || last.State == LeaseGranted && last.Token == c.Token:
		case refused != "":
			n.State, n.WaitsFor = LeaseWaiting, refused
		case !m.guard().Serves(m.input(now), d, c):
			// Between the grant and its telling somebody else was hurt: what it promises is not in place. No budget keeps a
			// rollout from what it was told that it may.
			n.State, n.WaitsFor, n.Mendable = LeaseWaiting, d.Message, m.guard().Gate(m.input(now), c).Mendable
		}
		if c.Finishing {
			in := m.input(now)
			n.State = LeaseHealing
			if a := m.guard().Healed(in, c); !a.OK {
				n.WaitsFor = a.Reason
			}
		}
		m.tell(now, c, n)
	}
	for _, c := range m.state.Memory.Lease.Queue {
		m.tell(now, c, LeaseNotice{
			State: LeaseWaiting, WaitsFor: c.WaitsFor, Mendable: c.Mendable, Since: c.Requested,
		})
	}
	m.tellReleased(now)
	for _, c := range m.revoked {
		m.tell(now, c, LeaseNotice{State: LeaseRevoked, Since: now, WaitsFor: c.WaitsFor})
		delete(m.state.Told, c.RunID)
	}
	m.revoked = nil
}

// tellReleased has those jobs hear of it whose claim is over.
func (m *mind) tellReleased(now time.Time) {
	for _, c := range m.state.Released {
		state := LeaseReleased
		if !c.Finishing {
			state = LeaseParked
		}
		m.tell(now, c, LeaseNotice{State: state, Since: now})
		delete(m.state.Told, c.RunID)
	}
	m.state.Released = nil
}

// tell puts a notice into the outbox if it says anything new.
func (m *mind) tell(now time.Time, c lease.Claim, n LeaseNotice) {
	id := c.RunID
	n.WaitsFor = storage.Clip(n.WaitsFor, mostReason)
	last, told := m.state.Told[id]
	to := Told{State: n.State, Token: n.Token, Ask: c.Ask, Words: words(n.WaitsFor), At: now, First: now}
	if told && last.State == to.State && last.Token == to.Token && last.Ask == to.Ask {
		if last.Words == to.Words {
			return
		}
		if next := last.next(); now.Before(next) {
			m.withhold(next)
			return
		}
		if m.reworded++; m.reworded > rewordedAtOnce {
			m.withhold(now.Add(rewordedEvery))
			return
		}
		to.First = last.First
	}
	// Without a run ID: a job that continued as new has another one by now. The notice says whose claim it is about.
	n.RunID, n.Ask = c.RunID, c.Ask
	m.outbox = append(m.outbox, outgoing{claim: c, notice: n, told: to})
}

// keepTold forgets what those were told who have no claim any more.
func (m *mind) keepTold() {
	l := m.state.Memory.Lease
	kept := map[string]Told{}
	for _, c := range slices.Concat(l.Holders, l.Queue) {
		if t, told := m.state.Told[c.RunID]; told {
			kept[c.RunID] = t
		}
	}
	m.state.Told = kept
}

func claimID(c lease.Claim) string { return c.WorkflowID + "@" + c.RunID }
