package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// The phases of a drain, as its status tells them.
const (
	acquiringLease = "AcquiringLease"
	evicting       = "Evicting"
	awaitingNode   = "AwaitingNode"
	healing        = "Healing"
)

func drainOf(node string) workflows.DrainNodeInput { return workflows.DrainNodeInput{Node: node} }

func TestDrain(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(*scene){
		"a person uncordons": func(s *scene) {
			s.Reboot("node-a")
			time.Sleep(5 * time.Second)
			s.PersonCordons("node-a", false)
		},
		"a person says that it is done": func(s *scene) { s.tellDrain("node-a", jobs.SignalDone) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
				s.startKeeper()
				s.awaitBudget("at rest, 11 must stay", time.Minute)
				run := s.drain(drainOf("node-a"))
				s.awaitPhase("node-a", awaitingNode, 30*time.Second)
				require.True(s, s.Evicted("node-a"))
				require.True(s, s.Cordoned("node-a"))
				require.Equal(s, "lockkeeper", s.Noout("node-a"))
				require.Equal(s, only("x"), s.Budget())
				time.Sleep(10 * time.Minute)
				require.Equal(s, only("x"), s.Budget(), "it stays closed elsewhere for as long as it takes")
				back(s)
				e := s.awaitEnd("node-a", run, 2*time.Minute)
				require.NoError(s, e.err)
				require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
				require.Equal(s, 3, e.result.Evicted, "two OSDs and a mon")
				require.True(s, s.Clean())
				s.awaitNothingLeft(0)
			})
		})
	}
}

func TestDrainUncordonsAfterReboot(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(workflows.DrainNodeInput{Node: "node-a", UncordonAfterReboot: true})
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.Reboot("node-a")
		e := s.awaitEnd("node-a", run, time.Minute)
		require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
		s.awaitNothingLeft(0)
	})
}

func TestDrainOfANodeThatIsDeleted(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		s.DeleteNode("node-d")
		e := s.awaitEnd("node-d", run, 5*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.result.Outcome)
		require.True(s, s.Clean(), "the data is whole without the node")
		s.awaitNothingLeft(time.Minute)
	})
}

func TestDrainLeavesThePersonsCordonAlone(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.PersonCordons("node-a", true)
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.tellDrain("node-a", jobs.SignalAbort)
		require.Equal(s, workflows.OutcomeAborted, s.awaitEnd("node-a", run, time.Minute).result.Outcome)
		require.True(s, s.Cordoned("node-a"), "it was the person's")
		require.True(s, s.Await(30*time.Second, func() bool { return s.Noout("node-a") == "" }))
	})
}

func TestDrainLeavesThePersonsNooutAlone(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.PersonSetsNoout("node-a", true)
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.tellDrain("node-a", jobs.SignalDone)
		s.awaitEnd("node-a", run, 2*time.Minute)
		require.Equal(s, "a person", s.Noout("node-a"))
	})
}

func TestInvalidDrains(t *testing.T) {
	t.Parallel()
	seconds := -1
	for name, in := range map[string]workflows.DrainNodeInput{
		"no node":        {},
		"unknown node":   drainOf("nobody"),
		"unknown policy": {Node: "node-a", Policy: "rook-ceph/other"},
		"half a policy":  {Node: "node-a", Policy: "rook-ceph"},
		"grace period":   {Node: "node-a", Eviction: activities.EvictionOptions{GracePeriodSeconds: &seconds}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				run := s.start("drain/under-test", jobs.DrainNode.Type, in)
				var e ended
				require.True(s, s.until(time.Minute, func() (ok bool) { e, ok = s.ended["drain/under-test@"+run]; return ok }))
				var invalid *temporal.ApplicationError
				require.ErrorAs(s, e.err, &invalid)
				require.Equal(s, activities.InvalidInput, invalid.Type(), invalid)
				require.Empty(s, s.Leftovers(), "nothing is changed")
			})
		})
	}
}

// TestDrainFromOutside: kubectl drains, the watcher starts a drain that observes.
func TestDrainFromOutside(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		done := s.KubectlDrain("node-a")
		s.awaitPhase("node-a", awaitingNode, 10*time.Second)
		require.NoError(s, <-done)
		require.True(s, s.drainStatus("node-a").Observe)
		require.Equal(s, "lockkeeper", s.Noout("node-a"), "an outside drain has the same protection")
		s.Reboot("node-a")
		time.Sleep(10 * time.Second)
		s.PersonCordons("node-a", false)
		require.True(s, s.Await(time.Minute, func() bool { return !s.runs(jobs.DrainNode.ID("node-a")) }))
		s.awaitBudget("at rest, 11 must stay", 0)
		s.awaitNothingLeft(0)
	})
}

// TestUpgrade drains, reboots and uncordons all nodes, one after the other or all at once (rook/rook 14730).
func TestUpgrade(t *testing.T) {
	t.Parallel()
	upgrade := func(s *scene, node string) bool {
		select {
		case err := <-s.KubectlDrain(node):
			require.NoError(s, err)
		case <-time.After(time.Hour):
			s.Errorf("softlock: kubectl drain %s has not ended in an hour", node)
			return false
		}
		s.Reboot(node)
		time.Sleep(10 * time.Second)
		s.PersonCordons(node, false)
		return true
	}
	t.Run("one after the other, waiting for nothing", func(t *testing.T) {
		play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
			s.startKeeper()
			s.awaitBudget("at rest, 11 must stay", time.Minute)
			for _, node := range s.Nodes() {
				if !upgrade(s, node) {
					return
				}
			}
			s.awaitNothingLeft(2 * time.Minute)
		})
	})
	t.Run("all at once", func(t *testing.T) {
		play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
			s.startKeeper()
			s.awaitBudget("at rest, 11 must stay", time.Minute)
			done := make(chan struct{})
			for _, node := range s.Nodes() {
				go func() {
					upgrade(s, node)
					done <- struct{}{}
				}()
			}
			for range s.Nodes() {
				<-done
			}
			s.awaitNothingLeft(2 * time.Minute)
		})
	})
}

func TestTwoDrainsOfTwoZonesQueue(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		first := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		second := s.drain(drainOf("node-b"))
		s.awaitPhase("node-b", acquiringLease, 10*time.Second)
		time.Sleep(time.Minute)
		require.Contains(s, s.drainStatus("node-b").WaitsFor, "drain/node-a holds zone zone-x")
		require.False(s, s.Evicted("node-b"))
		require.False(s, s.Cordoned("node-b"))
		s.tellDrain("node-a", jobs.SignalDone)
		s.awaitEnd("node-a", first, 2*time.Minute)
		s.awaitPhase("node-b", awaitingNode, 30*time.Second)
		require.Equal(s, only("y"), s.Budget())
		s.tellDrain("node-b", jobs.SignalDone)
		s.awaitEnd("node-b", second, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}

func TestTwoDrainsOfOneZoneShareIt(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		first, second := s.drain(drainOf("node-a")), s.drain(drainOf("node-d"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		require.Len(s, s.Memory().Lease.Holders, 2)
		s.tellDrain("node-a", jobs.SignalDone)
		s.tellDrain("node-d", jobs.SignalDone)
		s.awaitEnd("node-a", first, 2*time.Minute)
		s.awaitEnd("node-d", second, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		first := s.drain(drainOf("node-b"))
		s.awaitPhase("node-b", awaitingNode, 30*time.Second)
		second := s.drain(drainOf("node-a"))
		s.tellDrain("node-a", jobs.SignalPause)
		s.tellDrain("node-b", jobs.SignalDone)
		s.awaitEnd("node-b", first, 2*time.Minute)
		time.Sleep(10 * time.Minute)
		require.False(s, s.Cordoned("node-a"), "paused before it began")
		require.Equal(s, only("x"), s.Budget(), "it holds the lease all the same")
		s.tellDrain("node-a", jobs.SignalResume)
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.tellDrain("node-a", jobs.SignalPause)
		s.Await(time.Minute, func() bool { return s.drainStatus("node-a").Paused })
		s.PersonCordons("node-a", false)
		time.Sleep(time.Minute)
		require.True(s, s.runs(jobs.DrainNode.ID("node-a")), "paused before the end")
		s.tellDrain("node-a", jobs.SignalResume)
		s.awaitEnd("node-a", second, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}

// TestPauseWhileEvicting stops between two pods.
func TestPauseWhileEvicting(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		s.Foreign(true) // somebody's budget over all OSDs: no eviction succeeds
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", evicting, 30*time.Second)
		s.tellDrain("node-a", jobs.SignalPause)
		time.Sleep(time.Minute)
		s.Foreign(false)
		time.Sleep(10 * time.Minute)
		require.False(s, s.Evicted("node-a"))
		s.tellDrain("node-a", jobs.SignalResume)
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		s.tellDrain("node-a", jobs.SignalDone)
		s.awaitEnd("node-a", run, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}

// TestBackBeforeCephKnows: the leading mon goes together with an OSD, so that the OSD map stands still while the mons
// elect. An OSD that is back meanwhile is up in the map, in its former life, and its data is not whole.
func TestBackBeforeCephKnows(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-a"))
		s.Await(time.Minute, func() bool { return s.Evicted("node-a") })
		s.tellDrain("node-a", jobs.SignalAbort)
		s.awaitEnd("node-a", run, time.Minute)
		s.awaitNothingLeft(2 * time.Minute)
		require.True(s, s.Clean())
	})
}

// drainStuckIn begins a drain of node-d and has it wait in a phase.
func (s *scene) drainStuckIn(phase string) string {
	s.settle()
	switch phase {
	case acquiringLease:
		s.KillOSD(5)
		s.awaitBudget(only("z"), 5*time.Second)
		s.StopManager(true)
	case evicting:
		s.Foreign(true)
	}
	run := s.drain(drainOf("node-d"))
	if phase == healing {
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		s.StopManager(true)
		s.tellDrain("node-d", jobs.SignalDone)
	}
	s.awaitPhase("node-d", phase, 30*time.Second)
	time.Sleep(5 * time.Second)
	return run
}

// TestAbort in every phase, and whatever was changed is changed back.
func TestAbort(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{acquiringLease, evicting, awaitingNode, healing} {
		t.Run(phase, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				run := s.drainStuckIn(phase)
				s.tellDrain("node-d", jobs.SignalAbort)
				e := s.awaitEnd("node-d", run, time.Minute)
				require.NoError(s, e.err)
				require.Equal(s, workflows.OutcomeAborted, e.result.Outcome)
				require.False(s, s.Cordoned("node-d"))
				s.Foreign(false)
				s.StopManager(false)
				s.awaitNothingLeft(2 * time.Minute)
			})
		})
	}
}

// TestNooutExpires: the node (one without a mon) stays away for longer than osdMaintenanceTimeout; its data heals
// elsewhere, and nobody is held back any more. When it comes back all the same, the drain ends well.
func TestNooutExpires(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		time.Sleep(29 * time.Minute)
		require.Equal(s, "lockkeeper", s.Noout("node-d"))
		time.Sleep(2 * time.Minute)
		require.Empty(s, s.Noout("node-d"))
		s.awaitBudget("at rest, 4 must stay", 5*time.Minute)
		require.True(s, s.runs(jobs.DrainNode.ID("node-d")), "it still waits for its node")
		require.Empty(s, s.Memory().Lease.Holders)
		other := s.drain(drainOf("node-e")) // no mon there: node-d's is away
		s.awaitPhase("node-e", awaitingNode, 30*time.Second)
		s.tellDrain("node-e", jobs.SignalDone)
		s.awaitEnd("node-e", other, 2*time.Minute)
		s.tellDrain("node-d", jobs.SignalDone)
		require.Equal(s, workflows.OutcomeDone, s.awaitEnd("node-d", run, 2*time.Minute).result.Outcome)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestDrainTerminated: a holder that ends in any way loses the lease by itself. Its cordon stays: nobody is left who
// knows.
func TestDrainTerminated(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.kill(jobs.DrainNode.ID("node-a"))
		require.True(s, s.Await(10*time.Second,
			func() bool { return len(s.Memory().Lease.Holders) == 0 && s.Noout("node-a") == "" }), "%v", s.Leftovers())
		s.awaitBudget(only("x"), 10*time.Second) // its OSDs are still down
		s.PersonCordons("node-a", false)
		s.awaitBudget(atRest, time.Minute)
	})
}

// TestSilentMons: a node fails and takes the quorum with it, so nobody could report its OSD. When the mons are back
// their map still calls it up, and the zone that is open must not lose more until it is known better.
func TestSilentMons(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.drain(drainOf("node-a")) // mon.a with it
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		time.Sleep(10 * time.Second) // the mons that stay have elected
		s.Reboot("node-b")           // osd.1 and mon.b
		time.Sleep(1010 * time.Millisecond)
		s.PersonCordons("node-a", false) // so that there is a quorum some time before anybody reports osd.1
		s.awaitBudget("closed", 3*time.Second)
		for range 1000 {
			s.EvictAny("osd.3") // of the same zone as node-a
			time.Sleep(5 * time.Millisecond)
		}
		s.tellDrain("node-a", jobs.SignalDone)
		s.awaitBudget(atRest, time.Minute)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestCopiesMovedByHand: one PG has two copies in zone x, against its rule, and all is clean. When the OSD with one of
// them is evicted at rest, that with the other must stay, though nothing but zone x was touched since the data was
// whole.
func TestCopiesMovedByHand(t *testing.T) {
	t.Parallel()
	moved := func(s *scene) {
		s.settle()
		s.MoveCopy(0, 2, 3)
		time.Sleep(10 * time.Second)
		s.awaitBudget(atRest, 30*time.Second)
	}
	t.Run("cordoned", func(t *testing.T) {
		play(t, sim.Options{}, func(s *scene) {
			moved(s)
			s.PersonCordons("node-a", true)
			time.Sleep(5 * time.Second)
			require.Equal(s, atRest, s.Budget(), "Ceph says no to all of the zone at once")
			require.True(s, s.EvictAny("osd.0"), "one may go at rest")
			for range 4000 {
				s.EvictAny("osd.3") // of the same zone
				time.Sleep(5 * time.Millisecond)
			}
			require.Equal(s, "closed", s.Budget())
			require.Equal(s, budget.ReasonRefusedByStorage, s.keeperStatus().Decision.Reason)
			s.PersonCordons("node-a", false)
			s.awaitBudget(atRest, time.Minute)
			s.awaitNothingLeft(time.Minute)
		})
	})
	// osd.0 is back a moment after its pod has ended, and what opens is decided in between, or just before or after.
	for grace := 100 * time.Millisecond; grace < time.Second; grace += 200 * time.Millisecond {
		t.Run("of a node in service, within "+grace.String(), func(t *testing.T) {
			t.Parallel()
			slow := func() time.Duration { return 20 * time.Millisecond }
			play(t, sim.Options{Latency: slow, Grace: grace}, func(s *scene) {
				moved(s)
				require.True(s, s.EvictAny("osd.0"))
				for range 2000 {
					if s.EvictAny("osd.3") {
						break // osd.0 is back, and the data whole
					}
					time.Sleep(5 * time.Millisecond)
				}
				s.awaitBudget(atRest, time.Minute)
			})
		})
	}
}

// TestCopiesThatMayMeet: a rule of two blocks may put two copies into one zone, which the pool does not bear.
func TestCopiesThatMayMeet(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{Hybrid: true}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("closed", 10*time.Second)
		s.PersonCordons("node-a", true)
		for range 2000 {
			if s.EvictAny("osd.0") {
				s.Errorf("osd.0 goes, though its zone may hold two copies of the same data")
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		require.Equal(s, "closed", s.Budget())
		d := s.keeperStatus().Decision
		require.Equal(s, budget.ReasonIntolerant, d.Reason)
		require.Equal(s, `pool "hybrid" (size 3, min_size 2) would become unavailable with any zone, which may hold 2 copies of the same data`, d.Message)
	})
}

// TestPolicyDeletedInMidDrain: nothing is guarded any more, and nothing of ours is left.
func TestPolicyDeletedInMidDrain(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{acquiringLease, evicting, awaitingNode, healing} {
		t.Run(phase, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				run := s.drainStuckIn(phase)
				s.DeletePolicy()
				if phase == awaitingNode {
					time.Sleep(time.Minute)
					require.True(s, s.Cordoned("node-d"), "somebody works on it")
					require.Empty(s, s.Noout("node-d"))
					require.Contains(s, s.drainStatus("node-d").WaitsFor, "nothing guards its storage")
					s.tellDrain("node-d", jobs.SignalDone)
				}
				e := s.awaitEnd("node-d", run, 10*time.Minute)
				s.Tell("the drain ended: %+v", e)
				require.False(s, s.Cordoned("node-d"))
				require.Empty(s, s.Noout("node-d"))
				require.Equal(s, "none", s.Budget())
				if phase == healing || phase == awaitingNode {
					require.NoError(s, e.err)
					require.Equal(s, workflows.OutcomeRevoked, e.result.Outcome)
				}
			})
		})
	}
}

// TestKeeperTerminatedInMidDrain: the next keeper takes up lease and noout, and the drain does not notice.
func TestKeeperTerminatedInMidDrain(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{acquiringLease, awaitingNode, healing} {
		t.Run(phase, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				run := s.drainStuckIn(phase)
				s.killKeeper()
				time.Sleep(time.Minute)
				s.startKeeper()
				time.Sleep(time.Minute)
				if phase == awaitingNode {
					require.Equal(s, only("x"), s.Budget())
					require.Equal(s, "lockkeeper", s.Noout("node-d"))
				}
				s.StopManager(false)
				if phase != healing {
					s.awaitPhase("node-d", awaitingNode, 5*time.Minute)
					s.tellDrain("node-d", jobs.SignalDone)
				}
				require.Equal(s, workflows.OutcomeDone, s.awaitEnd("node-d", run, 10*time.Minute).result.Outcome)
				s.awaitNothingLeft(time.Minute)
			})
		})
	}
}
