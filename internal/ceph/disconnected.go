package ceph

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Disconnected are OSDs that are up, and that no monitor has had a session with for a while.
type Disconnected struct {
	OSDs []int // in order
	// Presumed are more of them, in order, if they only turn to another monitor in the end: they were first missed less
	// than turning ago, but nobody heard before since when they have been missing.
	Presumed []int
	// Unnamed is how many there are if nobody knows which, and Why nobody does. Unsure: in the end they only turn to
	// another monitor, as those that are presumed.
	Unnamed int
	Unsure  bool
	Why     string
	// Uncounted: the user lacks the right to ask how many OSDs have a session, so that nothing is known.
	Uncounted bool
}

// Some is how many there are.
func (d Disconnected) Some() int { return max(len(d.OSDs)+len(d.Presumed), d.Unnamed) }

// turning is how long an OSD whose monitor has gone may take to turn to another one, and the leader to hear of it: an
// OSD tries another every 3 s (mon_client_hunt_interval), and leases are renewed as often.
const turning = 6 * time.Second

// forgotten is how long after something odd the number of sessions is not enough: a monitor keeps the session of an OSD
// whose machine lost its power for five minutes (mon_session_timeout), and one of two that an OSD has would stand for
// one that another OSD has lost.
const forgotten = 6 * time.Minute

// How often monitors are asked for the names of those that they have sessions with: at most, and by how much of them
// there is. Those of 1,000 OSDs and their clients are megabytes.
const (
	askNames       = 3 * time.Second
	namesWithin    = time.Second // a monitor that hangs gives no answer, and the reading waits for that
	namesPerSecond = 1000
)

// connections remembers since when which OSDs are up without a session.
type connections struct {
	mu      sync.Mutex
	missing map[life]absence
	short   absence   // of sessions: since when there are fewer than OSDs that are up; zero: there are not
	counted time.Time // when it was last known how many there are,
	heard   time.Time // and who has one
	odd     time.Time // when last an OSD was not up, or had none or two; at first, the first reading
	next    time.Time // the names are not asked for before, unless another number of sessions is lacking by then:
	lacked  int       // than this
	soonest time.Time // and not before this
	why     string    // they are not known; "": they are
}

// life is that of an OSD since it came up.
type life struct {
	osd  int
	from int64
}

// absence is one that has lasted since a moment, and was first seen at another one.
type absence struct{ since, seen time.Time }

func (a absence) lasts(now time.Time) bool   { return now.Sub(a.since) >= turning }
func (a absence) certain(now time.Time) bool { return now.Sub(a.seen) >= turning }

// disconnected finds out which OSDs are up without a session. Usually the number of sessions says that there are none.
// But an OSD that is about to come up has a session, too, and one that came back may have two for a while: each may
// stand for one that another OSD has lost. Then names are asked for.
func (r *Reader) disconnected(ctx context.Context, m *OSDMap, monitors []string) (Disconnected, error) {
	sessions, err := asking(ctx, &r.heard, r.client.OSDSessions)
	if IsDenied(err) {
		return Disconnected{Uncounted: true}, nil
	}
	if err != nil {
		return Disconnected{}, err
	}
	var up []life
	for i := range m.OSDs {
		if m.OSDs[i].Up {
			up = append(up, life{m.OSDs[i].ID, m.OSDs[i].UpFrom})
		}
	}
	c := &r.connections
	if c.count(len(up)-sessions, len(m.OSDs)-len(up), time.Now()) {
		return Disconnected{}, nil
	}
	if c.due(len(up)-sessions, time.Now()) {
		asks, done := context.WithTimeout(ctx, namesWithin)
		sessions, err := r.client.SessionsOf(asks, monitors)
		done()
		if ctx.Err() != nil {
			return Disconnected{}, ctx.Err()
		}
		c.hear(up, connected(m, sessions), err, time.Now())
	}
	return c.lasting(up, len(up)-sessions, time.Now()), nil
}

// count takes in how many sessions are lacking, by their number, and how many OSDs are not up. It tells whether every
// OSD that is up has one for certain: if there are as many as OSDs, all of which are up, and that has been so for
// longer than any of them may have two.
func (c *connections) count(lacking, absent int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lacking <= 0 {
		c.short = absence{}
	} else if c.short.seen.IsZero() {
		c.short = missed(c.counted, now)
	}
	c.counted = now
	if lacking != 0 || absent > 0 || c.odd.IsZero() {
		c.odd = now
	}
	if now.Sub(c.odd) < forgotten {
		return false
	}
	c.missing, c.heard = nil, now
	return true
}

// missed is what is seen to be missing now. As far as anybody knows it has just gone, but for a time in which nothing
// was heard, because the monitors were silent or nobody asked: it may have gone at its very beginning.
func missed(heard, now time.Time) absence {
	if now.Sub(heard) > turning {
		return absence{since: heard, seen: now}
	}
	return absence{since: now, seen: now}
}

// due tells whether it is time to ask for names, and takes it that this is done.
func (c *connections) due(lacking int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.next) && (lacking == c.lacked || now.Before(c.soonest)) {
		return false
	}
	c.next, c.lacked = now.Add(askNames), lacking
	return true
}

// connected are the OSDs that have a session. One that a process of before has left behind, and that the monitor does
// not miss yet, is none: as the map has it the OSD is another process by now. Should not a single session be one of a
// process in the map, then that is not how to tell.
func connected(m *OSDMap, sessions []Session) map[int]bool {
	byID := map[int]Addrs{}
	for i := range m.OSDs {
		byID[m.OSDs[i].ID] = m.OSDs[i].Addrs
	}
	present := func(s Session) bool { return s.Addrs.Same(byID[s.OSD]) }
	told := slices.ContainsFunc(sessions, present)
	out := map[int]bool{}
	for _, s := range sessions {
		if present(s) || !told {
			out[s.OSD] = true
		}
	}
	return out
}

// hear takes in who is connected.
func (c *connections) hear(up []life, connected map[int]bool, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why = ""; err != nil {
		c.why = err.Error() // whoever was missing still is, as far as is known
		return
	}
	c.soonest = now.Add(time.Duration(len(connected)) * time.Second / namesPerSecond)
	c.next = now.Add(max(askNames, c.soonest.Sub(now)))
	before, anew := c.missing, missed(c.heard, now)
	c.missing, c.heard = map[life]absence{}, now
	for _, l := range up {
		if connected[l.osd] {
			continue
		}
		c.missing[l] = anew
		if was, is := before[l]; is {
			c.missing[l] = was
		}
	}
}

// lasting are those that have been missing for long enough.
func (c *connections) lasting(up []life, lacking int, now time.Time) (d Disconnected) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range up {
		switch gone, is := c.missing[l]; {
		case !is || !gone.lasts(now):
		case gone.certain(now):
			d.OSDs = append(d.OSDs, l.osd)
		default:
			d.Presumed = append(d.Presumed, l.osd)
		}
	}
	if c.why != "" && !c.short.seen.IsZero() && c.short.lasts(now) {
		d.Unnamed, d.Unsure, d.Why = lacking, !c.short.certain(now), c.why
	}
	slices.Sort(d.OSDs)
	slices.Sort(d.Presumed)
	return d
}
