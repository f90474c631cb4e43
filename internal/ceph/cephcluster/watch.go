package cephcluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
)

// DefaultHealthyRegex says which PG states count as clean when the policy does not: the same as in the API's schema.
const DefaultHealthyRegex = `^active(\+(clean|deep|scrubbing|snaptrim|snaptrim_wait))+$`

// How often a watcher looks. A look costs the mons less than a millisecond. At rest it is what an OSD's crash waits for
// that nobody announced; while something is out of order others wait for it to end. The watch begins anew with each
// pass of the keeper, so just after something happened: an OSD that boots then should be seen before the manager's next
// digest, or its proof takes one more.
const (
	lookAtRest   = 250 * time.Millisecond
	lookUnsettle = 100 * time.Millisecond
	lookAtFirst  = 30 * time.Millisecond
	atFirst      = 3 * time.Second
	// forSoLong it looks oftener than at rest. Data that is not whole by then recovers for minutes, or for hours, and
	// nobody is served by hearing a tenth of a second sooner that it is.
	forSoLong = time.Minute
	// epochAtFirst is how often in between the monitors are asked for the epoch of the OSD map, and for nothing else.
	epochAtFirst = 5 * time.Millisecond
	// progressEvery bounds how often a watcher returns only because more PGs are clean than before.
	progressEvery = 10 * time.Second
)

// Watch implements activities.StorageCluster. It asks Ceph only, never the API server.
func (c *cluster) Watch(
	ctx context.Context, in activities.Watching, beat func(activities.Watched),
) (activities.Watched, error) {
	began, last := time.Now(), in.Last
	var since *early
	for {
		now, settled, err := c.look(ctx, in.Doubted, since)
		if err != nil {
			return activities.Watched{}, err
		}
		if now.News(last) || (progressed(last, now) && time.Since(began) >= progressEvery) {
			return now, nil
		}
		beat(now)
		if c.elsewhere.Load() {
			return activities.Watched{}, errElsewhere
		}
		if since = nil; !settled && time.Since(began) < atFirst {
			since = c.awaitEpoch(ctx, lookAtFirst)
			continue
		}
		select {
		case <-ctx.Done():
			return activities.Watched{}, ctx.Err()
		case <-time.After(c.pause(settled, time.Now())):
		}
	}
}

// errElsewhere ends a watch over a cluster that is not there any more. The next one connects to whoever is.
var errElsewhere = errors.New("another cluster answers at the addresses of the one that was watched")

// pause is how long a watcher that has watched for some time waits until it looks again.
func (c *connected) pause(settled bool, now time.Time) time.Duration {
	if settled {
		c.unsettled.Store(0)
		return lookAtRest
	}
	c.unsettled.CompareAndSwap(0, now.UnixNano())
	if now.Sub(time.Unix(0, c.unsettled.Load())) >= forSoLong {
		return lookAtRest
	}
	return lookUnsettle
}

// early are the numbers of reports that were asked for as soon as the OSD map was known to have moved on, before
// anybody knew what changed.
type early struct {
	epoch   int64 // of the map, when they were asked for
	at      time.Time
	numbers *pghealth.Evidence
}

// awaitEpoch waits until it is time for another look, or until the OSD map moves on. Then it asks at once for the
// numbers of all OSDs that were up: what a look asks first takes so long that the manager's next digest may arrive in
// between.
func (c *cluster) awaitEpoch(ctx context.Context, within time.Duration) *early {
	known := c.reader.Known()
	end := time.After(within)
	for {
		select {
		case <-ctx.Done():
			return nil // the look says so
		case <-end:
			return nil
		case <-time.After(epochAtFirst):
		}
		if known == nil {
			continue
		}
		// Without a quorum there is no answer, and the look that finds out should not wait twice.
		asking, done := context.WithTimeout(ctx, within)
		epoch, err := c.client.OSDEpoch(asking)
		done()
		if err != nil {
			known = nil // the look says why
			continue
		}
		if epoch > known.Epoch {
			var up []int
			for i := range known.OSDs {
				if known.OSDs[i].Up {
					up = append(up, known.OSDs[i].ID)
				}
			}
			numbers := c.evidence(ctx, up)
			return &early{epoch: epoch, at: time.Now(), numbers: numbers}
		}
	}
}

// look takes one look and adds it to what the tracker knows. The tracker outlives the activity that feeds it, so that
// returning with news does not begin the proof of freshness anew; a worker that starts without it merely needs longer.
func (c *cluster) look(
	ctx context.Context, doubted time.Time, since *early,
) (w activities.Watched, settled bool, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return activities.Watched{}, false, ctx.Err()
	}
	if err := c.ready(); err != nil {
		return activities.Watched{Unavailable: err.Error(), Fingerprint: "invalid"}, true, nil
	}
	if doubted.After(c.doubted) {
		c.watch.tracker.Doubt()
		c.doubted = doubted
	}
	w, settled, err = c.lookWith(ctx, &c.watch, since)
	c.whole = err == nil && w.Health.Fresh && w.Health.Clean
	return w, settled, err
}

// lookWith takes one look for a witness.
func (c *cluster) lookWith(
	ctx context.Context, by *witness, since *early,
) (w activities.Watched, settled bool, err error) {
	var evidence *pghealth.Evidence
	if since == nil {
		// before the reading: the summary has to be newer than what proves it fresh
		evidence = c.evidence(ctx, by.tracker.Asks())
	}
	now, election := time.Now(), by.tracker.Election()
	reading, err := c.read(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return activities.Watched{}, false, err
		}
		reading = ceph.Reading{Unavailable: err.Error()}
	}
	health := by.tracker.Observe(pghealth.Sample{Reading: reading, Evidence: evidence, At: now})
	known := by.attend(ctx, c)
	if !known || since == nil || reading.Map == nil || reading.Map.Epoch != since.epoch ||
		reading.Status.ElectionEpoch != election {
		since = nil // of another change, or of before the pods were seen or the mons elected
	}
	by.base(ctx, c, since)
	by.hurry(ctx, c, health.Clean)
	w = activities.Watched{Health: health, Unavailable: reading.Unavailable}
	if reading.Unavailable == "" {
		of := c.digests(reading.Map)
		w.Health.Placement = of.placement
		w.Quorum, w.Fingerprint, w.Unflagged, w.Flagged = quorumOf(reading), of.fingerprint, of.unflagged, of.noout
		w.Disconnected = whoIsDisconnected(reading.Disconnected)
		if since, lasts := by.tracker.Lived(); !since.IsZero() {
			w.Lived, w.LivedFor, w.ReportPeriod = time.Since(since), lasts, by.tracker.Period()
		}
	}
	return w, health.Fresh && health.Clean, nil
}

// whoIsDisconnected stands for the OSDs that have lost the monitors. Those that are presumed to have are heard again
// one by one, which is no news before the last of them is.
func whoIsDisconnected(d ceph.Disconnected) string {
	if d.Some() == 0 {
		return ""
	}
	return hashed(d.OSDs, d.Unnamed, d.Unsure, len(d.Presumed) > 0)
}

// ready makes the tracker that the policy asks for.
func (c *cluster) ready() error {
	pattern, tolerated := c.healthyRegex(), c.policy.Spec.Ceph.ToleratedPools
	if c.watch.tracker != nil && c.regex == pattern && slices.Equal(c.tolerated, tolerated) {
		return nil
	}
	tracker, err := c.newTracker()
	if err != nil {
		return err
	}
	c.watch, c.regex, c.tolerated = witness{tracker: tracker}, pattern, tolerated
	return nil
}

func (c *cluster) healthyRegex() string {
	return orDefault(c.policy.Spec.Ceph.PGHealthyRegex, DefaultHealthyRegex)
}

// newTracker makes one that knows nothing, of what the policy calls healthy.
func (c *cluster) newTracker() (*pghealth.Tracker, error) {
	re, err := regexp.Compile(c.healthyRegex())
	if err != nil {
		return nil, fmt.Errorf("spec.ceph.pgHealthyRegex: %q: must be a regular expression in Go's syntax: %w",
			c.healthyRegex(), err)
	}
	return pghealth.New(pghealth.Policy{Healthy: re, ToleratedPools: c.policy.Spec.Ceph.ToleratedPools}), nil
}

// evidence asks which of these OSDs have reported to the manager, if any. No evidence proves nothing, so an error here
// is simply none.
func (c *cluster) evidence(ctx context.Context, asks []int) *pghealth.Evidence {
	if len(asks) == 0 {
		return nil
	}
	manager, err := c.client.Manager(ctx)
	if err != nil {
		return nil
	}
	reports, err := c.client.LastReports(ctx, asks)
	if err != nil {
		return nil
	}
	return &pghealth.Evidence{Manager: manager, Reports: reports}
}

// progressed tells whether there is something new for people only.
func progressed(last, now activities.Watched) bool {
	a, b := last.Health, now.Health
	return a.PGs != b.PGs || a.PGsClean != b.PGsClean || a.Reason != b.Reason
}

// digests are what stands for an OSD map.
type digests struct {
	of                                *ceph.OSDMap
	placement, fingerprint, unflagged string
	noout                             []string // nil: there are too many to list
}

// digests takes them once for each map: the watch looks at the same one for as long as nothing changes, and that of
// thousands of OSDs is long.
func (c *connected) digests(m *ceph.OSDMap) *digests {
	if last := c.digested.Load(); last != nil && last.of == m {
		return last
	}
	now := &digests{of: m, placement: placement(m), fingerprint: fingerprint(m), unflagged: unflagged(m)}
	if noout := m.Noout(); len(noout) <= mostNoout {
		now.noout = append([]string{}, noout...)
	}
	c.digested.Store(now)
	return now
}

// mostNoout is how many hosts with noout a watch lists.
const mostNoout = 100

// placement stands for what decides where data is. A noout flag does not: it decides what happens to an OSD that stays
// down, and it is there while everything is whole, too. To take it for a change would be to doubt the data after each
// flag of our own.
func placement(m *ceph.OSDMap) string {
	h := fnv.New64a()
	for i := range m.OSDs {
		o := &m.OSDs[i]
		state := slices.DeleteFunc(slices.Clone(o.State), func(s string) bool { return s == "noout" })
		fmt.Fprintf(h, "%d %v %v %g %d %d %v\n", o.ID, o.Up, o.In, o.Weight, o.UpFrom, o.DownAt, state)
	}
	for _, p := range m.Pools {
		fmt.Fprintf(h, "%d %d %d %d %d\n", p.ID, p.Size, p.MinSize, p.Rule, p.PGNum)
	}
	fmt.Fprintf(h, "%s", m.CrushDigest)
	return fmt.Sprintf("%016x", h.Sum64())
}

// fingerprint stands for what an observation reads from the OSD map, but for the epochs that change with every breath.
func fingerprint(m *ceph.OSDMap) string {
	return hashed(placement(m), m.Noout(), unflagged(m), m.Flags)
}

// unflagged stands for all that a fingerprint does but noout, which lockkeeper sets and unsets itself.
func unflagged(m *ceph.OSDMap) string {
	var out []map[string][]string
	for _, groups := range []map[string][]string{m.CrushNodeFlags, m.DeviceClassFlags} {
		left := map[string][]string{}
		for name, flags := range groups {
			if others := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "noout" }); len(others) > 0 {
				left[name] = others
			}
		}
		out = append(out, left)
	}
	return hashed(placement(m), out, m.Flags)
}

// hashed is short for what is printed of some values. fmt sorts the keys of maps.
func hashed(values ...any) string {
	h := fnv.New64a()
	fmt.Fprint(h, values...)
	return fmt.Sprintf("%016x", h.Sum64())
}
