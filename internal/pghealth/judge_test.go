package pghealth_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
)

// TestStates goes through testdata/states.txt.
func TestStates(t *testing.T) {
	text, err := os.ReadFile("testdata/states.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		state, want := fields[0], fields[1]
		t.Run(state, func(t *testing.T) {
			c := newCluster()
			c.settle(t)
			c.say("active+clean", 31)
			c.also(state, 1)
			h := c.look()
			require.True(t, h.Fresh)
			require.Equal(t, 32, h.PGs)
			require.Equal(t, want == "clean", h.Clean)
			require.Equal(t, slices.Contains(fields[2:], "moving"), h.Moving)
			if want == "clean" {
				require.Equal(t, 32, h.PGsClean)
				require.Empty(t, h.Reason)
			} else {
				require.Equal(t, 31, h.PGsClean)
				require.Equal(t, "1 of 32 PGs are not clean: "+state, h.Reason)
			}
			if want == "unexplained" {
				require.Equal(t, []string{state}, h.Unexplained)
			} else {
				require.Empty(t, h.Unexplained)
			}
		})
	}
}

// TestDisconnected: with OSDs that no monitor hears the data is not clean, whatever its groups say.
func TestDisconnected(t *testing.T) {
	c := newCluster()
	c.settle(t)
	c.say("active+clean", 32)
	require.True(t, c.look().Clean)
	r := c.reading()
	r.Disconnected.OSDs = []int{1, 4}
	h := c.tracker.Observe(pghealth.Sample{Reading: r})
	require.True(t, h.Fresh)
	require.False(t, h.Clean)
	require.True(t, h.ButDisconnected)
	require.Equal(t, "2 of 6 OSDs that are up have no session with a monitor: restart, one after the other, osd.1, osd.4",
		h.Reason)
	r.Disconnected = ceph.Disconnected{OSDs: []int{4}}
	h = c.tracker.Observe(pghealth.Sample{Reading: r})
	require.Equal(t, "1 of 6 OSDs that are up have no session with a monitor: restart osd.4", h.Reason)
	r.Disconnected = ceph.Disconnected{Presumed: []int{1}} // it may only turn to another monitor
	h = c.tracker.Observe(pghealth.Sample{Reading: r})
	require.Equal(t, "1 of 6 OSDs that are up have no session with a monitor", h.Reason)
	c.say("active+clean", 31)
	c.also("peering", 1)
	r = c.reading()
	r.Disconnected.OSDs = []int{1, 4}
	h = c.tracker.Observe(pghealth.Sample{Reading: r})
	require.Equal(t, "1 of 32 PGs are not clean: peering; "+
		"2 of 6 OSDs that are up have no session with a monitor: restart, one after the other, osd.1, osd.4", h.Reason)
	require.False(t, h.ButDisconnected)
}

// TestPassingStates: for moments after a change groups are stale or unknown, which counts only once it is known to be
// true.
func TestPassingStates(t *testing.T) {
	c := newCluster()
	c.settle(t)
	c.stop(0, 21)
	c.say("active+clean", 30)
	c.also("stale+active+clean", 1)
	c.also("unknown", 1)
	require.Empty(t, c.look().Unexplained)
	c.period()
	require.Empty(t, c.look().Unexplained)
	c.also("active+clean+inconsistent", 1)
	require.Equal(t, []string{"active+clean+inconsistent"}, c.look().Unexplained, "that does not pass")
	for range 3 {
		c.period()
		c.look()
	}
	require.Equal(t, []string{"active+clean+inconsistent", "stale+active+clean", "unknown"}, c.look().Unexplained)
}

// TestToleratedPools may be unavailable with one failure domain.
func TestToleratedPools(t *testing.T) {
	for _, tolerated := range []bool{true, false} {
		c := newCluster()
		c.pools = append(c.pools, ceph.Pool{ID: 2, Name: "scratch", Size: 1, MinSize: 1})
		if tolerated {
			p := policy
			p.ToleratedPools = []string{"scratch", "rbd"}
			c.tracker = pghealth.New(p)
		}
		c.settle(t)
		c.say("stale+active+clean", 16)
		c.also("undersized+degraded+peered", 16)
		require.Equal(t, tolerated, len(c.look().Unexplained) == 0)
		c.pools = c.pools[:1] // of size 3: to tolerate it changes nothing
		c.settle(t)
		require.Len(t, c.look().Unexplained, 2)
	}
}

// TestSummaryWithoutAllGroups is what a new pool or a new manager looks like.
func TestSummaryWithoutAllGroups(t *testing.T) {
	c := newCluster()
	c.settle(t)
	c.say("active+clean", 20)
	h := c.look()
	require.False(t, h.Clean)
	require.Equal(t, "the manager knows 20 of 32 PGs", h.Reason)
	c.states = nil
	require.False(t, c.look().Clean)
}
