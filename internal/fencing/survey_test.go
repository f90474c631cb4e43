package fencing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// TestForgotten: a Machine in deletion that is held, and whose release nobody asks for, is named after a while.
func TestForgotten(t *testing.T) {
	now := time.Unix(1e9, 0)
	ours := &fencing.Ledger{Held: []string{fencing.Key("u")}}
	since := func(d time.Duration) fencing.Machine {
		return fencing.Machine{Name: "m", UID: "u", Node: "n", Held: true, Deleting: true, DeletingSince: now.Add(-d)}
	}
	kept, free := since(time.Hour), since(time.Hour)
	kept.Deleting, free.Held = false, false
	tests := map[string]struct {
		machine fencing.Machine
		found   fencing.Found
		named   bool
		by      time.Time
	}{
		"for long":           {since(time.Hour), fencing.Found{Ledger: ours}, true, time.Time{}},
		"just now":           {since(20 * time.Second), fencing.Found{Ledger: ours}, false, now.Add(40 * time.Second)},
		"somebody asks":      {since(time.Hour), fencing.Found{Ledger: ours, Nodes: []string{"n"}}, false, time.Time{}},
		"not held":           {free, fencing.Found{Ledger: ours}, false, time.Time{}},
		"held by another":    {since(time.Hour), fencing.Found{}, false, time.Time{}},
		"it stays":           {kept, fencing.Found{Ledger: ours}, false, time.Time{}},
		"holds are given up": {since(time.Hour), fencing.Found{Ledger: ours, Ending: true}, false, time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.found.Now, test.found.Machines = now, []fencing.Machine{test.machine}
			test.found.Hosted = map[string]fencing.Hosted{"n": {Daemons: 1, Running: 1}}
			s := fencing.Sift(test.found)
			assert.Equal(t, test.named, len(s.Forgotten) == 1, "%+v", s)
			assert.Equal(t, test.by, s.AskedBy)
		})
	}
}
