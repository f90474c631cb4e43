package workflows_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// notDoneOf has no attempt of these activities do anything, and all others as they should.
func (s *scene) notDoneOf(names ...string) {
	s.update(func() {
		s.fault = func(_ int, info activity.Info) fault {
			if slices.Contains(names, info.ActivityType.Name) {
				return notDone
			}
			return noFault
		}
	})
}

// TestNothingWasDecidedYet: a keeper that has just begun takes a look, in which something happens, and the next one
// fails. The API server takes no status that leaves out since when it has been so.
func TestNothingWasDecidedYet(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{Latency: func() time.Duration { return 20 * time.Millisecond }}, func(s *scene) {
		s.settle()
		keeper, looks := workflows.KeeperID(sim.Key), 0
		s.update(func() {
			s.fault = func(_ int, info activity.Info) fault {
				if info.ActivityType.Name != "ObserveStorage" {
					return noFault
				}
				if looks++; looks > 1 {
					return notDone
				}
				go s.signal(keeper, workflows.SignalStorageChanged, workflows.Hint{Reason: "something happened"})
				return noFault
			}
		})
		s.killKeeper()
		closed := func() bool { return strings.Contains(s.Status().Message, "nothing opens before a look") }
		require.True(s, s.Await(2*time.Minute, closed), "%+v", s.Status())
		s.notDoneOf()
		rest := func() bool { return s.Status().MayDrain == "any node" }
		require.True(s, s.Await(time.Minute, rest), "%+v", s.Status())
	})
}

// TestAStatusThatCannotBeWritten: the keeper does not wait for it, but goes on looking, and grants what it can note.
func TestAStatusThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.notDoneOf("ReportStatus", "CarryOut")
		s.PersonCordons("node-c", true) // which the status is to tell
		time.Sleep(5 * time.Second)
		s.notDoneOf("ReportStatus")
		s.drain(ofThis("node-a"))
		time.Sleep(30 * time.Second)
		var looks atomic.Int32
		s.update(func() {
			s.onAttempt = func(_ int, info activity.Info) {
				if info.ActivityType.Name == "ObserveStorage" {
					looks.Add(1)
				}
			}
		})
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "something changed"})
		time.Sleep(30 * time.Second)
		require.Positive(s, looks.Load(), "nobody looks")
		s.update(func() { s.onAttempt = nil })
		s.notDoneOf()
		s.PersonCordons("node-c", false)
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		s.tellDrain("node-a", "done")
		s.awaitNothingLeft(time.Minute)
	})
}
