package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// secondCluster is another storage cluster on the same nodes. Its key comes before that of the first; its zones are not
// the same.
var secondCluster = sim.Options{Key: storage.ClusterKey{Namespace: "rook-a", Name: "rook-a"}, Shift: 1}

// two are the names that the tests have for the two.
type two struct{ a, ceph *sight }

func playTwo(t *testing.T, script func(*scene, two)) {
	t.Helper()
	play(t, sim.Options{}, func(s *scene) {
		script(s, s.settleBoth())
	}, secondCluster)
}

// settleBoth is settleAll for two.
func (s *scene) settleBoth() two {
	s.settleAll()
	return two{a: s.sights[1], ceph: s.sights[0]}
}

// busy has a drain hold the lease of one storage cluster, and no more if nothing can be cordoned.
func (s *scene) busy(x *sight, node string) (run string) {
	s.Helper()
	run = s.drain(drainOnly(x, node))
	require.True(s, s.Await(10*time.Second, func() bool {
		holds, inReserve := s.holds(x, node)
		return holds && !inReserve
	}))
	return run
}

// settleAll plays until all keepers have seen that all is well.
func (s *scene) settleAll() {
	s.Helper()
	for _, x := range s.sights {
		s.startKeeperOf(x.Key())
	}
	s.settle()
	for _, x := range s.sights[1:] {
		require.True(s, x.Await(time.Minute, func() bool { return x.Budget() == atRest }), x.Budget())
		require.True(s, x.Await(time.Minute, func() bool { return x.MayGo("osd.1") == nil }))
	}
}

func (s *scene) keeperOf(x *sight) (status workflows.KeeperStatus) {
	s.query(workflows.KeeperID(x.Key()), &status)
	return status
}

// drainOnly is a drain that asks for the lease of one storage cluster.
func drainOnly(x *sight, node string) workflows.DrainNodeInput {
	in := drainOf(node)
	in.Policy = x.Key().String()
	return in
}

// holds tells whether a node's drain holds a lease, and whether in reserve.
func (s *scene) holds(x *sight, node string) (holds, inReserve bool) {
	for _, c := range s.keeperOf(x).Lease.Holders {
		if c.WorkflowID == jobs.DrainNode.ID(node) {
			return true, c.Reserved()
		}
	}
	return false, false
}

func (s *scene) mustEnd(node, run, outcome string) {
	s.Helper()
	e := s.awaitEnd(node, run, time.Hour)
	require.NoError(s, e.err)
	require.Equal(s, outcome, e.result.Outcome)
}

// TestDrainHoldsBothLeases: noout is set in both clusters, both domains are open, and both are given back.
func TestDrainHoldsBothLeases(t *testing.T) {
	t.Parallel()
	playTwo(t, func(s *scene, on two) {
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		require.Equal(s, "only zone [zone-y] is open", on.a.Budget())
		require.Equal(s, "only zone [zone-x] is open", on.ceph.Budget())
		for _, x := range s.sights {
			require.NotEmpty(s, x.Noout("node-a"), x.Key())
			require.True(s, x.Evicted("node-a"), x.Key())
		}
		require.Len(s, s.drainStatus("node-a").Leases, 2)
		s.tellDrain("node-a", jobs.SignalDone)
		s.mustEnd("node-a", run, workflows.OutcomeDone)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestNothingOpensBeforeAllLeasesAreHeld: the drain holds the first lease in reserve, says what it waits for, and lets
// others go first after a minute.
func TestNothingOpensBeforeAllLeasesAreHeld(t *testing.T) {
	t.Parallel()
	opts, blocked := blockable(sim.Options{})
	play(t, opts, func(s *scene) {
		on := s.settleBoth()
		blocked.set("cordon", true) // so that who has a lease touches nothing
		busy := s.busy(on.ceph, "node-b")

		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", acquiringLease, time.Minute)
		time.Sleep(5 * time.Minute)
		holds, inReserve := s.holds(on.a, "node-a")
		require.True(s, holds && inReserve, "nobody else wants it, so it stays")
		require.Equal(s, atRest, on.a.Budget())
		require.Empty(s, on.a.Noout("node-a"))
		waits := s.drainStatus("node-a").WaitsFor
		require.Contains(s, waits,
			"the lease of zone zone-x of rook-ceph/rook-ceph: the lease: drain/node-b holds zone zone-y")
		require.Contains(s, waits, "that of zone zone-y of rook-a/rook-a is held in reserve meanwhile")
		s.drainMustContinue("node-a")

		other := s.busy(on.a, "node-c") // node-a has had the lease for more than a minute
		holds, _ = s.holds(on.a, "node-a")
		require.False(s, holds)
		time.Sleep(time.Minute)
		require.Contains(s, s.drainStatus("node-a").WaitsFor, "the lease of zone zone-y of rook-a/rook-a")
		s.drainMustContinue("node-a")
		s.tellDrain("node-c", jobs.SignalAbort)
		s.mustEnd("node-c", other, workflows.OutcomeAborted)
		time.Sleep(time.Minute)
		holds, inReserve = s.holds(on.a, "node-a")
		require.True(s, holds && inReserve)
		require.Equal(s, 2*lease.FirstReserve, s.keeperOf(on.a).Lease.Holders[0].Reserve, "more patient than before")

		blocked.set("cordon", false)
		s.tellDrain("node-b", jobs.SignalAbort)
		s.mustEnd("node-b", busy, workflows.OutcomeAborted)
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		s.tellDrain("node-a", jobs.SignalDone)
		s.mustEnd("node-a", run, workflows.OutcomeDone)
		s.awaitNothingLeft(time.Minute)
	}, secondCluster)
}

// TestDrainsOfTwoNodesOfBothClusters: they need the same leases, and go one after the other.
func TestDrainsOfTwoNodesOfBothClusters(t *testing.T) {
	t.Parallel()
	playTwo(t, func(s *scene, _ two) {
		nodes := []string{"node-a", "node-b", "node-c"}
		runs := map[string]string{}
		for _, node := range nodes {
			runs[node] = s.drain(drainOf(node))
		}
		for range nodes {
			var now string
			require.True(s, s.Await(10*time.Minute, func() bool {
				for _, node := range nodes {
					if s.runs(jobs.DrainNode.ID(node)) && s.drainStatus(node).Phase == awaitingNode {
						now = node
					}
				}
				return now != ""
			}))
			s.tellDrain(now, jobs.SignalDone)
			s.mustEnd(now, runs[now], workflows.OutcomeDone)
		}
		s.awaitNothingLeft(time.Minute)
	})
}

// TestLostInTheMiddle: one of the leases is taken away while the pods are evicted, and somebody else has it. The other
// one is given back, and the drain begins anew when it may.
func TestLostInTheMiddle(t *testing.T) {
	t.Parallel()
	opts, blocked := blockable(sim.Options{})
	play(t, opts, func(s *scene) {
		on := s.settleBoth()
		blocked.set("evict", true)
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", evicting, time.Minute)
		other := s.drain(drainOnly(on.a, "node-c"))
		time.Sleep(time.Minute)
		s.signal(workflows.KeeperID(on.a.Key()), workflows.SignalReleaseLease,
			workflows.LeaseRef{WorkflowID: jobs.DrainNode.ID("node-a"), RunID: run})
		require.True(s, s.Await(time.Minute, func() bool {
			holds, _ := s.holds(on.ceph, "node-a")
			return !holds && s.drainStatus("node-a").Phase == acquiringLease
		}), "it keeps what it has in the other cluster")
		require.Empty(s, on.ceph.Noout("node-a"))
		s.tellDrain("node-c", jobs.SignalAbort)
		s.mustEnd("node-c", other, workflows.OutcomeAborted)
		blocked.set("evict", false)
		s.awaitPhase("node-a", awaitingNode, 5*time.Minute)
		s.tellDrain("node-a", jobs.SignalDone)
		s.mustEnd("node-a", run, workflows.OutcomeDone)
		s.awaitNothingLeft(time.Minute)
	}, secondCluster)
}

// TestOnePolicyGoes: one of the clusters is no longer looked after while the node is away. The drain stays with the
// other one.
func TestOnePolicyGoes(t *testing.T) {
	t.Parallel()
	playTwo(t, func(s *scene, on two) {
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		on.a.DeletePolicy()
		require.True(s, s.Await(5*time.Minute, func() bool { return !on.a.PolicyExists() }))
		time.Sleep(time.Minute)
		require.Equal(s, awaitingNode, s.drainStatus("node-a").Phase)
		holds, inReserve := s.holds(on.ceph, "node-a")
		require.True(s, holds && !inReserve)
		s.tellDrain("node-a", jobs.SignalDone)
		s.mustEnd("node-a", run, workflows.OutcomeDone)
	})
}

// TestOneClusterDoesNotAnswer: what is waited for names the cluster.
func TestOneClusterDoesNotAnswer(t *testing.T) {
	t.Parallel()
	playTwo(t, func(s *scene, on two) {
		on.ceph.StopManager(true)
		time.Sleep(time.Minute)
		run := s.drain(drainOf("node-a"))
		time.Sleep(2 * time.Minute)
		require.Contains(s, s.drainStatus("node-a").WaitsFor, "rook-ceph/rook-ceph")
		require.Equal(s, atRest, on.a.Budget())
		on.ceph.StopManager(false)
		s.awaitPhase("node-a", awaitingNode, 5*time.Minute)
		s.tellDrain("node-a", jobs.SignalDone)
		s.mustEnd("node-a", run, workflows.OutcomeDone)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestGivenUpInReserve: a drain that is aborted, or terminated, while it holds one lease in reserve and waits for the
// other one leaves nothing behind.
func TestGivenUpInReserve(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *scene){
		"aborted":    func(s *scene) { s.tellDrain("node-a", jobs.SignalAbort) },
		"terminated": func(s *scene) { s.kill(jobs.DrainNode.ID("node-a")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts, blocked := blockable(sim.Options{})
			blocked.set("cordon", true)
			play(t, opts, func(s *scene) {
				on := s.settleBoth()
				busy := s.busy(on.ceph, "node-b")
				s.drain(drainOf("node-a"))
				require.True(s, s.Await(time.Minute, func() bool { _, inReserve := s.holds(on.a, "node-a"); return inReserve }))
				end(s)
				require.True(s, s.Await(time.Minute, func() bool {
					l := s.keeperOf(on.a).Lease
					return len(l.Holders)+len(l.Queue) == 0 && len(s.keeperOf(on.ceph).Lease.Queue) == 0
				}))
				s.tellDrain("node-b", jobs.SignalAbort)
				s.mustEnd("node-b", busy, workflows.OutcomeAborted)
				s.awaitNothingLeft(time.Minute)
			}, secondCluster)
		})
	}
}

// TestOutsideDrainOfTwoClusters: whichever watcher starts the drain that observes, it guards both clusters.
func TestOutsideDrainOfTwoClusters(t *testing.T) {
	t.Parallel()
	playTwo(t, func(s *scene, on two) {
		id := jobs.DrainNode.ID("node-a")
		ended := []<-chan error{on.a.KubectlDrain("node-a"), on.ceph.KubectlDrain("node-a")}
		for _, e := range ended {
			require.NoError(s, <-e)
		}
		require.True(s, s.until(time.Minute, func() bool { return s.last[id] != "" }))
		s.awaitPhase("node-a", awaitingNode, time.Minute)
		for _, x := range s.sights {
			holds, inReserve := s.holds(x, "node-a")
			require.True(s, holds && !inReserve, x.Key())
			require.NotEmpty(s, x.Noout("node-a"), x.Key())
		}
		run := s.last[id]
		s.onNode(func(w *sim.World) { w.Reboot("node-a") })
		time.Sleep(5 * time.Second)
		s.onNode(func(w *sim.World) { w.PersonCordons("node-a", false) })
		s.mustEnd("node-a", run, workflows.OutcomeDone)
		s.awaitNothingLeft(time.Minute)
	})
}
