package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

// restarted is an OSD whose pod is stopped, gone after 0.2 s, made anew after 0.3 s, and up after 1 s.
func restarted(osd int, zone string, from float64) []event {
	return []event{
		{at(from), stopping, osd, zone},
		{at(from + 0.2), gone, osd, zone},
		{at(from + 0.3), made, osd, zone},
		{at(from + 1), up, osd, ""},
		{at(from + 1.1), ready, osd, zone},
	}
}

func byOSD(e event) string  { return strconv.Itoa(e.osd) }
func byZone(e event) string { return e.zone }

func TestBatchesOneAtATime(t *testing.T) {
	r := record{
		events:  append(restarted(3, "x", 10), restarted(4, "x", 14)...),
		reports: []report{{at(10.5), false}, {at(12.5), true}, {at(14.6), false}, {at(16), true}},
	}
	got, err := r.batches(byOSD, at(16.5))
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, []int{3}, got[0].osds)
	require.Equal(t, at(12.5), got[0].whole)
	require.InDelta(t, 0.1+1.5, got[0].overhead().Seconds(), 1e-6,
		"to make the successor, and from whole to the next stop")
	require.InDelta(t, 0.1+0.5, got[1].overhead().Seconds(), 1e-6, "to make the successor, and from whole to the end")
}

func TestOSDsOfAZoneAreOneBatch(t *testing.T) {
	// osd.1 is made before osd.2 is gone.
	r := record{events: []event{
		{at(10), stopping, 1, "x"},
		{at(10.1), stopping, 2, "x"},
		{at(10.2), gone, 1, "x"},
		{at(10.3), made, 1, "x"},
		{at(10.6), gone, 2, "x"},
		{at(10.7), made, 2, "x"},
		{at(11), up, 2, ""},
		{at(12), up, 1, ""},
	}, reports: []report{{at(11), false}, {at(13), true}}}
	got, err := r.batches(byZone, at(13))
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, []int{1, 2}, got[0].osds)
	require.Equal(t, at(12), got[0].up)
	require.InDelta(t, 0.1, got[0].overhead().Seconds(), 1e-6)
}

func TestAZoneInTwoParts(t *testing.T) {
	r := record{
		events:  append(restarted(1, "x", 10), restarted(2, "x", 14)...),
		reports: []report{{at(10.5), false}, {at(12.5), true}, {at(14.6), false}, {at(16), true}},
	}
	got, err := r.batches(byZone, at(17))
	require.NoError(t, err)
	require.Len(t, got, 2, "Ceph let only one of them go at a time")
}

func TestCleanIsOldUntilTheManagerSaidOtherwise(t *testing.T) {
	for name, c := range map[string]struct {
		reports []report
		whole   time.Time
	}{
		"it never said otherwise":        {nil, at(11)},
		"it said so of the batch before": {[]report{{at(9), false}, {at(9.5), true}}, at(11)},
		"clean was reported before all rose": {[]report{
			{at(10.2), false},
			{at(10.4), true},
			{at(11.5), false},
			{at(12), true},
		}, at(12)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := record{events: restarted(1, "x", 10), reports: c.reports}.batches(byOSD, at(13))
			require.NoError(t, err)
			require.Equal(t, c.whole, got[0].whole)
		})
	}
}

func TestARolloutThatWasNotCarefulIsNoNumber(t *testing.T) {
	for name, c := range map[string]struct {
		record record
		says   string
	}{
		"nothing happened": {record{}, "no pod was stopped"},
		"the next was stopped before this one was up": {
			record{events: append(restarted(1, "x", 10)[:3], restarted(2, "y", 10.5)...)}, "0 of 1 were up again",
		},
		"the next was stopped before the data was whole": {record{
			events:  append(restarted(1, "x", 10), restarted(2, "y", 12)...),
			reports: []report{{at(10.5), false}, {at(16), true}},
		}, "only 4s AFTER"},
		"the data was never whole again": {
			record{events: restarted(1, "x", 10), reports: []report{{at(10.5), false}}}, "never",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.record.batches(byOSD, at(14))
			require.ErrorContains(t, err, c.says)
		})
	}
}
