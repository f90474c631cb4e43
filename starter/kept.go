package starter

import (
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file decides when a policy's status is said to be kept by nobody, and when its keeper is asked to write it anew.
// It is pure: the Auditor asks and acts.

// A status is disowned when its keeper has not said for notKeptFor that it keeps it, which takes longer than a worker
// that is replaced by another one is away. The keeper is asked every askEvery.
const (
	askEvery   = 5 * time.Second
	notKeptFor = 15 * time.Second
)

// A keeper that is back is asked to write its status; again after a while if it does not, more and more seldom.
const (
	recallEvery    = 10 * time.Second
	recallEveryMax = 5 * time.Minute
)

// Keeping is what is known of whether a policy's status is kept.
type Keeping struct {
	// Good is when the keeper last said so, and at first when it was asked for the first time. Ever: it did say so.
	Good time.Time
	Ever bool
	// Why is why it is not, by the last answer; "": it is. Stuck: the keeper cannot go on, whatever it is asked.
	Why   string
	Stuck bool
	// Recalled is when it was last asked to write its status, or started anew, and Recalls how often it was in vain.
	Recalled time.Time
	Recalls  int
}

// Heard is what is known after the keeper was asked. asked is when that began: what is true then may not be true when
// the answer comes.
func (k Keeping) Heard(asked time.Time, answer workflows.Kept, err error) Keeping {
	k.Stuck = errors.Is(err, ErrCannotGoOn)
	switch {
	case err != nil:
		k.Why = err.Error()
	case !answer.OK:
		k.Why = answer.Why
	default:
		k.Good, k.Ever, k.Why = asked, true, ""
	}
	if k.Good.IsZero() {
		k.Good = asked
	}
	return k
}

// Remedy is what is to be done about a policy's status.
type Remedy string

// The remedies.
const (
	Leave  Remedy = ""
	Disown Remedy = "say that nobody keeps it"
	Recall Remedy = "have the keeper write it anew"
	// Restart: a keeper knows all that it has to from the policy's status, and closes before it does anything else.
	Restart Remedy = "start the keeper anew"
)

// Remedy for a status that says what it says. Statuses that say already that nobody keeps them are left as they are.
func (k Keeping) Remedy(now time.Time, says v1alpha1.MaintenancePolicyStatus) Remedy {
	disowned := kube.Disowned(says)
	due := now.Sub(k.Recalled) >= min(recallEvery<<min(k.Recalls, 8), recallEveryMax)
	switch {
	case k.Why != "" && !disowned && now.Sub(k.Good) >= notKeptFor:
		return Disown
	case k.Stuck && disowned && due:
		return Restart
	case k.Why == "" && disowned && due:
		return Recall
	default:
		return Leave
	}
}

// Since is since when nobody keeps the status: a watcher that never heard a word goes by the status itself.
func (k Keeping) Since(says v1alpha1.MaintenancePolicyStatus) time.Time {
	if !k.Ever && says.AsOf != nil && says.AsOf.Time.Before(k.Good) {
		return says.AsOf.Time
	}
	return k.Good
}

// Done is what is known after a remedy was tried.
func (k Keeping) Done(now time.Time, r Remedy) Keeping {
	switch r {
	case Recall, Restart:
		k.Recalled = now
		k.Recalls++
	case Disown:
		k.Recalled, k.Recalls = time.Time{}, 0
	case Leave:
	}
	return k
}
