package workflows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is mons on nodes of which Kubernetes does not hear any more, with lockkeeper's own adapters in front of
// simulated mons.

// A mon whose node has lost its kubelet serves on, also when its pod was to be made anew elsewhere. It is no dead one,
// however long that takes. When the node is back its pod is replaced, and nobody misses it for long.
func TestAMonServesOnWithoutItsKubelet(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, fiveZones, func(s *scene, w *mons.World) {
		require.True(s, w.SilenceNode("n1", false))
		for range 4 {
			time.Sleep(15 * time.Minute)
			out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
			require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
			require.Empty(s, out.Steps)
			require.True(s, w.Alive("b"))
		}
		w.NodesReturn()
		time.Sleep(time.Minute)
		require.Equal(s, []string{"a", "b", "c"}, w.Names())
		require.Empty(s, w.Whole())
	})
}

// A node is deleted from Kubernetes, and its mon serves on. It is not replaced, whatever Kubernetes says; when it dies
// nobody waits for it, since nobody would start it again.
func TestAMonServesOnWithoutItsNode(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, fiveZones, func(s *scene, w *mons.World) {
		w.ForgetNode(1)
		require.Nil(s, w.Node("n1"))
		time.Sleep(2 * mons.HealthTimeout)
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "b", "c"}, w.Names())
		require.True(s, w.KillMon("b"))
		run := s.migrate(workflows.MigrateMonsInput{})
		replaced := func() bool { return len(w.Names()) == 3 && !w.Alive("b") && w.Alive("d") }
		require.True(s, s.Await(mons.HealthTimeout-10*time.Second, replaced), "%v: %+v", w.Names(), s.migrateStatus())
		out = s.awaitMigration(run, time.Hour)
		require.Equal(s, []string{"FailOver: mon.d for mon.b"}, out.Steps)
		require.Empty(s, w.Whole())
	})
}

// A living mon is to leave before its successor joins, and while that waits for the lease nobody hears any more of the
// node that was found for the successor. Nothing is removed before there is one that works.
func TestTheSuccessorsNodeIsNotHeardOf(t *testing.T) {
	t.Parallel()
	course := monCourses["one less"]
	simulated(t, sim.Options{}, course.opts, func(s *scene, w *mons.World) {
		course.set(w)
		drained := s.drain(drainOf("node-a"))
		s.awaitPhaseOrEnd("node-a", awaitingNode)
		run := s.migrate(course.in)
		s.awaitPhaseOfMons(workflows.PhaseLease)
		require.Equal(s, "n2", w.SuccessorNode())
		require.True(s, w.SilenceNode("n2", false))
		time.Sleep(2 * time.Minute)
		s.tellDrain("node-a", jobs.SignalDone)
		require.NoError(s, s.awaitEnd("node-a", drained, time.Hour).err)
		time.Sleep(2 * time.Minute)
		require.Equal(s, []string{"a", "b", "c"}, w.Names())
		require.Empty(s, s.Memory().Lease.Holders, "who waits for a node keeps nobody waiting")
		require.Contains(s, s.migrateStatus().WaitsFor, "a node for mon.d")
		w.NodesReturn()
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, course.want, w.Names())
		require.Empty(s, w.Whole())
	})
}

// A mon that is to get another image is on a node that is not heard of. It is restarted when the node is back, and
// until then nobody waits for the lease.
func TestRestartOnANodeThatIsNotHeardOf(t *testing.T) {
	t.Parallel()
	own := fiveZones
	own.Own = true
	simulated(t, sim.Options{}, own, func(s *scene, w *mons.World) {
		require.True(s, w.SilenceNode("n1", false))
		time.Sleep(time.Minute)
		w.Spec("another image", func(spec *v1alpha1.CephMonSpec) { spec.PodTemplate.Image = "ceph:2" })
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(20 * time.Minute)
		require.Empty(s, s.Memory().Lease.Holders, "%+v", s.migrateStatus())
		require.Contains(s, s.migrateStatus().WaitsFor, "n1")
		w.NodesReturn()
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"Restart: mon.a", "Restart: mon.c", "Restart: mon.b"}, out.Steps)
		require.Empty(s, w.Whole())
	})
}

// A newcomer is started, and its node loses its power for good. Its claim cannot go before the node does, and nobody
// waits for that: when its time is over the next one is made.
func TestTheNewcomersNodeHasNoPower(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, mons.Options{Mons: 3, Zones: 3, PerZone: 3}, func(s *scene, w *mons.World) {
		w.Spec("claims", mons.Claims("disk"))
		require.True(s, w.KillMon("b"))
		run := s.migrate(workflows.MigrateMonsInput{})
		started := func() bool { return slices.Contains(w.Acts(), "create rook-ceph-mon-d") }
		require.True(s, s.Await(10*time.Minute, started), "%v", w.Acts())
		require.True(s, s.Await(time.Minute, func() bool { return w.SuccessorNode() != "" }))
		require.True(s, w.SilenceNode(w.SuccessorNode(), true))
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "c", "e"}, w.Names())
		w.NodesReturn()
	})
}
