package fencing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

func TestUnhealthy(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	lost := fencing.Condition{Type: "Ready", Status: "Unknown", Since: ago(time.Minute)}
	full := fencing.Condition{Type: "DiskPressure", Status: "True", Since: ago(time.Hour)}
	check := func(kind, status string, timeout time.Duration) fencing.Check {
		return fencing.Check{Type: kind, Status: status, Timeout: timeout}
	}
	for _, test := range []struct {
		name        string
		conditions  []fencing.Condition
		checks      []fencing.Check
		since, next time.Time
	}{
		{
			"not long enough",
			[]fencing.Condition{lost},
			[]fencing.Check{check("Ready", "Unknown", 5*time.Minute)},
			time.Time{},
			now.Add(4 * time.Minute),
		},
		{"long enough", []fencing.Condition{lost}, []fencing.Check{check("Ready", "Unknown", time.Minute)}, now, time.Time{}},
		{"another status", []fencing.Condition{lost}, []fencing.Check{check("Ready", "False", 0)}, time.Time{}, time.Time{}},
		{"any condition", []fencing.Condition{lost, full}, []fencing.Check{
			check("Ready", "Unknown", 5*time.Minute), check("DiskPressure", "True", 10*time.Minute),
		}, ago(50 * time.Minute), time.Time{}},
		{"the sooner one", []fencing.Condition{lost, full}, []fencing.Check{
			check("Ready", "Unknown", 5*time.Minute), check("DiskPressure", "True", 2*time.Hour),
		}, time.Time{}, now.Add(4 * time.Minute)},
		{"no check", []fencing.Condition{lost}, fencing.WithoutCheck, ago(time.Minute), time.Time{}},
		{"healthy", []fencing.Condition{{Type: "Ready", Status: "True"}}, fencing.WithoutCheck, time.Time{}, time.Time{}},
	} {
		since, next, ok := fencing.Unhealthy(test.conditions, test.checks, now)
		require.Equal(t, !test.since.IsZero(), ok, test.name)
		require.Equal(t, test.since, since, test.name)
		require.Equal(t, test.next, next, test.name)
	}
}

func TestSpares(t *testing.T) {
	for _, test := range []struct {
		least    string
		machines int
		want     bool
	}{
		{"", 1, true},
		{"", 0, false},
		{"51%", 3, true},
		{"51%", 2, false}, // rounded up
		{"51%", 1, false},
		{"2", 3, true},
		{"3", 3, false},
		{"0", 1, true},
		{"100%", 6, false},
	} {
		got, err := fencing.Spares(test.least, test.machines)
		require.NoError(t, err)
		require.Equal(t, test.want, got, "%s of %d", test.least, test.machines)
	}
	for _, bad := range []string{"some", "-1", "x%"} {
		_, err := fencing.Spares(bad, 3)
		require.ErrorContains(t, err, bad)
	}
}

func TestFences(t *testing.T) {
	for _, test := range []struct {
		limit    string
		machines int
		want     bool
	}{
		{"40%", 7, true},
		{"40%", 3, true},
		{"40%", 2, false}, // rounded down
		{"40%", 1, false}, // all others are held by skip-remediation
		{"100%", 1, true},
		{"1", 1, true},
		{"0", 7, false},
		{"0%", 7, false},
		{"", 7, true},
		{"", 0, false},
		{"[1-3]", 7, true},
		{"[2-3]", 7, false}, // one at a time is never two
	} {
		got, err := fencing.Fences(test.limit, test.machines)
		require.NoError(t, err)
		require.Equal(t, test.want, got, "%s of %d", test.limit, test.machines)
	}
	for _, bad := range []string{"some", "-1", "x%", "[1]", "[3-1]", "[1-2", "[a-b]"} {
		_, err := fencing.Fences(bad, 7)
		require.ErrorContains(t, err, bad)
		require.ErrorContains(t, err, "allowed are")
	}
}
