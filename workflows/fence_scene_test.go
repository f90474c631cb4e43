package workflows_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// fenced has the policy name what fences nodes, and waits until all Machines are held.
func (s *scene) fenced() {
	s.Helper()
	s.settle()
	s.SetFencing(true)
	s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "the policy changed"})
	require.True(s, s.Await(time.Minute, func() bool { return s.Status().Fencing != nil && s.Status().Fencing.Held == 6 }),
		"%+v", s.Status().Fencing)
	require.True(s, s.Await(time.Minute, func() bool { return len(s.machines.Held()) == 6 }), s.machines.Held())
}

// fence is the watcher, which starts the fence of a node.
func (s *scene) fence(node string) (run string) {
	id := jobs.FenceNode.ID(node)
	for range 6 { // until its health check is met, if it ever is
		if p, _ := s.machines.Sight(node); !p.Unhealthy.IsZero() || !p.Deleting.IsZero() {
			break
		}
		time.Sleep(time.Second)
	}
	run = s.start(id, jobs.FenceNode.Type, workflows.FenceNodeInput{Node: node})
	go func() { // what it tells of changes
		for s.runs(id) {
			time.Sleep(5 * time.Second)
			s.signal(id, workflows.SignalFenceChanged, "the watcher looks")
		}
	}()
	return run
}

func (s *scene) fenceStatus(node string) (status workflows.FenceStatus) {
	s.query(jobs.FenceNode.ID(node), &status)
	return status
}

func (s *scene) awaitFence(node, run string) ended {
	s.Helper()
	key := jobs.FenceNode.ID(node) + "@" + run
	var e ended
	if !s.until(time.Hour, func() (ok bool) { e, ok = s.ended[key]; return ok }) {
		s.Errorf("the fence of %s has not ended: %+v", node, s.fenceStatus(node))
	}
	return e
}

// heldAgain: nothing of a fence is left, and all Machines are held.
func (s *scene) heldAgain() {
	s.Helper()
	require.True(s, s.Await(10*time.Minute, func() bool {
		f := s.Status().Fencing
		return f != nil && len(f.Nodes) == 0 && f.Held == 6
	}), "%+v", s.Status().Fencing)
	for range 60 {
		if len(s.machines.Held()) == 6 {
			return
		}
		time.Sleep(time.Second)
	}
	s.Errorf("held: %v", s.machines.Held())
}

func TestFenceOfANodeThatDied(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.LosePower("node-d")
		down := func() bool { return s.Status().Storage.Up == "5/6" }
		require.True(s, s.Await(time.Minute, down), "its OSD is down by the map")
		e := s.awaitFence("node-d", s.fence("node-d"))
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.fence.Outcome)
		require.Equal(s, "TakesNothing", e.fence.Released)
		require.Equal(s, 1, s.machines.Fences("node-d"))
		s.heldAgain()
	})
}

// TestFencesByPatientRemediators: with waits as people have them, a node that dies and one that is cut off are fenced,
// one after the other; one that returns before its time is not.
func TestFencesByPatientRemediators(t *testing.T) {
	t.Parallel()
	usual := sim.Waits{Unready: 5 * time.Minute, Looks: 15 * time.Second, Starts: 4 * time.Minute}
	play(t, sim.Options{Remediator: usual}, func(s *scene) {
		s.fenced()
		s.machines.LosePower("node-d")
		s.machines.CutOff("node-e")
		s.machines.CutOff("node-c")
		time.Sleep(usual.Unready - time.Minute)
		s.machines.NetworkReturns("node-c")
		time.Sleep(time.Minute)
		began := time.Now()
		d, e := s.fence("node-d"), s.fence("node-e")
		for node, run := range map[string]string{"node-d": d, "node-e": e} {
			end := s.awaitFence(node, run)
			require.NoError(s, end.err)
			require.Equal(s, workflows.OutcomeDone, end.fence.Outcome)
			require.Equal(s, 1, s.machines.Fences(node))
		}
		require.Less(s, time.Since(began), 4*usual.Starts)
		require.Zero(s, s.machines.Fences("node-c"))
		s.heldAgain()
	})
}

// fencedTwice: a node that fails while its storage heals is fenced once more by the same job. A person has set noout on
// it.
func (s *scene) fencedTwice(node, run string) {
	s.Helper()
	s.machines.LosePower(node)
	twice := func() bool { return s.machines.Fences(node) == 2 }
	require.True(s, s.until(2*time.Minute, twice), "%+v", s.fenceStatus(node))
	e := s.awaitFence(node, run)
	require.NoError(s, e.err)
	require.Equal(s, workflows.OutcomeDone, e.fence.Outcome)
	s.PersonSetsNoout(node, false)
	s.heldAgain()
}

// TestFenceOfANodeThatFailsAgain: it is fenced once more, although the data was not whole in between and would not have
// been without it, as while somebody has set noout. What a person said of what is over counts for nothing.
func TestFenceOfANodeThatFailsAgain(t *testing.T) {
	t.Parallel()
	late := workflows.FenceRelease{By: "ada", Reason: "it hangs"}
	for name, say := range map[string]func(s *scene, id string){
		"done":    func(s *scene, id string) { s.signal(id, jobs.SignalDone, nil) },
		"release": func(s *scene, id string) { s.signal(id, workflows.SignalFenceRelease, late) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, sim.Options{}, func(s *scene) {
				s.fenced()
				s.machines.LosePower("node-d")
				s.PersonSetsNoout("node-d", true)
				down := func() bool { return s.Status().Storage.Up == "5/6" }
				require.True(s, s.Await(time.Minute, down), "its OSD is down by the map")
				run := s.fence("node-d")
				healing := func() bool { return s.fenceStatus("node-d").Phase == workflows.PhaseHeal }
				require.True(s, s.Await(time.Minute, healing), "%+v", s.fenceStatus("node-d"))
				say(s, jobs.FenceNode.ID("node-d"))
				s.fencedTwice("node-d", run)
			})
		})
	}
}

// TestFenceOfANodeThatFailsAgainUnderTheLease: that of its failure domain is held until the data is whole, which it may
// never be without the node. So it is, too, where the job has gone on in a new run meanwhile.
func TestFenceOfANodeThatFailsAgainUnderTheLease(t *testing.T) {
	t.Parallel()
	const never = "never"
	for _, continues := range []string{never, workflows.PhaseRemediate, workflows.PhaseHeal} {
		t.Run(continues, func(t *testing.T) {
			t.Parallel()
			play(t, sim.Options{}, func(s *scene) {
				run := s.releasedUnderTheLease("node-d")
				for _, phase := range []string{workflows.PhaseRemediate, workflows.PhaseHeal} {
					s.awaitFencePhase("node-d", phase)
					if continues == phase {
						s.continueJob(jobs.FenceNode.ID("node-d"))
						time.Sleep(time.Second)
					}
					s.machines.Idle(false)
				}
				s.fencedTwice("node-d", run)
			})
		})
	}
}

// releasedUnderTheLease cuts a node off whose data does not heal without it, since a person has set noout, and has its
// fence wait for a remediator that does nothing yet.
func (s *scene) releasedUnderTheLease(node string) (run string) {
	s.Helper()
	s.fenced()
	s.PersonSetsNoout(node, true)
	s.machines.Idle(true)
	s.machines.CutOff(node)
	run = s.fence(node)
	s.awaitFencePhase(node, workflows.PhaseRemediate)
	return run
}

func (s *scene) awaitFencePhase(node, phase string) {
	s.Helper()
	in := func() bool { return s.fenceStatus(node).Phase == phase }
	require.True(s, s.Await(2*time.Minute, in), "%+v", s.fenceStatus(node))
}

// TestFenceOfANodeThatRecoversUnderTheLease: nothing was taken, and so the lease is given back, whatever is to
// heal yet. The next fence of the node begins when it fails again.
func TestFenceOfANodeThatRecoversUnderTheLease(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		run := s.releasedUnderTheLease("node-d")
		s.LoseQuorum(true)
		s.awaitFencePhase("node-d", workflows.PhaseHeld)
		s.machines.NetworkReturns("node-d")
		e := s.awaitFence("node-d", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeRecovered, e.fence.Outcome)
		s.LoseQuorum(false)
		free := func() bool { return len(s.Memory().Lease.Holders) == 0 }
		require.True(s, s.Await(2*time.Minute, free), "%+v", s.Memory().Lease)
		s.PersonSetsNoout("node-d", false)
		s.heldAgain()
	})
}

// TestFenceOfANodeThatIsHeldNoMoreUnderTheLease: the policy names no fencing for a while, in which the node fails
// again. The fence ends, so that another one begins as soon as there is a hold to take away.
func TestFenceOfANodeThatIsHeldNoMoreUnderTheLease(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		run := s.healsAfterItsFence("node-d")
		s.machines.Idle(true)
		s.SetFencing(false)
		s.machines.LosePower("node-d")
		over := func() bool { return !s.runs(jobs.FenceNode.ID("node-d")) }
		require.True(s, s.Await(2*time.Minute, over), "%+v", s.fenceStatus("node-d"))
		require.NoError(s, s.awaitFence("node-d", run).err)
		s.machines.Idle(false)
		s.PersonSetsNoout("node-d", false)
		s.fenced()
	})
}

// healsAfterItsFence has a node fenced whose daemons go on, and whose noout a person has set: its storage heals, under
// the lease of its failure domain.
func (s *scene) healsAfterItsFence(node string) (run string) {
	s.fenced()
	s.PersonSetsNoout(node, true)
	s.machines.CutOff(node)
	run = s.fence(node)
	s.awaitFencePhase(node, workflows.PhaseHeal)
	return run
}

// TestMachineIsDeletedWhileItHeals: its deletion waits for its release as any, by the fence that is still there.
func TestMachineIsDeletedWhileItHeals(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		run := s.healsAfterItsFence("node-d")
		s.machines.Delete("node-d")
		s.signal(jobs.FenceNode.ID("node-d"), workflows.SignalFenceChanged, "its Machine is being deleted")
		asked := func() bool { return s.fenceStatus("node-d").Why == fencing.WhyDeleting }
		require.True(s, s.Await(2*time.Minute, asked), "%+v", s.fenceStatus("node-d"))
		s.PersonSetsNoout("node-d", false)
		e := s.awaitFence("node-d", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.fence.Outcome)
		require.Equal(s, 2, s.machines.Fences("node-d"))
		s.heldAgain()
	})
}

// TestFailsAgainWhenItsKeeperIsDone: the policy named nothing that fences for a moment, so the keeper calls the fence
// done that still heals under the lease. What it sees then nobody else hears of.
func TestFailsAgainWhenItsKeeperIsDone(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		run := s.healsAfterItsFence("node-d")
		s.Kill("osd.0", 0) // so it waits
		s.SetFencing(false)
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "the policy changed"})
		time.Sleep(time.Second)
		require.Nil(s, s.Status().Fencing)
		s.SetFencing(true)
		s.machines.LosePower("node-d")
		time.Sleep(30 * time.Second)
		s.signal(jobs.FenceNode.ID("node-d"), workflows.SignalFenceChanged, "it has failed again")
		s.awaitFencePhase("node-d", workflows.PhaseRemediate)
		s.Start("osd.0")
		s.PersonSetsNoout("node-d", false)
		require.NoError(s, s.awaitFence("node-d", run).err)
		require.Equal(s, 2, s.machines.Fences("node-d"))
		s.heldAgain()
	})
}

// TestReleasedByHandWhileItHeals: a person wants a Machine to go whose node was fenced, before the data is whole.
func TestReleasedByHandWhileItHeals(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		run := s.healsAfterItsFence("node-d")
		s.machines.ReleasedByHand("node-d")
		word := workflows.FenceRelease{By: "ann", Reason: "its disks are broken, too"}
		s.signal(jobs.FenceNode.ID("node-d"), workflows.SignalFenceRelease, word)
		s.awaitFencePhase("node-d", workflows.PhaseRemediate)
		require.NotContains(s, s.machines.Held(), "node-d")
		require.Equal(s, "ann", s.fenceStatus("node-d").Override.By)
		s.PersonSetsNoout("node-d", false)
		s.signal(jobs.FenceNode.ID("node-d"), jobs.SignalAbort, nil)
		require.NoError(s, s.awaitFence("node-d", run).err)
		s.heldAgain()
	})
}

// TestFenceGivesWayWhileTheQuorumNeedsItsMon: the release of its Machine is taken back when another mon dies, and with
// it the lease goes: the mon that is away may be on a node that has to be fenced first.
func TestFenceGivesWayWhileTheQuorumNeedsItsMon(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.Idle(true)
		s.machines.CutOff("node-c")
		run := s.fence("node-c")
		released := func() bool { return !slices.Contains(s.machines.Held(), "node-c") }
		require.True(s, s.Await(2*time.Minute, released), "%+v", s.fenceStatus("node-c"))
		s.Kill("mon.a", 0)
		gaveBack := func() bool { return len(s.Memory().Lease.Holders) == 0 && !released() }
		require.True(s, s.Await(2*time.Minute, gaveBack), "%+v", s.fenceStatus("node-c"))
		require.Equal(s, "MonQuorum", s.fenceStatus("node-c").Clusters[0].Reason)
		s.Start("mon.a")
		s.machines.Idle(false)
		e := s.awaitFence("node-c", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.fence.Outcome)
		s.heldAgain()
	})
}

// TestWhoLivesHasTimeToSaySo: OSDs hang, and are down in the map, when the mons lose their quorum. Meanwhile they go
// on. The first map after that calls them down still, and by it nothing would be taken.
func TestWhoLivesHasTimeToSaySo(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.Idle(true)
		s.Hang(true, "osd.3")
		down := func() bool { return len(s.Status().Storage.Down) > 0 }
		require.True(s, s.Await(time.Minute, down), "%+v", s.Status().Storage)
		s.LoseQuorum(true)
		s.machines.CutOff("node-d")
		run := s.fence("node-d")
		silent := func() bool {
			c := s.fenceStatus("node-d").Clusters
			return len(c) > 0 && c[0].Reason == fencing.ReasonStorageUnavailable
		}
		require.True(s, s.Await(time.Minute, silent), "%+v", s.fenceStatus("node-d"))
		s.Hang(false, "osd.3")
		s.LoseQuorum(false)
		released := func() bool { return !slices.Contains(s.machines.Held(), "node-d") }
		require.True(s, s.Await(2*time.Minute, released), "%+v", s.fenceStatus("node-d"))
		s.machines.Idle(false)
		e := s.awaitFence("node-d", run)
		require.NoError(s, e.err)
		require.Equal(s, fencing.ReasonDomainOpen, e.fence.Released)
		s.heldAgain()
	})
}

// TestFencesOfTwoZones: they go one after the other.
func TestFencesOfTwoZones(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		for _, node := range []string{"node-d", "node-e"} {
			s.machines.LosePower(node)
		}
		d, e := s.fence("node-d"), s.fence("node-e")
		for node, run := range map[string]string{"node-d": d, "node-e": e} {
			end := s.awaitFence(node, run)
			require.NoError(s, end.err)
			require.Equal(s, workflows.OutcomeDone, end.fence.Outcome)
			require.Equal(s, 1, s.machines.Fences(node))
		}
		s.heldAgain()
	})
}

// TestFenceBesideABudgetOfSomebodyElse: our budgets cannot open then, for as long as nobody takes it away. A fence that
// takes nothing does not wait for that.
func TestFenceBesideABudgetOfSomebodyElse(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.Foreign(true)
		s.machines.LosePower("node-d")
		down := func() bool { return s.Status().Storage.Up == "5/6" }
		require.True(s, s.Await(time.Minute, down), "its OSD is down by the map")
		run, began := s.fence("node-d"), time.Now()
		require.True(s, s.until(time.Minute, func() bool { return s.machines.Fences("node-d") == 1 }),
			"%+v", s.fenceStatus("node-d"))
		require.Less(s, time.Since(began), 30*time.Second)
		require.NoError(s, s.awaitFence("node-d", run).err)
		s.Foreign(false)
		s.heldAgain()
	})
}

// TestFenceOfANodeThatIsBackAndNotHeld: nobody has said that its Machine was let go, since the keeper died with the
// word, or since it was not: a person took the hold. The ledger tells which, and so whether the node was fenced.
func TestFenceOfANodeThatIsBackAndNotHeld(t *testing.T) {
	t.Parallel()
	t.Run("the keeper let it go", func(t *testing.T) {
		t.Parallel()
		play(t, sim.Options{}, func(s *scene) {
			s.fenced()
			carriesOut := func(then fault) {
				s.update(func() {
					s.fault = func(_ int, info activity.Info) fault {
						if info.WorkflowExecution.ID == workflows.KeeperID(sim.Key) &&
							(then == notDone || info.ActivityType.Name == "CarryOut") {
							return then
						}
						return noFault
					}
				})
			}
			id, run := s.fenceUnwatched("node-d")
			carriesOut(hangs)
			require.True(s, s.Await(time.Minute, func() bool { return !slices.Contains(s.machines.Held(), "node-d") }))
			s.killKeeper()
			carriesOut(notDone) // the next one can do nothing for now
			back := func() bool { p, _ := s.machines.Sight("node-d"); return p.Ready }
			require.True(s, s.Await(time.Minute, back))
			require.Equal(s, 1, s.machines.Fences("node-d"))
			s.signal(id, workflows.SignalFenceChanged, "the watcher is back")
			time.Sleep(time.Second)
			time.Sleep(time.Second)
			s.update(func() { s.fault = nil })
			e := s.awaitFence("node-d", run)
			require.NoError(s, e.err)
			require.Equal(s, workflows.OutcomeDone, e.fence.Outcome)
			require.Equal(s, "TakesNothing", e.fence.Released)
			s.heldAgain()
		})
	})
	t.Run("a person took the hold", func(t *testing.T) {
		t.Parallel()
		play(t, sim.Options{}, func(s *scene) {
			s.fenced()
			s.LoseQuorum(true) // so that nothing is let go
			id, run := s.fenceUnwatched("node-d")
			held := func() bool { return s.fenceStatus("node-d").Phase == workflows.PhaseHeld }
			require.True(s, s.Await(time.Minute, held), "%+v", s.fenceStatus("node-d"))
			s.machines.TakeHold("node-d")
			s.machines.PowerReturns("node-d")
			s.LoseQuorum(false)
			s.signal(id, workflows.SignalFenceChanged, "its Machine and its node changed")
			e := s.awaitFence("node-d", run)
			require.NoError(s, e.err)
			require.Equal(s, workflows.OutcomeRecovered, e.fence.Outcome)
			require.Empty(s, e.fence.Released)
			s.heldAgain()
		})
	})
}

// TestFenceThatTheKeeperForgot: it died before it had written down what it was asked for. The next one holds no Machine
// whose node has nothing left to lose, and the job asks again as soon as it sees that, not minutes later.
func TestFenceThatTheKeeperForgot(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.Idle(true)
		s.update(func() {
			s.fault = func(_ int, info activity.Info) fault {
				if _, asked := s.running[jobs.FenceNode.ID("node-d")]; asked && info.ActivityType.Name == "CarryOut" {
					return notDone
				}
				return noFault
			}
		})
		id, run := s.fenceUnwatched("node-d")
		time.Sleep(time.Second)
		require.Contains(s, s.machines.Held(), "node-d")
		s.killKeeper()
		s.update(func() { s.fault = nil })
		require.True(s, s.Await(time.Minute, func() bool { return !slices.Contains(s.machines.Held(), "node-d") }))
		s.signal(id, workflows.SignalFenceChanged, "its Machine changed")
		released := func() bool { return s.fenceStatus("node-d").Result.Released == "TakesNothing" }
		require.True(s, s.Await(time.Minute, released), "%+v", s.fenceStatus("node-d"))
		s.machines.Idle(false)
		e := s.awaitFence("node-d", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.fence.Outcome)
		s.heldAgain()
	})
}

// TestFenceThatFailsAgainAndTheKeeperForgot: the node failed again before the data was whole, and the keeper died
// before it had written down that it is to be released once more, or before it heard so, and begins with that request.
// The next one knows that the data was to heal, which it never does.
func TestFenceThatFailsAgainAndTheKeeperForgot(t *testing.T) {
	t.Parallel()
	for name, hears := range map[string]bool{"what it heard": true, "and hears it first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, sim.Options{}, func(s *scene) { s.failsAgainUnnoted(hears) })
		})
	}
}

func (s *scene) failsAgainUnnoted(hears bool) {
	s.fenced()
	s.machines.LosePower("node-d")
	s.PersonSetsNoout("node-d", true)
	run := s.fence("node-d")
	healing := func() bool { return s.fenceStatus("node-d").Phase == workflows.PhaseHeal }
	require.True(s, s.Await(time.Minute, healing), "%+v", s.fenceStatus("node-d"))
	noted := func() bool {
		f := s.Status().Fencing
		return f != nil && len(f.Nodes) == 1 && f.Nodes[0].Stage == string(fencing.StageHealing)
	}
	require.True(s, s.Await(time.Minute, noted), "%+v", s.Status().Fencing)

	fails := func(name string) {
		s.update(func() {
			s.fault = func(_ int, info activity.Info) fault {
				if info.ActivityType.Name == name && info.Attempt < 3 {
					return notDone
				}
				return noFault
			}
		})
	}
	if hears {
		fails("CarryOut")
	}
	s.machines.LosePower("node-d")
	if !hears {
		time.Sleep(3 * time.Second) // nothing else starts a keeper from here on
		s.killKeeper()
		s.machines.Forgotten()
		fails("Recall") // so that it is asked before it knows anything
	}
	s.signal(jobs.FenceNode.ID("node-d"), workflows.SignalFenceChanged, "it failed again")
	held := func() bool { return s.fenceStatus("node-d").Phase == workflows.PhaseHeld }
	require.True(s, s.Await(time.Minute, held) || !hears, "%+v", s.fenceStatus("node-d"))
	if hears {
		s.killKeeper()
		s.machines.Forgotten()
		s.update(func() { s.fault = nil })
	}
	twice := func() bool { return s.machines.Fences("node-d") == 2 }
	require.True(s, s.Await(2*time.Minute, twice) || hears, "%+v", s.fenceStatus("node-d"))
	require.True(s, s.Await(10*time.Minute, twice), "%+v", s.fenceStatus("node-d"))
	require.True(s, s.Await(10*time.Minute, healing), "%+v", s.fenceStatus("node-d"))
	s.PersonSetsNoout("node-d", false)
	e := s.awaitFence("node-d", run)
	require.NoError(s, e.err)
	require.Equal(s, workflows.OutcomeDone, e.fence.Outcome)
	s.heldAgain()
}

// TestFenceThatHearsOfItsNodeAllTheTime: the keeper died before it had written down the release, or the lease, that it
// was asked for. The job asks the next one, although there is always something to hear of its node.
func TestFenceThatHearsOfItsNodeAllTheTime(t *testing.T) {
	t.Parallel()
	for _, asks := range []string{"RequestFence", "RequestLease"} {
		t.Run(asks, func(t *testing.T) {
			t.Parallel()
			play(t, sim.Options{}, func(s *scene) {
				s.fenced()
				asked, killed := false, false
				s.update(func() {
					s.onAttempt = func(_ int, info activity.Info) {
						if asked && !killed && info.WorkflowExecution.ID == workflows.KeeperID(sim.Key) {
							killed = true
							go s.killKeeper()
						}
						asked = asked || info.ActivityType.Name == asks
					}
				})
				s.machines.Delete("node-d")
				run := s.fence("node-d")
				e := s.awaitFence("node-d", run)
				require.NoError(s, e.err)
				require.Less(s, e.fence.Took, 15*time.Minute)
				s.heldAgain()
			})
		})
	}
}

// TestFenceThatHearsNothingMore: the keeper died before it had written down the lease that it was asked for. The job
// left the wait for it once, to look at its node, and asks the next keeper although nothing more is to be heard.
func TestFenceThatHearsNothingMore(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		var asked, lost atomic.Bool
		s.update(func() {
			s.fault = func(_ int, info activity.Info) fault {
				asked.CompareAndSwap(false, info.ActivityType.Name == "RequestLease")
				if asked.Load() && info.WorkflowExecution.ID == workflows.KeeperID(sim.Key) {
					lost.Store(true)
					return notDone
				}
				return noFault
			}
		})
		s.machines.Delete("node-d")
		id := jobs.FenceNode.ID("node-d")
		run := s.start(id, jobs.FenceNode.Type, workflows.FenceNodeInput{Node: "node-d", Policy: sim.Key.String()})
		require.True(s, s.Await(time.Minute, lost.Load))
		s.killKeeper()
		s.update(func() { s.fault = nil })
		s.signal(id, workflows.SignalFenceChanged, "it looks once more")
		e := s.awaitFence("node-d", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.fence.Outcome)
		require.Less(s, e.fence.Took, 15*time.Minute)
		s.heldAgain()
	})
}

// TestWhoIsNotFencedLetsOthersGo: nobody fences a node that serves, and so its job does not keep the lease for ever. A
// drain of another failure domain has its turn, and after it the fence again.
func TestWhoIsNotFencedLetsOthersGo(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.Idle(true)
		s.machines.Delete("node-e")
		run := s.start(jobs.FenceNode.ID("node-e"), jobs.FenceNode.Type,
			workflows.FenceNodeInput{Node: "node-e", Policy: sim.Key.String()})
		released := func() bool { return !slices.Contains(s.machines.Held(), "node-e") }
		require.True(s, s.Await(time.Minute, released), "%+v", s.fenceStatus("node-e"))
		s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", evicting, 25*time.Minute)
		require.Contains(s, s.machines.Held(), "node-e", "not while another failure domain is open")
		s.tellDrain("node-a", jobs.SignalAbort)
		require.True(s, s.Await(5*time.Minute, released), "%+v", s.fenceStatus("node-e"))
		s.machines.Idle(false)
		e := s.awaitFence("node-e", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.fence.Outcome)
		s.heldAgain()
		s.awaitNothingLeft(time.Minute)
	})
}

// fenceUnwatched starts the fence of a node that has lost its power, and nobody tells it of changes.
func (s *scene) fenceUnwatched(node string) (id, run string) {
	s.machines.LosePower(node)
	id = jobs.FenceNode.ID(node)
	unhealthy := func() bool { p, _ := s.machines.Sight(node); return !p.Unhealthy.IsZero() }
	require.True(s, s.Await(time.Minute, unhealthy))
	return id, s.start(id, jobs.FenceNode.Type, workflows.FenceNodeInput{Node: node})
}

// TestFenceOfADoomedNodeThatRecovers: whose Machine's deletion has begun is to go all the same, now as a planned
// removal, for which its failure domain is opened.
func TestFenceOfADoomedNodeThatRecovers(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.LoseQuorum(true)
		s.machines.CutOff("node-d")
		run := s.fence("node-d")
		s.awaitFencePhase("node-d", workflows.PhaseHeld)
		require.Equal(s, fencing.WhyUnhealthy, s.fenceStatus("node-d").Why)
		s.machines.Delete("node-d")
		s.machines.NetworkReturns("node-d")
		planned := func() bool { return s.fenceStatus("node-d").Why == fencing.WhyDeleting }
		require.True(s, s.Await(2*time.Minute, planned), "%+v", s.fenceStatus("node-d"))
		require.Contains(s, s.machines.Held(), "node-d")
		s.LoseQuorum(false)
		e := s.awaitFence("node-d", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.fence.Outcome)
		require.Equal(s, fencing.ReasonDomainOpen, e.fence.Released)
		s.heldAgain()
	})
}

// TestDeletionThatNobodyAskedFor: a Machine waits for its release, and whoever was to ask for it is gone. The status
// says so without any news, until somebody asks.
func TestDeletionThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.Delete("node-d")
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "Machines changed"})
		named := func() bool {
			return strings.Contains(strings.Join(s.Status().Fencing.Notes, "\n"), "no fence asks for their release")
		}
		time.Sleep(50 * time.Second)
		require.False(s, named(), "a fence may take that long to begin")
		require.True(s, s.Await(time.Minute, named), "%+v", s.Status().Fencing)
		e := s.awaitFence("node-d", s.fence("node-d"))
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.fence.Outcome)
		require.False(s, named())
		s.heldAgain()
	})
}

// TestFenceOfANodeWithAMonAlone: its Machine is held while the quorum needs the mon, and so it has a fence, although no
// storage is on it.
func TestFenceOfANodeWithAMonAlone(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{MonNodes: true}, func(s *scene) {
		s.settle()
		s.SetFencing(true)
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "the policy changed"})
		held := func() bool { return slices.Contains(s.machines.Held(), "node-g") }
		require.True(s, s.Await(time.Minute, held), s.machines.Held())
		s.machines.Delete("node-g")
		e := s.awaitFence("node-g", s.fence("node-g"))
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.fence.Outcome)
		require.True(s, s.Await(5*time.Minute, held), s.machines.Held())
	})
}

// TestFenceOfANodeWithoutAMachine: nobody holds it, so nothing is asked for. The status names it.
func TestFenceOfANodeWithoutAMachine(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.Vanish("node-d")
		s.machines.LosePower("node-d")
		e := s.awaitFence("node-d", s.fence("node-d"))
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeNotHeld, e.fence.Outcome)
		require.Empty(s, e.fence.Released)
		named := func() bool {
			f := s.Status().Fencing
			return f.Held == 5 && len(f.Nodes) == 0 && strings.Contains(strings.Join(f.Notes, "\n"), "node-d")
		}
		require.True(s, s.Await(2*time.Minute, named), "%+v", s.Status().Fencing)
	})
}

// TestFenceThatNoPolicyKnows names the node, and asks for nothing.
func TestFenceThatNoPolicyKnows(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.SetFencing(false)
		s.machines.LosePower("node-d")
		e := s.awaitFence("node-d", s.fence("node-d"))
		require.ErrorContains(s, e.err, `node: "node-d": no MaintenancePolicy with storage on it names`)
	})
}

// TestFenceOfANodeThatIsFine: nothing is asked for.
func TestFenceOfANodeThatIsFine(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		e := s.awaitFence("node-b", s.fence("node-b"))
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeRecovered, e.fence.Outcome)
		require.Zero(s, s.machines.Fences("node-b"))
		s.heldAgain()
		s.machines.TakeHold("node-b")
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "Machines changed"})
		s.heldAgain()
	})
}

// TestReleaseByHandOfANodeThatIsFine: it is let go, and whoever wanted that may make use of it. Nobody does so by
// himself, and then it is held again for good.
func TestReleaseByHandOfANodeThatIsFine(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.ReleasedByHand("node-b")
		run := s.start(jobs.FenceNode.ID("node-b"), jobs.FenceNode.Type, workflows.FenceNodeInput{
			Node: "node-b", Policy: sim.Key.String(), Release: &workflows.FenceRelease{By: "ann", Reason: "I want it gone"},
		})
		released := func() bool { return !slices.Contains(s.machines.Held(), "node-b") }
		require.True(s, s.Await(time.Minute, released), "%+v", s.fenceStatus("node-b"))
		e := s.awaitFence("node-b", run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeRecovered, e.fence.Outcome)
		require.Zero(s, s.machines.Fences("node-b"))
		s.heldAgain()
	})
}

// TestHoldsWhileCephWasNeverReached: a policy that comes, or a worker that starts, in the midst of an outage holds what
// hosts OSDs as far as pods tell, and nothing opens. When Ceph can be reached, the same are held.
func TestHoldsWhileCephWasNeverReached(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.Unreachable(true)
		s.SetFencing(true)
		s.startKeeper()
		require.True(s, s.Await(time.Minute, func() bool { return len(s.machines.Held()) == 6 }), s.machines.Held())
		require.Equal(s, "no", s.Status().MayDrain)
		require.EqualValues(s, 6, s.Status().Fencing.Held, "%+v", s.Status().Fencing)
		s.Unreachable(false)
		s.awaitBudget(atRest, time.Minute)
		s.heldAgain()
	})
}

// TestHoldsGoWithThePolicy: with what names the fencing, and with the policy.
func TestHoldsGoWithThePolicy(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.SetFencing(false)
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "the policy changed"})
		require.True(s, s.Await(time.Minute, func() bool { return s.Status().Fencing == nil }), "%+v", s.Status().Fencing)
		require.Empty(s, s.machines.Held())
		s.SetFencing(true)
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "the policy changed"})
		held := func() bool { return s.Status().Fencing != nil && s.Status().Fencing.Held == 6 }
		require.True(s, s.Await(time.Minute, held))
		time.Sleep(5 * time.Second)
		s.DeletePolicy()
		require.True(s, s.Await(time.Minute, func() bool { return !s.PolicyExists() }))
		require.Empty(s, s.machines.Held())
	})
}

// TestAnotherHoldWaitsForTheFence: the policy says another way to hold Machines while a node is to be fenced. Between
// the two nothing would hold it, so the old one stays until that is over, and the status says so.
func TestAnotherHoldWaitsForTheFence(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.LoseQuorum(true) // so that nothing is let go
		s.machines.CutOff("node-d")
		run := s.fence("node-d")
		held := func() bool { return s.fenceStatus("node-d").Phase == workflows.PhaseHeld }
		require.True(s, s.Await(2*time.Minute, held), "%+v", s.fenceStatus("node-d"))
		waits := func() bool {
			f := s.Status().Fencing
			return f != nil && slices.ContainsFunc(f.Notes, func(n string) bool {
				return strings.Contains(n, "Machines are held by ClusterAPI as before") && strings.Contains(n, "(node-d)")
			})
		}
		require.False(s, waits())
		s.SetHold("SkipRemediation")
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "the policy changed"})
		require.True(s, s.Await(time.Minute, waits), "%+v", s.Status().Fencing)
		for range 300 {
			require.Len(s, s.machines.Held(), 6)
			time.Sleep(100 * time.Millisecond)
		}
		s.LoseQuorum(false)
		require.NoError(s, s.awaitFence("node-d", run).err)
		require.Equal(s, 1, s.machines.Fences("node-d"))
		s.heldAgain()
		require.False(s, waits())
	})
}

// TestHoldsStayWhenTheOtherPolicyWasThereForAMoment: what a keeper takes back as it stands aside may take long, and the
// other policy be gone by then. What may be fenced at once is not let go on that old knowledge.
func TestHoldsStayWhenTheOtherPolicyWasThereForAMoment(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.drain(ofThis("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.LoseQuorum(true)
		s.AnotherPolicy(true)
		require.True(s, s.Await(time.Minute, func() bool { return s.Budget() == "closed" }), "it stands aside")
		time.Sleep(1500 * time.Millisecond)
		require.Len(s, s.machines.Held(), 6, "noout is still to be taken back")
		s.AnotherPolicy(false)
		s.LoseQuorum(false)
		for range 600 {
			require.Len(s, s.machines.Held(), 6)
			time.Sleep(100 * time.Millisecond)
		}
		s.tellDrain("node-a", jobs.SignalDone)
		s.heldAgain()
	})
}

// TestHoldsThatNobodyTookAway: they were taken away for the other policy, nobody heard of it, and the next attempt
// finds this one in charge. They are set again, and nobody is said to have taken them away.
func TestHoldsThatNobodyTookAway(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		attempts := 0
		s.update(func() {
			releases := func(info activity.Info) bool { return info.ActivityType.Name == "ReleaseHolds" }
			s.fault = func(_ int, info activity.Info) fault {
				if releases(info) && info.Attempt == 1 {
					return doneAlso
				}
				return noFault
			}
			s.onAttempt = func(_ int, info activity.Info) {
				if !releases(info) {
					return
				}
				if attempts++; attempts == 2 {
					s.AnotherPolicy(false)
				}
			}
		})
		s.AnotherPolicy(true)
		require.True(s, s.Await(time.Minute, func() bool { return len(s.machines.Held()) == 0 }))
		s.heldAgain()
		require.GreaterOrEqual(s, attempts, 2)
	})
}

// fencesOf are how a node comes to be fenced. One whose Machine is being deleted still serves, so that its failure
// domain has to be opened for it.
var fencesOf = map[string]func(s *scene, node string){
	"a node that died":                func(s *scene, node string) { s.machines.LosePower(node) },
	"a Machine that is to be deleted": func(s *scene, node string) { s.machines.Delete(node) },
}

// TestEveryStepOfAFence plays the fence of a node again and again, as TestEveryStep does.
func TestEveryStepOfAFence(t *testing.T) {
	t.Parallel()
	const node = "node-d"
	id := jobs.FenceNode.ID(node)
	happens := map[string]mishap{}
	for name, m := range mishaps {
		happens[name] = m
	}
	happens["aborted"] = mishap{do: func(s *scene, _ string) { s.signal(id, jobs.SignalAbort, nil) }}
	happens["cancelled"] = mishap{do: func(s *scene, _ string) { s.cancel(id) }}
	happens["terminated"] = mishap{do: func(s *scene, _ string) { s.kill(id) }}
	happens["continues as new"] = mishap{do: func(s *scene, _ string) { s.continueJob(id) }, survives: true}
	happens["paused"] = mishap{do: func(s *scene, _ string) {
		s.signal(id, jobs.SignalPause, nil)
		go func() { time.Sleep(10 * time.Second); s.signal(id, jobs.SignalResume, nil) }()
	}, survives: true}
	names := []string{}
	for name := range happens {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for of, begin := range fencesOf {
			m := happens[name]
			t.Run(of+"/"+name, func(t *testing.T) {
				t.Parallel()
				at, every := turns.Steps("TestEveryStepOfAFence: "+of+", "+name, 48, 1)
				atEachStep(t, at, every, 300, func(t *testing.T, at int) (came bool) {
					play(t, sim.Options{}, func(s *scene) { came = s.fenceWith(m, begin, node, at) })
					return came
				})
			})
		}
	}
}

// fenceWith plays a fence with a mishap at one step, and tells whether it came to that step.
func (s *scene) fenceWith(m mishap, begin func(*scene, string), node string, at int) (came bool) {
	s.fenced()
	struck := s.strike(m, at, node)
	begin(s, node)
	e := s.awaitFence(node, s.fence(node))
	if m.survives {
		require.NoError(s, e.err)
		require.Contains(s, []string{workflows.OutcomeDone, workflows.OutcomeGone}, e.fence.Outcome)
		require.Equal(s, 1, s.machines.Fences(node))
	}
	came = struck()
	s.update(func() { s.fault, s.onAttempt = nil, nil })
	if s.machines.Fences(node) == 0 { // it ended before: the watcher starts another one
		s.awaitFence(node, s.fence(node))
	}
	s.heldAgain()
	s.awaitNothingLeft(5 * time.Minute)
	return came
}
