package pghealth_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
)

// reports are the numbers of all OSDs, in a life that began at epoch 10.
func reports(counts ...uint32) map[int]ceph.Report {
	out := map[int]ceph.Report{}
	for id, count := range counts {
		out[id] = ceph.Report{UpFrom: 10, Count: count}
	}
	return out
}

func upSince10(n int) map[int]int64 {
	up := map[int]int64{}
	for id := range n {
		up[id] = 10
	}
	return up
}

func TestRound(t *testing.T) {
	for name, c := range map[string]struct {
		looks  []map[int]ceph.Report
		silent []int
	}{
		"no look": {silent: []int{0, 1, 2}},
		"the same again and again": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(5, 5, 5),
			reports(5, 5, 5),
		}, silent: []int{0, 1, 2}},
		"a digest that may be from before": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(6, 6, 6),
			reports(6, 6, 6),
		}, silent: []int{0, 1, 2}},
		"two reports in one digest": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(7, 7, 7),
			reports(7, 7, 7),
		}, silent: []int{0, 1, 2}},
		"a second digest": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(6, 6, 6),
			reports(7, 7, 7),
		}},
		"one hung before": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(6, 5, 6),
			reports(7, 5, 7), reports(8, 5, 8),
		}, silent: []int{1}},
		"one hung with a report on its way": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(6, 6, 6),
			reports(7, 6, 7), reports(8, 6, 8),
		}, silent: []int{1}},
		"a digest that was read in two": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(6, 5, 5),
			reports(6, 6, 6),
		}, silent: []int{0, 1, 2}},
		"another's digest is a digest": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(6, 5, 5),
			reports(6, 5, 5), reports(7, 6, 6),
		}},
		"the number of a life before": {looks: []map[int]ceph.Report{
			reports(5, 5),
			{2: {UpFrom: 9, Count: 90}},
			reports(6, 6),
			{2: {UpFrom: 9, Count: 91}},
			reports(7, 7),
			{2: {UpFrom: 9, Count: 92}},
		}, silent: []int{2}},
		"the first report of a life": {looks: []map[int]ceph.Report{
			reports(5, 5), reports(6, 6),
			{2: {}},
			reports(7, 7),
			{2: {UpFrom: 10, Count: 1}},
		}},
		"a number that the first look lacked": {looks: []map[int]ceph.Report{
			reports(5, 5),
			reports(5, 5, 5), reports(6, 6, 6),
			reports(6, 6, 6),
		}, silent: []int{0, 1, 2}},
		"a number that was lacking for longer": {looks: []map[int]ceph.Report{
			reports(5, 5), reports(6, 6),
			reports(7, 7, 7),
		}, silent: []int{2}},
		"a number that is lower, of a laggard": {looks: []map[int]ceph.Report{
			reports(5, 5, 5), reports(6, 6, 6),
			reports(5, 5, 5), reports(6, 6, 6),
		}, silent: []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r := pghealth.NewRound(upSince10(3), nil)
			for _, look := range c.looks {
				r.Weigh(time.Time{}, look)
			}
			require.Equal(t, c.silent, slices.Clip(append([]int(nil), r.Silent()...)))
		})
	}
}

// TestRoundGoesWithTheMap: who went down is not waited for, and who came up lives.
func TestRoundGoesWithTheMap(t *testing.T) {
	r := pghealth.NewRound(upSince10(3), nil)
	r.Update(map[int]int64{0: 10, 2: 21, 3: 22})
	require.Equal(t, []int{0}, r.Silent())
}

// TestFlushedOSDsCountWithTheirReport: an OSD that reported when it was told to counts once the monitors have that
// report, and not before; a number of another life does not count, and neither does the answer of another OSD.
func TestFlushedOSDsCountWithTheirReport(t *testing.T) {
	r := pghealth.NewRound(upSince10(3), nil)
	r.Weigh(time.Time{}, reports(5, 5, 5))
	r.Flushed(time.Time{}, map[int]ceph.Report{0: {UpFrom: 10, Count: 7}, 1: {UpFrom: 9, Count: 1}})
	r.Weigh(time.Time{}, reports(6, 5, 5))
	require.Equal(t, []int{0, 1, 2}, r.Silent())
	r.Weigh(time.Time{}, reports(7, 5, 5))
	require.Equal(t, []int{1, 2}, r.Silent())
	r.Answered(time.Time{}, map[int]ceph.Report{1: {UpFrom: 10, Count: 6}})
	require.Equal(t, []int{2}, r.Silent())
}

// TestOverdue: one OSD is called silent only when others have had several turns.
func TestOverdue(t *testing.T) {
	r := pghealth.NewRound(upSince10(2), nil)
	for n := range uint32(4) {
		r.Weigh(time.Time{}, reports(5+n, 5))
		require.False(t, r.Overdue(), "the others have reported %d times", n)
	}
	r.Weigh(time.Time{}, reports(9, 5))
	require.True(t, r.Overdue())
	require.Equal(t, []int{0, 1}, r.Asks())
	require.Equal(t, []int{1}, r.Silent())
}

// TestRoundOfALargeClusterAsksOfFew once most have reported.
func TestRoundOfALargeClusterAsksOfFew(t *testing.T) {
	r := pghealth.NewRound(upSince10(100), nil)
	for n := range uint32(3) {
		require.Len(t, r.Asks(), 100)
		var counts []uint32
		for id := range 100 {
			counts = append(counts, 5+n)
			if id == 50 {
				counts[50] = 5
			}
		}
		r.Weigh(time.Time{}, reports(counts...))
	}
	require.Equal(t, []int{0, 1, 2, 50}, r.Asks())
}

// TestNobodyLivesByOldReports: whatever is reported and told on in whatever order, an OSD is said to live only if it
// made a report after the round began; and those that live are found after two reports and two ticks of the manager at
// the latest.
func TestNobodyLivesByOldReports(t *testing.T) {
	lived := 0
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.IntRange(1, 5).Draw(t, "osds"))
		hung := map[int]bool{}
		begun := map[int]uint32{} // how many reports each had made when the round began
		var r *pghealth.Round
		happen := func() {
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				id := rapid.IntRange(0, len(m.osds)-1).Draw(t, "osd")
				switch rapid.SampledFrom([]string{"report", "report", "report", "tick", "tick", "hang", "flush"}).Draw(t, "event") {
				case "report":
					if !hung[id] {
						m.report(id)
					}
				case "tick":
					m.tick()
				case "hang":
					hung[id] = true
				case "flush":
					if r != nil && !hung[id] {
						m.report(id)
						r.Flushed(time.Time{}, map[int]ceph.Report{id: {UpFrom: m.osds[id].UpFrom, Count: m.osds[id].count}})
					}
				}
			}
		}
		for range rapid.IntRange(0, 5).Draw(t, "before") {
			happen()
		}
		up := map[int]int64{}
		for _, o := range m.osds {
			up[o.ID], begun[o.ID] = o.UpFrom, o.count
		}
		r = pghealth.NewRound(up, nil)
		look := func(between func()) {
			seen := map[int]ceph.Report{}
			for _, id := range r.Asks() {
				between()
				seen[id] = m.digest[id].Report
			}
			r.Weigh(time.Time{}, seen)
			silent := r.Silent()
			for id := range m.osds {
				if !slices.Contains(silent, id) {
					lived++
					require.Greater(t, m.osds[id].count, begun[id], "osd.%d made no report since, and is said to live", id)
				}
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			look(happen)
		}
		for range 4 {
			for id := range m.osds {
				if !hung[id] {
					m.report(id)
				}
			}
			m.tick()
			look(func() {})
		}
		for _, id := range r.Silent() {
			require.True(t, hung[id] || len(hung) == len(m.osds), "osd.%d lives and is said to be silent", id)
		}
	})
	require.Positive(t, lived)
}
