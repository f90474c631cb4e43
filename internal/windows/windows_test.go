package windows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/windows"
)

// at reads "2026-03-28 23:30", in UTC.
func at(t require.TestingT, s string) time.Time {
	out, err := time.Parse("2006-01-02 15:04", s)
	require.NoError(t, err)
	return out
}

type window struct {
	schedule string
	duration time.Duration
	zone     string
}

func parse(t require.TestingT, all ...window) (out []windows.Window) {
	for _, w := range all {
		parsed, err := windows.Parse("window", w.schedule, w.duration, w.zone)
		require.Nil(t, err)
		out = append(out, parsed)
	}
	return out
}

func TestOpen(t *testing.T) {
	nights := window{"0 22 * * 1-5", 6 * time.Hour, ""}
	berlin := window{"30 1 * * *", 2 * time.Hour, "Europe/Berlin"}
	lost := window{"30 2 * * *", 2 * time.Hour, "Europe/Berlin"}
	never := "0001-01-01 00:00"
	for name, c := range map[string]struct {
		windows []window
		now     string
		open    bool
		change  string
	}{
		"without windows":           {nil, "2026-11-20 12:00", true, never},
		"before":                    {[]window{nights}, "2026-11-20 21:59", false, "2026-11-20 22:00"},
		"at once":                   {[]window{nights}, "2026-11-20 22:00", true, "2026-11-21 04:00"},
		"past midnight":             {[]window{nights}, "2026-11-21 03:59", true, "2026-11-21 04:00"},
		"its end is outside":        {[]window{nights}, "2026-11-21 04:00", false, "2026-11-23 22:00"},
		"days and weekdays: either": {[]window{{"0 0 13 * 5", time.Hour, ""}}, "2026-11-12 12:00", false, "2026-11-13 00:00"},
		"one within another": {
			[]window{nights, {"0 23 * * *", time.Hour, ""}},
			"2026-11-20 23:30", true,
			"2026-11-21 04:00",
		},
		"one after another": {
			[]window{nights, {"0 4 * * *", time.Hour, ""}},
			"2026-11-20 22:30", true,
			"2026-11-21 05:00",
		},
		"overlapping itself": {
			[]window{{"0 0,1 * * *", 2 * time.Hour, ""}},
			"2026-11-20 00:30", true,
			"2026-11-20 03:00",
		},
		"always open": {[]window{{"*/5 * * * *", 5 * time.Minute, ""}}, "2026-11-20 00:03", true, never},
		"the next of two": {
			[]window{nights, {"0 13 * * *", time.Hour, ""}},
			"2026-11-20 12:00", false,
			"2026-11-20 13:00",
		},

		// Berlin: +1, from 2026-03-29 01:00 UTC on +2, from 2026-10-25 01:00 UTC on +1 again.
		"in winter": {[]window{berlin}, "2026-03-28 00:00", false, "2026-03-28 00:30"},
		"in summer": {[]window{berlin}, "2026-03-29 22:00", false, "2026-03-29 23:30"},
		// 04:30 on the clock
		"across the hour that is missing": {[]window{berlin}, "2026-03-29 00:45", true, "2026-03-29 02:30"},
		"in the hour that is missing":     {[]window{lost}, "2026-03-28 12:00", false, "2026-03-30 00:30"},
		// 02:30 for the second time
		"across the hour that is twice": {[]window{berlin}, "2026-10-25 01:15", true, "2026-10-25 01:30"},
		"in the hour that is twice":     {[]window{lost}, "2026-10-25 00:00", false, "2026-10-25 00:30"},
		"twice, and it is one window":   {[]window{lost}, "2026-10-25 02:45", true, "2026-10-25 03:30"},
		"twice, and it is two": {
			[]window{{"30 2 * * *", 10 * time.Minute, "Europe/Berlin"}},
			"2026-10-25 00:45",
			false, "2026-10-25 01:30",
		},
	} {
		t.Run(name, func(t *testing.T) {
			open, change := windows.Open(parse(t, c.windows...), at(t, c.now))
			assert.Equal(t, c.open, open)
			assert.Equal(t, at(t, c.change), change)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		window
		want string
	}{
		{window{"", time.Hour, ""}, `w.schedule: "": must be the five fields of a crontab: minute, hour, day of month, month, day of week; such as 0 22 * * 1-5`},
		{window{"0 22 * *", time.Hour, ""}, `w.schedule: "0 22 * *": must be the five fields`},
		{window{"0 0 22 * * 1", time.Hour, ""}, `w.schedule: "0 0 22 * * 1": must be the five fields`},
		{window{"@daily", time.Hour, ""}, `w.schedule: "@daily": must be the five fields`},
		{window{"TZ=0", time.Hour, ""}, `w.schedule: "TZ=0": must be the five fields`},
		{window{"TZ=UTC 0 22 * *", time.Hour, ""}, `w.schedule: "TZ=UTC 0 22 * *": must be the five fields`},
		{window{"0 24 * * *", time.Hour, ""}, `(end of range (24) above maximum (23): 24)`},
		{window{"*/0 * * * *", time.Hour, ""}, `(step of range should be a positive number: */0)`},
		{window{"0 0 31 2 *", time.Hour, ""}, `w.schedule: "0 0 31 2 *": must come at some time: no year has such a day`},
		{window{"0 22 * * *", 0, ""}, `w.duration: "0s": must be between 1m and 168h, such as 6h`},
		{window{"0 22 * * *", 169 * time.Hour, ""}, `w.duration: "169h0m0s": must be between 1m and 168h`},
		{
			window{"0 22 * * *", time.Hour, "Berlin"},
			`w.timeZone: "Berlin": must be a time zone of the IANA's, such as Europe/Berlin; UTC if it is left out`,
		},
		{window{"0 22 * * *", time.Hour, "Local"}, `w.timeZone: "Local": must be a time zone`},
		{window{"0 22 * * *", time.Hour, "../etc/passwd"}, `w.timeZone: "../etc/passwd": must be a time zone`},
	} {
		_, err := windows.Parse("w", c.schedule, c.duration, c.zone)
		if assert.NotNil(t, err, c.schedule) {
			assert.Contains(t, err.Error(), c.want)
		}
	}
}

// TestOpenAgainstMinutes compares with a dumb model: go through the minutes, and note what each schedule's openings
// cover.
func TestOpenAgainstMinutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type daily struct{ hour, minute, minutes int }
		var all []window
		var model []daily
		for range rapid.IntRange(1, 3).Draw(t, "windows") {
			d := daily{
				rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute"),
				rapid.IntRange(1, 600).Draw(t, "minutes"),
			}
			model = append(model, d)
			all = append(all, window{
				time.Date(0, 1, 1, d.hour, d.minute, 0, 0, time.UTC).Format("4 15") + " * * *",
				time.Duration(d.minutes) * time.Minute, "",
			})
		}
		now := at(t, "2026-11-20 00:00").Add(time.Duration(rapid.IntRange(0, 24*60-1).Draw(t, "now")) * time.Minute)
		covered := func(when time.Time) bool {
			for _, d := range model {
				for _, day := range []int{-1, 0, 1, 2} {
					start := time.Date(2026, 11, 20+day, d.hour, d.minute, 0, 0, time.UTC)
					if !when.Before(start) && when.Before(start.Add(time.Duration(d.minutes)*time.Minute)) {
						return true
					}
				}
			}
			return false
		}
		open, change := windows.Open(parse(t, all...), now)
		if open != covered(now) {
			t.Fatalf("open is %v at %s", open, now)
		}
		for when := now; when.Before(now.Add(24 * time.Hour)); when = when.Add(time.Minute) {
			if covered(when) != open {
				if !change.Equal(when) {
					t.Fatalf("it changes at %s, not at %s", when, change)
				}
				return
			}
		}
		if open && !change.IsZero() {
			t.Fatalf("it is always open, not until %s", change)
		}
	})
}

// FuzzParse: whatever is accepted opens at some time, and can be asked.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"0 22 * * 1-5", "*/5 * * * *", "0 0 29 2 *", "TZ=UTC * * * *", "@every 1h", "? ? ? ? ?",
		"0 0 * jan sun", "59-0 * * * *", "0 0 1-31/40 * *",
	} {
		f.Add(s, "Europe/Berlin")
	}
	f.Add("0 0 * * *", "America/Sao_Paulo")
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, schedule, zone string) {
		w, err := windows.Parse("window", schedule, time.Hour, zone)
		if err != nil {
			return
		}
		open, change := windows.Open([]windows.Window{w}, now)
		if !change.IsZero() && !change.After(now) || !open && change.IsZero() {
			t.Fatalf("%q in %q: %v, %s", schedule, zone, open, change)
		}
	})
}
