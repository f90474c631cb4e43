package workflows_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// records are the hosts of the noout flags that the policy's status speaks of.
func (s *scene) records() (hosts []string) {
	for _, n := range s.Status().Noout {
		hosts = append(hosts, n.Host)
	}
	return hosts
}

// told tells whether the story has an event of this reason.
func (s *scene) told(reason string) bool {
	return slices.ContainsFunc(s.Story(), func(line string) bool { return strings.Contains(line, "event "+reason) })
}

// TestHostOfOurNooutIsRemoved: Ceph refuses every command about a host that it no longer knows. The keeper goes on all
// the same: the flag of the other host goes, the drains end, and the status says what is.
func TestHostOfOurNooutIsRemoved(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		first := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		second := s.drain(drainOf("node-a")) // of the same zone
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.ReplaceHost("node-d")
		require.True(s, s.Await(10*time.Second, func() bool { return s.Noout("node-d") == "lockkeeper" }),
			"the drain goes on, and its OSDs are on another host now")
		require.True(s, s.Await(10*time.Second, func() bool { return !slices.Contains(s.records(), "node-d") }))
		require.True(s, s.told("NooutGone"))
		s.tellDrain("node-a", jobs.SignalAbort)
		s.awaitEnd("node-a", second, time.Minute)
		require.True(s, s.Await(10*time.Second, func() bool { return s.Noout("node-a") == "" }))
		s.ReplaceHost("node-d")
		s.tellDrain("node-d", jobs.SignalAbort)
		s.awaitEnd("node-d", first, time.Minute)
		s.awaitNothingLeft(time.Minute)
		require.Empty(s, s.keeperStatus().Trouble)
	})
}

// TestHostIsRemovedBeforeItsNooutIsUnset: it goes between the look and the command, at each of which it was right.
func TestHostIsRemovedBeforeItsNooutIsUnset(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		command string
		change  func(*sim.World, string)
	}{
		{"removed", "ceph osd unset-group", (*sim.World).ReplaceHost},
		{"renamed", "ceph osd unset-group", (*sim.World).RenameHost},
		{"removed before it is set", "ceph osd set-group", (*sim.World).ReplaceHost},
		{"renamed before it is set", "ceph osd set-group", (*sim.World).RenameHost},
	} {
		t.Run(c.what, func(t *testing.T) {
			var change func()
			opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
				if op == c.command && change != nil {
					do := change
					change = nil
					do()
				}
				return sim.Failure{}
			}}
			play(t, opts, func(s *scene) {
				s.settle()
				change = func() { c.change(s.World, "node-d") }
				run := s.drain(drainOf("node-d"))
				s.awaitPhase("node-d", awaitingNode, 30*time.Second)
				s.tellDrain("node-d", jobs.SignalDone)
				s.awaitEnd("node-d", run, 2*time.Minute)
				s.awaitNothingLeft(10 * time.Second)
				require.Empty(s, s.Noout("node-d"))
			})
		})
	}
}

// TestHostOfOurNooutIsRenamed: the flag goes along under the new name, and it is still the drain's.
func TestHostOfOurNooutIsRenamed(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		s.RenameHost("node-d")
		require.True(s, s.Await(10*time.Second, func() bool { return slices.Equal(s.records(), []string{"new-node-d"}) }))
		require.Equal(s, "drain/node-d", s.Status().Noout[0].Owner)
		s.killKeeper()
		s.KillOSD(1) // the watcher starts another one, which knows only what the status says
		s.RenameHost("node-d")
		require.True(s, s.Await(time.Minute, func() bool { return slices.Equal(s.records(), []string{"node-d"}) }))
		require.Equal(s, "lockkeeper", s.Noout("node-d"))
		s.tellDrain("node-d", jobs.SignalDone)
		s.awaitEnd("node-d", run, 2*time.Minute)
		s.awaitNothingLeft(10 * time.Second)
	})
}

// TestHostIsRenamedBeforeItsNooutIsUnset: two hosts are named in one command, and one of them has another name by the
// time that Ceph reads it. Ceph passes over what it does not know.
func TestHostIsRenamedBeforeItsNooutIsUnset(t *testing.T) {
	t.Parallel()
	var (
		world *scene
		armed atomic.Bool
	)
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op == "ceph osd unset-group" && armed.CompareAndSwap(true, false) {
			world.RenameHost("node-a")
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		world = s
		for _, node := range []string{"node-a", "node-d"} {
			s.drain(drainOf(node))
			s.awaitPhase(node, awaitingNode, time.Minute)
		}
		armed.Store(true)
		s.DeletePolicy()
		require.True(s, s.keeperEnds(time.Minute))
		require.False(s, armed.Load(), "both were to be unset")
		require.Empty(s, s.Noout("node-a"))
		require.Empty(s, s.Noout("node-d"))
	})
}

// TestNooutThatLandsLate: a set got no answer, the drain is aborted and its noout unset, and then the set is carried
// out.
func TestNooutThatLandsLate(t *testing.T) {
	t.Parallel()
	sets := 0
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op != "ceph osd set-group" {
			return sim.Failure{}
		}
		if sets++; sets == 1 {
			return sim.Failure{Err: errLost, Done: true, Late: 25 * time.Second}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", awaitingNode, 20*time.Second)
		s.tellDrain("node-d", jobs.SignalAbort)
		s.awaitEnd("node-d", run, 20*time.Second)
		require.True(s, s.Await(5*time.Second, func() bool { return s.Noout("node-d") == "" }))
		require.True(s, s.Await(30*time.Second, func() bool { return s.Noout("node-d") != "" }), "it lands")
		require.True(s, s.Await(5*time.Second, func() bool { return s.Noout("node-d") == "" }), "it is found and taken back")
		require.True(s, s.told("NooutLate"))
		require.True(s, s.Await(2*time.Minute, func() bool { return len(s.Status().Noout) == 0 }), "its record is forgotten")
		s.PersonSetsNoout("node-d", true)
		time.Sleep(time.Minute)
		require.Equal(s, "a person", s.Noout("node-d"), "what comes later is a person's")
		s.PersonSetsNoout("node-d", false)
	})
}

// TestNooutOfAJobThatLeft: a drain is aborted while its grant is being written down, and another one asks, so that the
// keeper hears of both at once. The flag that nobody wants any more goes before anything opens.
func TestNooutOfAJobThatLeft(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op == "report status" && slow.Load() {
			time.Sleep(4 * time.Second)
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		slow.Store(true)
		run := s.drain(drainOf("node-d"))
		time.Sleep(2 * time.Second)
		s.tellDrain("node-d", jobs.SignalAbort)
		s.awaitEnd("node-d", run, 2*time.Second)
		slow.Store(false)
		other := s.drain(drainOf("node-b"))
		s.awaitPhase("node-b", awaitingNode, time.Minute)
		story := strings.Join(s.Story(), "\n")
		unset := strings.Index(story, "unsets noout on node-d")
		require.Positive(s, unset, "the drain has ended")
		require.NotContains(s, story[:unset], "is open\n", "for a drain that has ended")
		require.NotContains(s, s.records(), "node-d")
		s.tellDrain("node-b", jobs.SignalAbort)
		s.awaitEnd("node-b", other, time.Minute)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestNooutOfAnAdministratorStays: it was there before the drain, and is there after it.
func TestNooutOfAnAdministratorStays(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.PersonSetsNoout("node-d", true)
		theirs := s.Noout("node-d")
		run := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		require.Empty(s, s.records())
		s.tellDrain("node-d", jobs.SignalDone)
		s.awaitEnd("node-d", run, 2*time.Minute)
		require.Equal(s, theirs, s.Noout("node-d"))
	})
}

// TestNooutOfAPersonInTheSameSeconds: Ceph has one flag and no owner for it. It is taken for lockkeeper's, and the
// person is told.
func TestNooutOfAPersonInTheSameSeconds(t *testing.T) {
	t.Parallel()
	answers := false
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op == "ceph osd set-group" && !answers {
			return sim.Failure{Err: errLost}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-d"))
		require.True(s, s.Await(20*time.Second, func() bool { return len(s.records()) == 1 }))
		time.Sleep(2 * time.Second) // the keeper has given up, and will look again
		s.PersonSetsNoout("node-d", true)
		answers = true
		s.awaitPhase("node-d", awaitingNode, 60*time.Second)
		require.True(s, s.told("NooutClaimed"))
		s.tellDrain("node-d", jobs.SignalAbort)
		s.awaitEnd("node-d", run, time.Minute)
		s.awaitNothingLeft(time.Minute)
		require.Empty(s, s.Noout("node-d"))
	})
}

// TestSilenceIsSaid: what cannot be set because Ceph does not answer closes the budget, and both the status and the job
// say so.
func TestSilenceIsSaid(t *testing.T) {
	t.Parallel()
	silent := true
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op == "ceph osd set-group" && silent {
			return sim.Failure{Err: errLost}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", acquiringLease, 20*time.Second)
		s.awaitBudget("closed", 10*time.Second)
		other := s.drain(drainOf("node-b"))
		time.Sleep(20 * time.Second)
		require.Equal(s, "closed", s.Budget())
		require.Equal(s, "no", s.Status().MayDrain)
		require.Contains(s, s.Status().Message, "noout could not be set")
		require.Contains(s, s.drainStatus("node-d").WaitsFor, "noout could not be set")
		require.Contains(s, s.drainStatus("node-b").WaitsFor, "drain/node-d", "who waits for the lease hears of it, too")
		silent = false
		s.awaitPhase("node-d", awaitingNode, time.Minute)
		s.tellDrain("node-d", jobs.SignalAbort)
		s.awaitEnd("node-d", run, time.Minute)
		s.tellDrain("node-b", jobs.SignalAbort)
		s.awaitEnd("node-b", other, time.Minute)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestRenamedBeforeAndAfterNooutIsSet: a claim names a CRUSH host as it was called when it came. Noout goes to the host
// as it is called now, and is found again when that changes, too.
func TestRenamedBeforeAndAfterNooutIsSet(t *testing.T) {
	t.Parallel()
	opts := sim.Options{Latency: func() time.Duration { return 200 * time.Millisecond }}
	play(t, opts, func(s *scene) {
		s.settle()
		s.PersonCordons("node-a", true)
		first := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		run := s.drain(drainOf("node-b"))
		s.awaitPhase("node-b", acquiringLease, time.Minute)
		s.RenameHost("node-b")
		s.tellDrain("node-a", jobs.SignalAbort)
		s.awaitEnd("node-a", first, time.Minute)
		s.PersonCordons("node-a", false)
		require.True(s, s.Await(time.Minute, func() bool { return s.Noout("node-b") == "lockkeeper" }))
		s.RenameHost("node-b")
		s.awaitPhase("node-b", awaitingNode, time.Minute)
		s.tellDrain("node-b", jobs.SignalAbort)
		s.awaitEnd("node-b", run, time.Minute)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestRenamedRightAfterNooutIsSet: a flag is found again by its host's ID. A look that was not asked about the host
// does not tell it, so nothing is granted to a claim that comes while the keeper is looking.
func TestRenamedRightAfterNooutIsSet(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	opts := sim.Options{
		Latency: func() time.Duration { return 100 * time.Millisecond },
		Fail: func(_ context.Context, op string) sim.Failure {
			if op == "list nodes" && slow.CompareAndSwap(true, false) {
				time.Sleep(2 * time.Second)
			}
			return sim.Failure{}
		},
	}
	play(t, opts, func(s *scene) {
		s.settle()
		s.PersonCordons("node-a", true)
		s.awaitBudget(only("x"), time.Minute) // so that nothing has to be proved before the grant
		slow.Store(true)
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "a test"})
		time.Sleep(time.Second)
		require.False(s, slow.Load(), "the keeper does not look")
		run := s.drain(drainOf("node-d"))
		require.True(s, s.Await(time.Minute, func() bool { return s.Noout("node-d") == "lockkeeper" }))
		s.RenameHost("node-d")
		s.awaitPhase("node-d", awaitingNode, time.Minute)
		s.tellDrain("node-d", jobs.SignalAbort)
		s.awaitEnd("node-d", run, time.Minute)
		s.PersonCordons("node-a", false)
		s.awaitNothingLeft(time.Minute)
	})
}
