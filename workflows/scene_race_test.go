package workflows_test

import (
	"time"

	"go.temporal.io/sdk/activity"
)

// A workflow that begins the same activity again and again without ever waiting would fill its history and keep
// Temporal busy, and here it would fill the memory. Nothing in a healthy one comes near this.
const (
	racesWithin = 10 * time.Second
	racesAfter  = 2000
)

// turnsTaken are how often an activity began since then.
type turnsTaken struct {
	since time.Time
	n     int
	told  bool
}

// brake slows down who races, and says so once.
func (s *scene) brake(info activity.Info) {
	key := info.WorkflowExecution.ID + " " + info.ActivityType.Name
	s.mu.Lock()
	if s.races == nil {
		s.races = map[string]*turnsTaken{}
	}
	t := s.races[key]
	if t == nil || time.Since(t.since) > racesWithin && t.n <= racesAfter {
		t = &turnsTaken{since: time.Now()}
		s.races[key] = t
	}
	t.n++
	races, tell := t.n > racesAfter, t.n > racesAfter && !t.told
	t.told = t.told || races
	s.mu.Unlock()
	if tell {
		s.Errorf("I8: %s begins %s again and again: %d times in %s", info.WorkflowExecution.ID, info.ActivityType.Name, t.n,
			time.Since(t.since))
	}
	if races {
		time.Sleep(time.Second)
	}
}
