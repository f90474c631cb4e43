// Package windows tells whether now is one of the times in which people want work to begin. It is pure: the time comes
// in as an argument, and the zones are those that Go brings along where the machine has none.
package windows

import (
	"strings"
	"time"
	_ "time/tzdata" // zones for an image that has none

	"github.com/robfig/cron/v3"

	"github.com/lockkeeper/lockkeeper/internal/input"
)

// How long a window may be open.
const (
	Shortest = time.Minute
	Longest  = 7 * 24 * time.Hour
)

// Window is a time that comes again and again: it opens as its schedule says, in its zone, and stays open for a
// duration.
//
// When clocks are put forward, an opening in the hour that does not exist is left out that day. When they are put back,
// a window that opens in the hour that comes twice may open twice. Its duration is real time, on such days too.
type Window struct {
	schedule cron.Schedule
	duration time.Duration
	zone     *time.Location
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

const scheduleRule = "must be the five fields of a crontab: minute, hour, day of month, month, day of week; such as " +
	"0 22 * * 1-5"

// Parse reads a window. field is the path of the object that holds schedule, duration and timeZone.
func Parse(field, schedule string, duration time.Duration, zone string) (Window, *input.Error) {
	w := Window{duration: duration}
	// The parser would take a zone from the schedule itself, and panics over half of one.
	if strings.ContainsAny(schedule, "=@") || len(strings.Fields(schedule)) != 5 {
		return Window{}, input.Wrong(field+".schedule", schedule, scheduleRule)
	}
	var err error
	if w.schedule, err = parser.Parse(schedule); err != nil {
		return Window{}, input.Wrong(field+".schedule", schedule, scheduleRule+" ("+err.Error()+")")
	}
	if w.schedule.Next(time.Unix(0, 0).UTC()).IsZero() {
		return Window{}, input.Wrong(field+".schedule", schedule, "must come at some time: no year has such a day")
	}
	if duration < Shortest || duration > Longest {
		return Window{}, input.Wrong(field+".duration", duration.String(), "must be between 1m and 168h, such as 6h")
	}
	// "Local" would mean another time on every machine.
	if w.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" {
		return Window{}, input.Wrong(field+".timeZone", zone,
			"must be a time zone of the IANA's, such as Europe/Berlin; UTC if it is left out")
	}
	return w, nil
}

// horizon is how far Open looks for the end of windows that follow each other without a gap.
const horizon = Longest

// Open tells whether any window is open, and when that changes: until when one is open, or when the next one opens. A
// time of zero: never, as far as anybody can see. Without windows it is always open.
func Open(windows []Window, now time.Time) (open bool, change time.Time) {
	if len(windows) == 0 {
		return true, time.Time{}
	}
	// Whatever is open at the end of one window continues it.
	for e := end(windows, now); !e.IsZero(); e = end(windows, e) {
		if e.Sub(now) > horizon {
			return true, time.Time{}
		}
		open, change = true, e
	}
	if open {
		return true, change
	}
	for _, w := range windows {
		if next := w.schedule.Next(now.In(w.zone)); !next.IsZero() && (change.IsZero() || next.Before(change)) {
			change = next.UTC()
		}
	}
	return false, change
}

// end is the latest known end of the windows that are open at t; zero: none is.
func end(windows []Window, t time.Time) (last time.Time) {
	for _, w := range windows {
		// The first opening whose window cannot have ended yet.
		opened := w.schedule.Next(t.Add(-w.duration).In(w.zone))
		if opened.IsZero() || opened.After(t) {
			continue
		}
		if e := opened.Add(w.duration).UTC(); e.After(last) {
			last = e
		}
	}
	return last
}
