package workflows

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file takes back a person's word by which a pod may go out of turn, if nobody makes use of it.

// overridesLast is for how long a pod may go out of turn. Whoever lets it go deletes it right after that.
const overridesLast = time.Minute

// sawOverrides takes note of those that the look saw. One that told of none because nothing was seen at all tells
// nothing.
func (m *mind) sawOverrides(now time.Time) {
	if m.observed.Seen.View.Unavailable != "" {
		return
	}
	known := m.state.Overridden
	m.state.Overridden = nil
	for _, o := range m.observed.Seen.View.Overrides {
		if m.state.Overridden == nil {
			m.state.Overridden = map[string]time.Time{}
		}
		m.state.Overridden[o.UID] = now
		if since, has := known[o.UID]; has {
			m.state.Overridden[o.UID] = since
		}
	}
}

// planOverrides has those taken back whose time is over. What becomes of nothing is tried again after as long.
func (m *mind) planOverrides(now time.Time, p *plan) {
	for _, o := range m.observed.Seen.View.Overrides {
		if since, known := m.state.Overridden[o.UID]; known && now.Sub(since) >= overridesLast {
			p.TakeBack = append(p.TakeBack, o)
			m.state.Overridden[o.UID] = now
		}
	}
}

// tookOverrides takes in what became of it.
func (m *mind) tookOverrides(now time.Time, p *plan, a activities.Attempt[struct{}]) {
	if !a.Done() {
		return
	}
	for _, o := range p.TakeBack {
		delete(m.state.Overridden, o.UID)
		m.news = append(m.news, activities.Event{
			Reason: "OverrideTakenBack", Message: fmt.Sprintf("%s (pod %s) waits for its turn again: it was let go "+
				"out of turn, and nobody has deleted it within %s", o.Daemon, o.Pod, overridesLast), At: now,
		})
	}
}

// overridesEnd is when the next one is to be taken back; zero: there is none.
func (m *mind) overridesEnd() (at time.Time) {
	for _, o := range m.observed.Seen.View.Overrides {
		since, known := m.state.Overridden[o.UID]
		if end := since.Add(overridesLast); known && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at
}

// takenBack is what a plan takes back, in words.
func takenBack(all []storage.Override) string {
	return fmt.Sprintf("%s waits for its turn again", all[0].Daemon)
}
