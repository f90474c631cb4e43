package pghealth_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// model is a Ceph cluster reduced to who knows of which change. Each OSD leads one group, which it always calls
// active+clean: all that a summary can be wrong about is whether its OSDs knew of the newest change when they said so.
type model struct {
	change  int // counts changes of placement
	epoch   int64
	osds    []modelOSD
	manager ceph.Manager
	alive   bool                // the active manager
	pending map[int]modelReport // what it received since its last tick
	heard   map[int]modelReport // what it knows
	digest  map[int]modelReport // what the monitors know
	based   bool                // the tracker gets a base as soon as a proof is begun
	early   bool                // or earlier: as soon as the map has moved on
	seenUp  []int               // the OSDs that were up in the map that was read last
}

type modelOSD struct {
	ceph.OSD
	count uint32
	knows int // the change that it last took in
}

type modelReport struct {
	ceph.Report
	knows int
}

func newModel(n int) *model {
	m := &model{
		epoch: 10, manager: ceph.Manager{Epoch: 1, Available: true, Name: "x"}, alive: true,
		pending: map[int]modelReport{}, heard: map[int]modelReport{}, digest: map[int]modelReport{},
	}
	for id := range n {
		m.osds = append(m.osds, modelOSD{OSD: ceph.OSD{
			ID: id, Up: true, In: true, Weight: 1, UpFrom: 1,
			State: []string{"exists"},
		}})
	}
	return m
}

func (m *model) happen(t *rapid.T) {
	id := rapid.IntRange(0, len(m.osds)-1).Draw(t, "osd")
	o := &m.osds[id]
	switch rapid.SampledFrom([]string{
		"report", "report", "report", "tick", "tick", "tick", "learn", "stop", "start",
		"weigh", "kill", "replace",
	}).Draw(t, "event") {
	case "report":
		m.report(id)
	case "tick":
		m.tick()
	case "learn":
		o.knows = m.change
	case "stop":
		if o.Up {
			m.epoch++
			m.change++
			o.Up, o.DownAt = false, m.epoch
		}
	case "start":
		if !o.Up {
			m.epoch++
			m.change++
			m.pending[id] = modelReport{Report: ceph.Report{Count: 1}, knows: -1} // sent before it was up
			o.Up, o.UpFrom, o.count, o.knows = true, m.epoch, 1, m.change
		}
	case "weigh":
		m.change++
		o.Weight = 1 / float64(m.change+1) // never the same twice
	case "kill":
		m.alive = false
	case "replace":
		m.alive = true
		m.manager.Epoch++
		m.pending, m.heard = map[int]modelReport{}, map[int]modelReport{}
	}
}

func (m *model) report(id int) {
	if o := &m.osds[id]; bool(o.Up) && m.alive {
		o.count++
		m.pending[id] = modelReport{Report: ceph.Report{UpFrom: o.UpFrom, Count: o.count}, knows: o.knows}
	}
}

// tick is the manager's. What is assumed of OSDs: by the next tick they took in what was published before this one.
func (m *model) tick() {
	if !m.alive {
		return
	}
	maps.Copy(m.heard, m.pending)
	clear(m.pending)
	m.digest = maps.Clone(m.heard)
	for id := range m.osds {
		if m.osds[id].Up {
			m.osds[id].knows = m.change
		}
	}
}

// look reads what the monitors know, bit by bit, and anything may happen between. It returns what the tracker made of
// it, and whether that was right to be called clean.
func (m *model) look(tracker *pghealth.Tracker, between func()) (h storage.Health, right bool) {
	var evidence, early *pghealth.Evidence
	var change int
	// Who looks early knows that the map moved on, and has asked for the numbers before it is read.
	if m.early && len(m.seenUp) > 0 {
		between()
		change = m.change
		early = m.numbers(m.seenUp, between)
	} else {
		evidence = m.evidence(tracker, between)
	}
	between()
	var r ceph.Reading
	r.Status.MgrMap.Available = true
	summary := m.digest
	for id := range m.osds {
		if _, known := summary[id]; known {
			r.Status.PGMap.States = append(r.Status.PGMap.States, ceph.PGStateCount{State: "active+clean", Count: 1})
			r.Status.PGMap.NumPGs++
		}
	}
	between()
	r.Map = &ceph.OSDMap{Pools: []ceph.Pool{{ID: 1, PGNum: len(m.osds)}}}
	right, m.seenUp = true, nil
	if m.change != change {
		early = nil // of an older map
	}
	for _, o := range m.osds {
		r.Map.OSDs = append(r.Map.OSDs, o.OSD)
		if o.Up {
			m.seenUp = append(m.seenUp, o.ID)
		}
		if bool(o.Up) && summary[o.ID].knows < m.change {
			right = false
		}
	}
	between()
	proofs := tracker.Proofs()
	h = tracker.Observe(pghealth.Sample{Reading: r, Evidence: evidence})
	switch e := m.evidence(tracker, between); {
	case tracker.Proofs() == proofs:
	case early != nil:
		tracker.Base(time.Time{}, *early)
	case m.based && e != nil:
		tracker.Base(time.Time{}, *e)
	}
	return h, right
}

// evidence reads the numbers that the tracker asks for.
func (m *model) evidence(tracker *pghealth.Tracker, between func()) *pghealth.Evidence {
	return m.numbers(tracker.Asks(), between)
}

func (m *model) numbers(asks []int, between func()) *pghealth.Evidence {
	if len(asks) == 0 {
		return nil
	}
	e := &pghealth.Evidence{Manager: m.manager, Reports: map[int]ceph.Report{}}
	for _, id := range asks {
		between()
		e.Reports[id] = m.digest[id].Report
	}
	return e
}

// TestNeverCleanOnOldKnowledge: whatever happens in whatever order, "clean" is said only of a summary that every OSD
// that is up had a hand in after it knew of the newest change; and once nothing changes any more, the tracker comes to
// rest.
func TestNeverCleanOnOldKnowledge(t *testing.T) {
	clean := 0
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.IntRange(1, 4).Draw(t, "osds"))
		m.based = rapid.Bool().Draw(t, "based")
		tracker := pghealth.New(policy)
		between := func() {
			for range rapid.IntRange(0, 2).Draw(t, "events") {
				m.happen(t)
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			m.early = rapid.Bool().Draw(t, "early")
			if h, right := m.look(tracker, between); h.Clean {
				clean++
				require.True(t, right, "called clean on old knowledge")
			}
		}
		m.alive, m.early = true, false
		var h storage.Health
		for range 5 {
			for id := range m.osds {
				m.report(id)
			}
			m.tick()
			var right bool
			if h, right = m.look(tracker, func() {}); h.Clean {
				clean++
				require.True(t, right, "called clean on old knowledge")
			}
		}
		up := slices.ContainsFunc(m.osds, func(o modelOSD) bool { return bool(o.Up) })
		require.Equal(t, up, h.Fresh, h.Reason)
		require.Empty(t, tracker.Asks())
	})
	require.Positive(t, clean, "the test never got to see a clean cluster")
}

// TestBaseSavesADigest: with the numbers from when the proof began the first digest afterwards is known to be new, and
// the second makes the proof. Without them the first is only where counting begins.
func TestBaseSavesADigest(t *testing.T) {
	for based, digests := range map[bool]int{true: 2, false: 3} {
		m := newModel(3)
		m.based = based
		tracker := pghealth.New(policy)
		h, _ := m.look(tracker, func() {})
		took := 0
		for ; !h.Fresh && took < 10; took++ {
			for id := range m.osds {
				m.report(id)
			}
			m.tick()
			h, _ = m.look(tracker, func() {})
		}
		require.Equal(t, digests, took)
	}
}
