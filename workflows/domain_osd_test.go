package workflows_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// These tests are about clusters whose failure domain is the OSD, with several OSDs on each node: a node is several
// failure domains.

const (
	neighbours = 1 // some placement groups have two copies on a node
	scattered  = 2 // none has
)

// TestDrainOneOSDAfterTheOther: Ceph does not let the OSDs of the node stop at once. So the first goes without noout,
// its data moves, and then the second goes. The last one is as the only one of a node: it goes with noout.
func TestDrainOneOSDAfterTheOther(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 3, ByOSD: neighbours}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 17 must stay", time.Minute)
		run := s.drain(drainOf("node-d"))
		s.awaitBudget("only [10] is open", 30*time.Second) // the first by name
		require.True(s, s.Await(time.Minute, func() bool { return s.Up() == 17 }))
		require.Empty(s, s.Noout("node-d"), "noout would keep its data from moving")
		require.Contains(s, s.drainStatus("node-d").WaitsFor, "one after the other")
		s.awaitBudget("only [11] is open", 3*time.Minute)
		require.True(s, s.Await(time.Minute, func() bool { return s.Up() == 16 }))
		require.Empty(s, s.Noout("node-d"))
		s.awaitPhase("node-d", awaitingNode, 3*time.Minute)
		require.True(s, s.Evicted("node-d"))
		require.Equal(s, "lockkeeper", s.Noout("node-d"))
		s.Reboot("node-d")
		time.Sleep(5 * time.Second)
		s.PersonCordons("node-d", false)
		e := s.awaitEnd("node-d", run, 5*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
		s.awaitNothingLeft(2 * time.Minute)
	})
}

// TestDrainOSDsTogether: Ceph lets both OSDs of the node stop, so they go together, under noout.
func TestDrainOSDsTogether(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2, ByOSD: scattered}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		require.True(s, s.Evicted("node-a"), "and its mon")
		s.awaitBudget("closed", time.Second) // both are away
		require.Equal(s, "lockkeeper", s.Noout("node-a"))
		s.tellDrain("node-a", jobs.SignalDone)
		e := s.awaitEnd("node-a", run, 2*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, 3, e.result.Evicted)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestDrainOneByOneIsRemembered: the keeper is terminated between two OSDs, and the drain is aborted later.
func TestDrainOneByOneIsRemembered(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 3, ByOSD: neighbours}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 17 must stay", time.Minute)
		run := s.drain(drainOf("node-a"))
		require.True(s, s.Await(time.Minute, func() bool { return s.Up() == 17 }))
		s.killKeeper()
		s.startKeeper()
		require.True(s, s.Await(3*time.Minute, func() bool { return s.Up() == 16 }))
		require.Empty(s, s.Noout("node-a"))
		s.tellDrain("node-a", jobs.SignalAbort)
		e := s.awaitEnd("node-a", run, time.Minute)
		require.Equal(s, workflows.OutcomeAborted, e.result.Outcome)
		s.awaitNothingLeft(2 * time.Minute)
	})
}

// TestKubectlDrainsOSDs: the same holds for who drains from outside.
func TestKubectlDrainsOSDs(t *testing.T) {
	t.Parallel()
	for what, apart := range map[string]int{"one after the other": neighbours, "together": scattered} {
		t.Run(what, func(t *testing.T) {
			play(t, sim.Options{OSDsPerNode: 2, ByOSD: apart}, func(s *scene) {
				s.startKeeper()
				s.awaitBudget("at rest, 11 must stay", time.Minute)
				done := s.KubectlDrain("node-a")
				within := map[int]time.Duration{neighbours: 5 * time.Minute, scattered: 40 * time.Second}[apart]
				select {
				case err := <-done:
					require.NoError(s, err)
				case <-time.After(within):
					s.Errorf("kubectl drain is not through: %s, %+v", s.Budget(), s.keeperStatus().Decision)
				}
				s.PersonCordons("node-a", false)
				s.awaitNothingLeft(3 * time.Minute)
			})
		})
	}
}

// TestDrainsOfNodesWithSeveralDomains: all at once, and every one of them ends.
func TestDrainsOfNodesWithSeveralDomains(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2, ByOSD: neighbours}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		runs := map[string]string{}
		nodes := []string{"node-a", "node-b", "node-c"}
		for _, node := range nodes {
			runs[node] = s.drain(workflows.DrainNodeInput{Node: node, UncordonAfterReboot: true})
		}
		for left := len(nodes); left > 0; left-- {
			next := ""
			require.True(s, s.Await(10*time.Minute, func() bool {
				for _, node := range nodes {
					if s.runs(jobs.DrainNode.ID(node)) && s.drainStatus(node).Phase == awaitingNode {
						next = node
					}
				}
				return next != ""
			}), "no node is empty")
			s.Reboot(next)
			e := s.awaitEnd(next, runs[next], 5*time.Minute)
			require.NoError(s, e.err)
		}
		s.awaitNothingLeft(2 * time.Minute)
	})
}

// TestACordonOpensOneOSDAfterTheOther: nobody but a cordon speaks for the node, since the watcher was away when its
// first OSD went, and nothing may go at rest.
func TestACordonOpensOneOSDAfterTheOther(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2, ByOSD: neighbours}, func(s *scene) {
		s.ChangePolicy("atRest: None", func(c *v1alpha1.CephSpec) { c.AtRest = string(storage.AtRestNone) })
		s.startKeeper()
		time.Sleep(10 * time.Second)
		s.PersonCordons("node-d", true)
		for _, osd := range []string{"osd.6", "osd.7"} {
			s.awaitBudget("only ["+strings.TrimPrefix(osd, "osd.")+"] is open", 2*time.Minute)
			s.blindfold(true) // it would start a drain that observes
			require.True(s, s.EvictAny(osd))
			require.True(s, s.Await(time.Minute, func() bool { return s.PodState(osd) != storage.PodReady }))
		}
		s.blindfold(false)
		s.PersonCordons("node-d", false)
		s.awaitNothingLeft(5 * time.Minute)
	})
}

// TestANodeOfSeveralDomainsReturns: the OSDs of a node went one after the other and are back. What was said of the last
// one alone says nothing of both, and whoever evicts both takes two copies.
func TestANodeOfSeveralDomainsReturns(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{
		OSDsPerNode: 2, ByOSD: neighbours,
		Latency: func() time.Duration { return 200 * time.Millisecond },
	}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		require.NoError(s, <-s.KubectlDrain("node-a"))
		s.Reboot("node-a")
		time.Sleep(5 * time.Second)
		s.PersonCordons("node-a", false)
		require.True(s, s.Await(time.Minute,
			func() bool { return s.Up() == 12 && !slices.Contains(s.Whole(), "the data is not whole") }))
		require.Equal(s, "closed", s.Budget())
		s.awaitNothingLeft(5 * time.Minute)
	})
}

// TestATerminatedDrainIsTakenUp: it has left its cordon, and an OSD whose disk is broken. Nothing changes in Kubernetes
// when somebody drains that node from outside, and what does not serve is let go by nobody but a job.
func TestATerminatedDrainIsTakenUp(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2, ByOSD: neighbours}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		id, osds := jobs.DrainNode.ID("node-d"), s.OSDsOn("node-d")
		s.drain(drainOf("node-d"))
		require.True(s, s.Await(time.Minute, func() bool { return s.Up() == 11 }))
		dead := osds[0]
		if s.PodState(dead) != storage.PodReady {
			dead = osds[1]
		}
		number, err := strconv.Atoi(strings.TrimPrefix(dead, "osd."))
		require.NoError(s, err)
		s.BreakDisk(number)
		s.kill(id)
		require.True(s, s.Await(10*time.Minute, s.Clean))
		require.True(s, s.Await(2*time.Minute, func() bool { return s.runs(id) }), "somebody observes what is left")
		require.True(s, s.Await(time.Minute, func() bool { return s.drainStatus("node-d").Phase == awaitingNode }))
		select {
		case err := <-s.KubectlDrain("node-d"):
			require.NoError(s, err)
		case <-time.After(10 * time.Minute):
			s.Errorf("kubectl drain is not through: %s, %+v", s.Budget(), s.keeperStatus().Decision)
		}
		s.PersonCordons("node-d", false)
		require.True(s, s.Await(time.Hour, func() bool { return !s.runs(id) }), "it waits for the broken disk in vain")
	})
}
