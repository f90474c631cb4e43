package leaving

import (
	"fmt"
	"time"
)

// Sight is a node as it was seen.
type Sight struct {
	Found bool   `json:"found,omitempty"`
	UID   string `json:"uid,omitempty"`
	Signs
}

// Outcome is what has become of a node that was leaving.
type Outcome string

// The outcomes.
const (
	StillLeaving Outcome = ""
	Went         Outcome = "Gone"    // its object is deleted, or is that of another node by now
	Stayed       Outcome = "Stayed"  // nothing announces any more that it leaves
	Forgotten    Outcome = "Expired" // only a taint that is too old to count does
)

// Judge says what has become of the node with this UID. A node that was registered again under the same name is another
// one. uid "" stands for whichever there is.
func (s Sight) Judge(uid string, now time.Time, expiry time.Duration) Outcome {
	switch {
	case !s.Found || uid != "" && s.UID != uid:
		return Went
	case s.How(now, expiry) != Not:
		return StillLeaving
	case s.Expired(now, expiry):
		return Forgotten
	default:
		return Stayed
	}
}

// Karpenter's deadline is told at these times before it.
const (
	warnEarly = time.Hour
	warnLate  = 10 * time.Minute
)

// Warning says that no budget holds the node back any more from a deadline on, from an hour before; ten minutes before
// the words are others, so that who was told is told again. "": it is too early, or there is no deadline. The words
// depend on nothing but which of the times has passed.
func (s Sight) Warning(now time.Time) string {
	at, ok := s.Deadline()
	when := at.UTC().Format(time.RFC3339)
	switch {
	case !s.Found || !ok || now.Before(at.Add(-warnEarly)):
		return ""
	case now.Before(at.Add(-warnLate)):
		return fmt.Sprintf("Karpenter removes the node at %s (its terminationGracePeriod), whatever its budgets say", when)
	case now.Before(at):
		return fmt.Sprintf("in less than ten minutes, at %s, Karpenter removes the node, whatever its budgets say: what "+
			"only this node has is lost then", when)
	default:
		return fmt.Sprintf("since %s Karpenter passes over the node's budgets: its terminationGracePeriod is over", when)
	}
}

// Next is when Judge or Warning may say something else although nothing happens; zero: never.
func (s Sight) Next(now time.Time, expiry time.Duration) (next time.Time) {
	var times []time.Time
	if at, ok := s.Expires(expiry); ok {
		times = append(times, at)
	}
	if at, ok := s.Deadline(); ok {
		times = append(times, at.Add(-warnEarly), at.Add(-warnLate), at)
	}
	for _, at := range times {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
