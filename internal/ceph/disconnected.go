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
	// Unnamed is how many there are if nobody knows which, and Why nobody does.
	Unnamed int
	Why     string
	// Uncounted: the user lacks the right to ask how many OSDs have a session, so that nothing is known.
	Uncounted bool
}

// Some is how many there are.
func (d Disconnected) Some() int { return max(len(d.OSDs), d.Unnamed) }

// turning is how long an OSD whose monitor has gone may take to turn to another one, and the leader to hear of it: an
// OSD tries another every 3 s (mon_client_hunt_interval), and leases are renewed as often.
const turning = 6 * time.Second

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
	missing map[life]time.Time
	short   time.Time // since when there are fewer sessions than OSDs that are up; zero: there are not
	next    time.Time // the names are not asked for before
	why     string    // they are not known; "": they are
}

// life is that of an OSD since it came up.
type life struct {
	osd  int
	from int64
}

// disconnected finds out which OSDs are up without a session. Usually the number of sessions says that there are none.
// An OSD that is about to come up has a session, too, and may stand for one that has lost its own: then names are asked
// for.
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
	if c.due(time.Now()) {
		asks, done := context.WithTimeout(ctx, namesWithin)
		connected, err := r.client.ConnectedOSDs(asks, monitors)
		done()
		if ctx.Err() != nil {
			return Disconnected{}, ctx.Err()
		}
		c.hear(up, connected, err, time.Now())
	}
	return c.lasting(up, len(up)-sessions, time.Now()), nil
}

// count takes in how many sessions are lacking, by their number, and how many OSDs are not up. It tells whether every
// OSD that is up has one for certain.
func (c *connections) count(lacking, absent int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lacking <= 0 {
		c.short = time.Time{}
	} else if c.short.IsZero() {
		c.short = now
	}
	if lacking+absent > 0 {
		return false
	}
	c.missing = nil
	return true
}

// due tells whether it is time to ask for names, and takes it that this is done.
func (c *connections) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.next) {
		return false
	}
	c.next = now.Add(askNames)
	return true
}

// hear takes in who is connected.
func (c *connections) hear(up []life, connected []int, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why = ""; err != nil {
		c.why = err.Error() // whoever was missing still is, as far as is known
		return
	}
	c.next = now.Add(max(askNames, time.Duration(len(connected))*time.Second/namesPerSecond))
	before := c.missing
	c.missing = map[life]time.Time{}
	for _, l := range up {
		if _, has := slices.BinarySearch(connected, l.osd); has {
			continue
		}
		c.missing[l] = now
		if since, was := before[l]; was {
			c.missing[l] = since
		}
	}
}

// lasting are those that have been missing for long enough.
func (c *connections) lasting(up []life, lacking int, now time.Time) (d Disconnected) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range up {
		if since, is := c.missing[l]; is && now.Sub(since) >= turning {
			d.OSDs = append(d.OSDs, l.osd)
		}
	}
	if c.why != "" && !c.short.IsZero() && now.Sub(c.short) >= turning {
		d.Unnamed, d.Why = lacking, c.why
	}
	slices.Sort(d.OSDs)
	return d
}
