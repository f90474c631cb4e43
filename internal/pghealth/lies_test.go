package pghealth_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var policy = pghealth.Policy{Healthy: regexp.MustCompile(`^active(\+(clean|deep|scrubbing|snaptrim|snaptrim_wait))+$`)}

// cluster is what a test shows the tracker: six OSDs with one pool of 32 groups.
type cluster struct {
	tracker *pghealth.Tracker
	osds    []ceph.OSD
	pools   []ceph.Pool
	crush   int64
	inOut   string
	states  []ceph.PGStateCount
	manager ceph.Manager
	counts  []uint32 // reports of each OSD in its present life
	frozen  bool     // no report arrives any more
	elected int64    // the number of the mons' quorum
	asked   int      // how many OSDs were asked about
}

func newCluster() *cluster {
	c := &cluster{
		tracker: pghealth.New(policy),
		pools:   []ceph.Pool{{ID: 1, Name: "rbd", Size: 3, MinSize: 2, PGNum: 32}},
		crush:   9,
		manager: ceph.Manager{Epoch: 4, Available: true, Name: "x"},
		elected: 6,
		counts:  make([]uint32, 6),
	}
	c.say("active+clean", 32)
	for id := range 6 {
		c.osds = append(c.osds, ceph.OSD{ID: id, Up: true, In: true, Weight: 1, UpFrom: 10, State: []string{"exists", "up"}})
		c.counts[id] = 100
	}
	return c
}

// say makes the summary say that so many groups are in a state, and nothing else.
func (c *cluster) say(state string, count int) {
	c.states = []ceph.PGStateCount{{State: state, Count: count}}
}

func (c *cluster) also(state string, count int) {
	c.states = append(c.states, ceph.PGStateCount{State: state, Count: count})
}

func (c *cluster) stop(id int, epoch int64) { c.osds[id].Up, c.osds[id].DownAt = false, epoch }

func (c *cluster) start(id int, epoch int64) {
	c.osds[id].Up, c.osds[id].UpFrom, c.counts[id] = true, epoch, 1
}

// look shows the cluster as it is, with the evidence that the tracker asked for before.
func (c *cluster) look() storage.Health {
	var evidence *pghealth.Evidence
	if asks := c.tracker.Asks(); len(asks) > 0 {
		c.asked += len(asks)
		evidence = &pghealth.Evidence{Manager: c.manager, Reports: map[int]ceph.Report{}}
		for _, id := range asks {
			evidence.Reports[id] = ceph.Report{UpFrom: c.osds[id].UpFrom, Count: c.counts[id]}
		}
	}
	return c.tracker.Observe(pghealth.Sample{Reading: c.reading(), Evidence: evidence})
}

func (c *cluster) reading() ceph.Reading {
	var r ceph.Reading
	r.Map = &ceph.OSDMap{
		CrushDigest: fmt.Sprint(c.crush), LastInChange: c.inOut, Pools: c.pools,
		OSDs: append([]ceph.OSD(nil), c.osds...),
	}
	r.Status.MgrMap.Available, r.Status.ElectionEpoch = c.manager.Available, c.elected
	r.Status.PGMap.States = c.states
	for _, s := range c.states {
		r.Status.PGMap.NumPGs += s.Count
	}
	return r
}

// period lets a stats period pass: all OSDs that are up report.
func (c *cluster) period() {
	for id := range c.osds {
		if bool(c.osds[id].Up) && !c.frozen {
			c.counts[id]++
		}
	}
}

// settle watches until the tracker is at rest.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	for range 4 {
		c.look()
		c.period()
	}
	require.True(t, c.look().Fresh)
	require.Empty(t, c.tracker.Asks())
	c.asked = 0
}

// TestLieStaleClean: for seconds after an OSD stopped, or was marked in, status still says that all is active+clean.
func TestLieStaleClean(t *testing.T) {
	for name, change := range map[string]func(*cluster){
		"an OSD stopped":          func(c *cluster) { c.stop(2, 21) },
		"an OSD came back":        func(c *cluster) { c.start(2, 23) },
		"an OSD was marked out":   func(c *cluster) { c.osds[2].In, c.osds[2].Weight = false, 0 },
		"an OSD went out and in":  func(c *cluster) { c.inOut = "2026-11-21T07:51:28.506478+0000" },
		"an OSD's weight changed": func(c *cluster) { c.osds[2].Weight = 0.5 },
		"the CRUSH map changed":   func(c *cluster) { c.crush++ },
		"the pool's size changed": func(c *cluster) {
			c.pools = []ceph.Pool{{ID: 1, Name: "rbd", Size: 4, MinSize: 2, PGNum: 32}}
		},
		"a pool was added":           func(c *cluster) { c.pools = append(c.pools[:1:1], ceph.Pool{ID: 2}) },
		"an OSD was removed":         func(c *cluster) { c.stop(2, 21); c.osds = c.osds[:5] },
		"one stopped, one came back": func(c *cluster) { c.stop(2, 24); c.start(3, 24) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			c.settle(t)
			change(c)
			h := c.look()
			require.False(t, h.Fresh, "the summary is from before the change")
			require.False(t, h.Clean)
			require.Contains(t, h.Reason, "not yet reported")
			c.look()
			require.False(t, c.look().Fresh, "looking again proves nothing")
			c.period()
			require.False(t, c.look().Fresh, "the first report may have been on its way")
			c.period()
			require.True(t, c.look().Clean)
		})
	}
}

// TestLieStaleOKToStop: ok-to-stop is as stale as the summary. A zone is down, and until its neighbours have reported
// the tracker says that nothing is known.
func TestLieStaleOKToStop(t *testing.T) {
	c := newCluster()
	c.settle(t)
	c.stop(0, 21)
	c.stop(3, 21)
	h := c.look()
	require.False(t, h.Fresh)
	require.Equal(t, int64(21), h.ChangeEpoch)
	require.False(t, c.look().Fresh)
	c.period()
	require.False(t, c.look().Fresh)
	c.say("active+undersized+degraded", 32)
	c.period()
	h = c.look()
	require.True(t, h.Fresh)
	require.False(t, h.Clean)
	require.Equal(t, "32 of 32 PGs are not clean: active+undersized+degraded", h.Reason)
	require.Empty(t, h.Unexplained)
}

// TestLieDeadManager: the summary stays frozen at clean, and the manager is called available for 30 s.
func TestLieDeadManager(t *testing.T) {
	c := newCluster()
	c.settle(t)
	c.frozen = true
	require.True(t, c.look().Clean, "nothing changed since it was proved")
	c.stop(0, 21)
	for range 300 {
		c.period()
		require.False(t, c.look().Fresh)
	}
	c.manager = ceph.Manager{Epoch: 5}
	h := c.look()
	require.False(t, h.Fresh)
	require.True(t, h.NoManager)
	require.Empty(t, c.tracker.Asks(), "there is nobody to hear of")

	c.manager, c.frozen = ceph.Manager{Epoch: 6, Available: true, Name: "y"}, false
	require.False(t, c.look().Fresh, "the new manager has to prove itself")
	for range 3 {
		c.period()
		c.look()
	}
	require.True(t, c.look().Fresh)
}

// TestLieNoQuorum: a monitor without a quorum says HEALTH_OK and clean. The reader found out.
func TestLieNoQuorum(t *testing.T) {
	c := newCluster()
	c.settle(t)
	h := c.tracker.Observe(pghealth.Sample{Reading: ceph.Reading{Unavailable: "no quorum answers: timed out"}})
	require.Equal(t, storage.Health{Reason: "no quorum answers: timed out"}, h)
	require.False(t, c.look().Fresh, "much may have happened meanwhile")
	c.settle(t)
}

// TestNewManagerStartsAnew: what was reported to one manager, the next does not know.
func TestNewManagerStartsAnew(t *testing.T) {
	c := newCluster()
	c.look()
	c.look()
	c.period()
	c.look()
	c.manager.Epoch++
	c.period()
	require.False(t, c.look().Fresh)
	c.period()
	require.False(t, c.look().Fresh)
	c.period()
	require.True(t, c.look().Fresh)
}

// TestElectionStartsAnew: what the manager told the mons while they had no quorum is news as soon as they have one, and
// the OSD that made the report may hang by then. What is proved already stays so.
func TestElectionStartsAnew(t *testing.T) {
	c := newCluster()
	c.look()
	c.look()
	c.period()
	require.False(t, c.look().Fresh)
	c.period() // told to mons without a quorum, and made while all lived
	c.elected += 2
	require.False(t, c.look().Fresh)
	for range 2 {
		require.False(t, c.look().Fresh)
		c.period()
	}
	require.True(t, c.look().Fresh)
	c.elected += 2
	require.True(t, c.look().Fresh)
}

// TestHungOSD: up by the map, but it does not report. That may be the first sign that it hangs.
func TestHungOSD(t *testing.T) {
	c := newCluster()
	c.look()
	for range 10 {
		c.period()
		c.counts[4] = 100
		c.look()
	}
	h := c.look()
	require.False(t, h.Fresh)
	require.Equal(t, "not yet reported since epoch 10: osd.4", h.Reason)
	require.Equal(t, []int{4}, c.tracker.Asks(), "the others are not asked about any more")
}

// TestOtherLife: the number of a life before says nothing, though it is greater.
func TestOtherLife(t *testing.T) {
	c := newCluster()
	c.settle(t)
	c.stop(2, 21)
	c.look()
	c.start(2, 23)
	c.look() // sees that it is up
	look := func(report ceph.Report) bool {
		reports := map[int]ceph.Report{2: report}
		for _, id := range []int{0, 1, 3, 4, 5} {
			reports[id] = ceph.Report{UpFrom: 10, Count: c.counts[id]}
		}
		c.period()
		return c.tracker.Observe(pghealth.Sample{
			Reading:  c.reading(),
			Evidence: &pghealth.Evidence{Manager: c.manager, Reports: reports},
		}).Fresh
	}
	for count := range uint32(5) {
		require.False(t, look(ceph.Report{UpFrom: 10, Count: 500 + count}))
	}
	require.False(t, look(ceph.Report{UpFrom: 0, Count: 1}), "sent before it was up")
	require.True(t, look(ceph.Report{UpFrom: 23, Count: 2}), "its life began with the change, so one report will do")
}

// TestAtRest: nobody is asked about while nothing changes, whatever the groups' states are.
func TestAtRest(t *testing.T) {
	c := newCluster()
	c.settle(t)
	c.say("active+clean+scrubbing+deep", 32)
	require.True(t, c.look().Clean)
	c.say("active+clean+inconsistent", 32)
	h := c.look()
	require.True(t, h.Fresh)
	require.False(t, h.Clean)
	require.Zero(t, c.asked)
}

func TestNobodyIsUp(t *testing.T) {
	c := newCluster()
	c.settle(t)
	for id := range c.osds {
		c.stop(id, 21)
	}
	for range 5 {
		h := c.look()
		require.False(t, h.Fresh, "clean, says a summary that nobody can correct")
		require.Contains(t, h.Reason, "no OSD is up")
	}
	empty := newCluster()
	empty.osds, empty.pools, empty.states = nil, nil, nil
	require.True(t, empty.look().Clean, "no PGs are clean PGs")
}
