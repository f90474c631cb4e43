package pghealth_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
)

// clockwork is a cluster that reports by the clock: OSDs to the manager, the manager to the monitors, the monitors to
// whoever looks.
type clockwork struct {
	report, tick, agree time.Duration
	now                 time.Duration
	osds                []clockworkOSD
	tickAt              time.Duration
	manager             []ceph.Report // counts that the manager knows
	told                []ceph.Report // that it told since the monitors agreed last
	toldAt              time.Duration
	monitors            []ceph.Report // that the monitors agreed on
	epoch               int64
}

type clockworkOSD struct {
	at     time.Duration // of the next report
	upFrom int64
	count  uint32
}

// cephPeriods are Ceph's defaults, and those that people choose instead.
var cephPeriods = map[string]clockwork{
	"default": {report: 5 * time.Second, tick: 2 * time.Second, agree: time.Second},
	"lab":     {report: time.Second, tick: time.Second, agree: 100 * time.Millisecond},
	"short":   {report: 2 * time.Second, tick: time.Second, agree: time.Second},
	"slow":    {report: 10 * time.Second, tick: 5 * time.Second, agree: time.Second},
}

func newClockwork(t *rapid.T, name string) *clockwork {
	c := cephPeriods[name]
	c.epoch = 100
	phase := func(what string, of time.Duration) time.Duration {
		return time.Duration(rapid.IntRange(1, int(of/time.Millisecond)).Draw(t, what)) * time.Millisecond
	}
	for id := range rapid.IntRange(2, 8).Draw(t, "osds") {
		c.osds = append(c.osds, clockworkOSD{at: phase(fmt.Sprint("phase of osd.", id), c.report), upFrom: 10, count: 5})
	}
	c.manager, c.monitors = make([]ceph.Report, len(c.osds)), make([]ceph.Report, len(c.osds))
	c.tickAt = phase("phase of the manager", c.tick)
	return &c
}

const step = 10 * time.Millisecond

// pass lets time pass.
func (c *clockwork) pass(d time.Duration) {
	for end := c.now + d; c.now < end; c.now += step {
		for id := range c.osds {
			if o := &c.osds[id]; c.now >= o.at {
				o.at += c.report
				o.count++
				c.manager[id] = ceph.Report{UpFrom: o.upFrom, Count: o.count}
			}
		}
		if c.now >= c.tickAt {
			c.tickAt += c.tick
			if c.told == nil {
				c.toldAt = c.now
			}
			c.told = slices.Clone(c.manager)
		}
		if c.told != nil && c.now >= c.toldAt+c.agree/2 {
			c.monitors, c.told = c.told, nil
		}
	}
}

// restart lets an OSD begin a new life: its reports begin with it.
func (c *clockwork) restart(id int) {
	c.epoch++
	c.osds[id].upFrom, c.osds[id].count, c.osds[id].at = c.epoch, 0, c.now
}

func (c *clockwork) reports(ids []int) map[int]ceph.Report {
	out := map[int]ceph.Report{}
	for _, id := range ids {
		out[id] = c.monitors[id]
	}
	return out
}

var clockworkBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *clockwork) at() time.Time { return clockworkBegan.Add(c.now) }

// look lets a tracker look.
func (c *clockwork) look(tracker *pghealth.Tracker) (proved bool) {
	var s pghealth.Sample
	if asks := tracker.Asks(); len(asks) > 0 {
		s.Evidence = &pghealth.Evidence{Manager: ceph.Manager{Epoch: 1, Available: true}, Reports: c.reports(asks)}
	}
	s.At = c.at()
	s.Reading.Status.MgrMap.Available = true
	s.Reading.Status.PGMap.NumPGs = len(c.osds)
	s.Reading.Status.PGMap.States = []ceph.PGStateCount{{State: "active+clean", Count: len(c.osds)}}
	s.Reading.Map = &ceph.OSDMap{Pools: []ceph.Pool{{ID: 1, PGNum: len(c.osds)}}}
	for id, o := range c.osds {
		s.Reading.Map.OSDs = append(s.Reading.Map.OSDs,
			ceph.OSD{ID: id, Up: true, In: true, Weight: 1, UpFrom: o.upFrom, State: []string{"exists"}})
	}
	return tracker.Observe(s).Clean
}

const (
	lookEvery = 150 * time.Millisecond
	acts      = 200 * time.Millisecond // from the proof to what opens because of it
)

// TestProofServesTheNextOpening: whatever the phases of OSDs and manager are, the proof of PG health after an OSD came
// back comes within a tick, a period and a tick, and the signs of life in it are fresh enough for what opens next, so
// that nobody has to ask for reports once more. And the period that is learned is that of the reports, not of the
// ticks.
func TestProofServesTheNextOpening(t *testing.T) {
	for name, p := range cephPeriods {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := newClockwork(t, name)
				c.pass(2 * c.report)
				tracker := pghealth.New(policy)
				prove := func() {
					for began := c.now; !c.look(tracker); c.pass(lookEvery) {
						require.Less(t, c.now-began, p.tick+p.report+p.tick+p.agree+4*lookEvery, "no proof")
					}
				}
				prove() // a keeper begins with a cluster at rest
				served, proofs := 0, 0
				for id := range len(c.osds) {
					c.pass(time.Duration(rapid.IntRange(0, 5000).Draw(t, "pause")) * time.Millisecond)
					c.restart(id)
					prove()
					proofs++
					since, lasts := tracker.Lived()
					if c.at().Sub(since)+acts <= lasts {
						served++
					} else {
						t.Logf("%s after it, of %s", c.at().Sub(since), lasts)
					}
				}
				period := tracker.Period()
				require.InDelta(t, p.report.Seconds(), period.Seconds(), 0.3*p.report.Seconds(), "the period")
				require.GreaterOrEqual(t, served, proofs-1, "how many of %d proofs served the next opening", proofs)
			})
		})
	}
}
