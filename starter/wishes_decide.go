package starter

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// WishSnapshot is what is known of the pods of one policy that somebody wants gone.
type WishSnapshot struct {
	WishRules
	// Wishes by the pod's UID.
	Wishes map[types.UID]SeenWish
}

// WishRules is what their policy says of when such pods go.
type WishRules struct {
	Mode v1alpha1.RestartMode
	// Windows are the times in which they may go, in some form; "": always.
	Windows string
	// Open is the failure domain that is open for somebody else than the restart of what waits.
	Open string
}

// SeenWish is a wish, and whether it counts.
type SeenWish struct {
	Daemon  string
	Newer   bool
	Since   time.Time // it was seen first
	Refused bool      // its controller says that it was refused
}

// unrefusedFor is how long a wish lasts before it counts if no controller says that it was refused: a deletion that
// nobody refuses, as where no guard is installed, takes less.
const unrefusedFor = 200 * time.Millisecond

// TakeWishes makes a snapshot of wishes as they are now. before remembers since when they are known.
func TakeWishes(
	rules WishRules, wishes []kube.StorageWish, before *WishSnapshot, now time.Time,
) WishSnapshot {
	s := WishSnapshot{WishRules: rules, Wishes: make(map[types.UID]SeenWish, len(wishes))}
	for _, w := range wishes {
		seen := SeenWish{Daemon: w.Daemon, Newer: w.Newer, Since: now, Refused: !w.Since.IsZero()}
		if before != nil {
			if was, known := before.Wishes[w.UID]; known {
				seen.Since, seen.Refused = was.Since, seen.Refused || was.Refused
			}
		}
		s.Wishes[w.UID] = seen
	}
	return s
}

func (w SeenWish) counts(now time.Time) bool { return w.Refused || now.Sub(w.Since) >= unrefusedFor }

// counting leaves out the wishes that may not last.
func (s WishSnapshot) counting(now time.Time) WishSnapshot {
	out := WishSnapshot{WishRules: s.WishRules, Wishes: map[types.UID]SeenWish{}}
	for uid, w := range s.Wishes {
		if w.counts(now) {
			out.Wishes[uid] = w
		}
	}
	return out
}

// lookAgain is when the first wish that does not count yet will; 0: there is none.
func (s WishSnapshot) lookAgain(now time.Time) (d time.Duration) {
	for _, w := range s.Wishes {
		if left := unrefusedFor - now.Sub(w.Since); !w.counts(now) && (d == 0 || left < d) {
			d = max(left, time.Millisecond)
		}
	}
	return d
}

// WishNews is what the restart of what waits has to hear. No reason: nothing.
type WishNews struct {
	Reason string
	// Start: it is started if it does not run.
	Start bool
}

// DecideWishes compares what counts now with what was told last; nil: nothing was told yet. gone tells of a pod whether
// it has gone: then the job knows by itself, mostly since it let the pod go. What is new starts the job, unless the
// policy only wants to see it; what was taken back, other windows, and a failure domain that is open anyway, only a job
// that runs has to hear of. So a job that a person aborted does not come back while all remains as it is.
func DecideWishes(told *WishSnapshot, now WishSnapshot, gone func(types.UID) bool) WishNews {
	if told == nil {
		told = &WishSnapshot{WishRules: WishRules{Mode: now.Mode, Windows: now.Windows}}
	}
	var added, ended []string
	for uid, w := range now.Wishes {
		if was, known := told.Wishes[uid]; !known || was.Newer != w.Newer {
			added = append(added, w.Daemon)
		}
	}
	for uid, w := range told.Wishes {
		if _, still := now.Wishes[uid]; !still && !gone(uid) {
			ended = append(ended, w.Daemon)
		}
	}
	slices.SortFunc(added, kube.CompareDaemons)
	slices.SortFunc(ended, kube.CompareDaemons)
	starts := now.Mode != v1alpha1.RestartsObserve
	switch {
	case len(added) > 0:
		return WishNews{Reason: firstOf(added) + " is to go", Start: starts}
	case now.Mode != told.Mode && len(now.Wishes) > 0:
		return WishNews{Reason: fmt.Sprintf("restarts is %s now", now.Mode), Start: starts}
	case len(ended) > 0:
		return WishNews{Reason: firstOf(ended) + " is not to go any more"}
	case len(now.Wishes) == 0 && len(told.Wishes) > 0:
		return WishNews{Reason: "nothing waits any more"}
	case now.Windows != told.Windows && len(now.Wishes) > 0:
		return WishNews{Reason: "the windows are others now"}
	case now.Open != "" && now.Open != told.Open && len(now.Wishes) > 0:
		return WishNews{Reason: now.Open + " is open"}
	}
	return WishNews{}
}
