package budget

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Written is what was read of one PodDisruptionBudget of ours before a look. Whoever lets pods go writes only if it
// still is so: an alarm that was raised since then has changed it.
type Written struct {
	UID string `json:"uid"`
	// Generation rises with every change of the spec.
	Generation int64 `json:"generation"`
	// Alarm is the last alarm: when it was raised and why. Each is another one. NoAlarm, or "" of a budget that does not
	// say: there was none yet. What Fenced added comes after it.
	Alarm string `json:"alarm,omitempty"`
}

// fence parts an alarm from what Fenced adds.
const fence = " ~"

// Fenced is an alarm in words that were never there before, and still the same alarm. A write that lets pods go and of
// which nobody knows whether it was carried out may yet arrive; it tests the words that were read before it, and so
// does nothing any more.
func Fenced(alarm string, at time.Time) string {
	alarm, _, _ = strings.Cut(cmp.Or(alarm, NoAlarm), fence)
	return alarm + fence + strconv.FormatInt(at.UnixNano(), 36)
}

// NoAlarm is what a budget says for which none was raised yet: a patch can test what is there, and not what is missing.
const NoAlarm = "-"

// Which budget is which in a Book.
const (
	Marked   = "osd-proved" // of the storage daemons whose pods carry a mark
	Unmarked = "osd"        // of the others
	OfMons   = "mon"
)

// Book is what was read of all budgets that follow the keeper's decisions, by the daemons that each is over.
type Book map[string]Written

// Alarms are the alarms in the book, in words that are different as soon as one of them is: clocks differ, so the
// latest would not do. "": there was none yet.
func (b Book) Alarms() string {
	var out []string
	for _, daemon := range []string{Marked, Unmarked, OfMons} {
		if alarm, _, _ := strings.Cut(b[daemon].Alarm, fence); alarm != "" && alarm != NoAlarm {
			out = append(out, alarm)
		}
	}
	return strings.Join(slices.Compact(out), " | ")
}

// Same tells whether the budgets are those of another book, with the same specs.
func (b Book) Same(as Book) bool {
	for _, daemon := range []string{Marked, Unmarked, OfMons} {
		if x, y := b[daemon], as[daemon]; x.UID != y.UID || x.Generation != y.Generation {
			return false
		}
	}
	return true
}
