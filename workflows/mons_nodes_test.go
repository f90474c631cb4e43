package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Clouds give a node another name than its label kubernetes.io/hostname, to which a store on a path is bound. The
// successor of a dead mon runs there all the same: when it is started the dead one has left.
func TestNodesWithAnotherHostname(t *testing.T) {
	t.Parallel()
	named := fiveZones
	named.Hosts = true
	simulated(t, sim.Options{}, named, func(s *scene, w *mons.World) {
		require.True(s, w.KillMon("b"))
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "c", "d"}, w.Names())
		require.Equal(s, []string{"FailOver: mon.d for mon.b"}, out.Steps)
		require.Empty(s, w.Whole())
		for _, m := range w.CephMon().Status.Mons {
			require.Equal(s, "n", m.Node[:1], "mon.%s is on node %s", m.Name, m.Node)
			require.NotEmpty(s, m.Zone)
		}
	})
}

// A disk of a node is lost with the node, also if it is a volume: its mon is replaced at once. One whose volume is of a
// zone waits for another node of it.
func TestTheNodeOfALocalVolumeIsDeleted(t *testing.T) {
	t.Parallel()
	for class, atOnce := range map[string]bool{"ssd": true, "disk": false} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			simulated(t, sim.Options{}, mons.Options{Mons: 3, Zones: 3, PerZone: 3}, func(s *scene, w *mons.World) {
				w.Spec("zones", mons.InZones("x", "y", "z"))
				w.Spec("claims", mons.Claims(class))
				out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{Migrate: true}), time.Hour)
				require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
				for _, zone := range []string{"x", "y", "z"} {
					w.Full(zone, true) // so that the mon has no other node
				}
				time.Sleep(time.Minute) // nothing that was begun follows any more
				w.DeleteNode(1)
				require.False(s, w.Alive("e"))
				run := s.migrate(workflows.MigrateMonsInput{})
				time.Sleep(mons.HealthTimeout / 2)
				if !atOnce {
					require.Contains(s, s.migrateStatus().WaitsFor, "mon.e is out of quorum; it is replaced if it stays so")
					w.Room()
					out = s.awaitMigration(run, time.Hour)
					require.Empty(s, out.Steps)
					return
				}
				require.Contains(s, s.migrateStatus().WaitsFor, "mon.e is dead: its node n")
				w.Room()
				out = s.awaitMigration(run, time.Hour)
				require.Equal(s, []string{"FailOver: mon.g for mon.e"}, out.Steps)
				require.Empty(s, w.Whole())
			})
		})
	}
}

// A mon on a claim has no node while a drain keeps it from its zone. That is no death, however long the drain takes;
// when the node is back, so is the mon.
func TestADrainKeepsAMonOnAClaimAway(t *testing.T) {
	t.Parallel()
	one := mons.Options{Mons: 3, Zones: 3, PerZone: 2}
	simulated(t, sim.Options{}, one, func(s *scene, w *mons.World) {
		w.Spec("zones", mons.InZones("x", "y", "z"))
		w.Spec("claims", mons.Claims("disk"))
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{Migrate: true}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"d", "e", "f"}, w.Names())
		for _, zone := range []string{"x", "y", "z"} {
			w.Full(zone, true) // so that the mon has no other node
		}
		w.Drain(1)
		time.Sleep(time.Minute)
		require.False(s, w.Alive("e"), "the drain has evicted it")
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(time.Hour)
		require.Contains(s, s.migrateStatus().WaitsFor, "mon.e is out of quorum, and drain/n")
		w.Room()
		w.NodesReturn()
		out = s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Empty(s, out.Steps)
		require.Equal(s, []string{"d", "e", "f"}, w.Names())
		require.Empty(s, w.Whole())
	})
}

// Where Rook looks after the mons the plan says what they lack, and whether the spec makes sense, and that none of it
// is done.
func TestPlanOnRook(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, fiveZones, func(s *scene, w *mons.World) {
		w.Spec("claims", mons.Claims("disk"))
		w.Rook(true)
		mode := monplan.Mode{Migrate: true}
		plan, err := w.Mons().Plan(s.Context(), mons.Ref, mode)
		require.NoError(s, err)
		require.Equal(s, "CephCluster rook", plan.Elsewhere)
		require.Contains(s, plan.Survey.Step.Why, "CephCluster rook looks after these mons")
		require.Len(s, plan.Mons, 3)
		require.Contains(s, plan.Mons[0].Different, "HostPath")
		require.Len(s, plan.Course, 4, "three moves, and the end")
		require.Equal(s, monplan.Migrate, plan.Course[0].Kind())
		w.Spec("of a class that is not there", mons.Claims("slow"))
		plan, err = w.Mons().Plan(s.Context(), mons.Ref, mode)
		require.NoError(s, err)
		require.NotEmpty(s, plan.Survey.Refused)
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{Migrate: true}), time.Hour)
		require.Equal(s, workflows.OutcomeRefused, out.Outcome)
		require.Empty(s, w.Acts())
	})
}

// With hostNetwork a newcomer has the address of its node. One that another mon has left rests for a while, also if no
// other node is left.
func TestAddressesRest(t *testing.T) {
	t.Parallel()
	four := mons.Options{Mons: 3, Zones: 4, PerZone: 1, HostNetwork: true}
	simulated(t, sim.Options{}, four, func(s *scene, w *mons.World) {
		require.True(s, w.KillMon("b"))
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, []string{"FailOver: mon.d for mon.b"}, out.Steps)
		left := w.CephMon().Status.LeftAddresses
		require.Len(s, left, 1)
		require.Equal(s, "b", left[0].Mon)
		time.Sleep(time.Minute)
		require.True(s, w.KillMon("c"))
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(mons.HealthTimeout + time.Minute)
		require.Contains(s, s.migrateStatus().WaitsFor, "a node for mon.e")
		require.Equal(s, []string{"a", "c", "d"}, w.Names(), "no place for the newcomer: nothing is removed")
		out = s.awaitMigration(run, time.Hour)
		require.Equal(s, []string{"FailOver: mon.e for mon.c"}, out.Steps)
		require.GreaterOrEqual(s, time.Since(left[0].Since.Time), monplan.AddressRests)
		require.Empty(s, w.Whole())
	})
}

// Whoever has mons moved as soon as the spec changes does not have them moved when labels of nodes do, also not those
// that lockkeeper has not made.
func TestAutomatic(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, mons.Options{Mons: 3, Zones: 4, PerZone: 2}, func(s *scene, w *mons.World) {
		looks := func() workflows.MigrateMonsResult {
			return s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		}
		w.Spec("zones, automatically", func(spec *v1alpha1.CephMonSpec) {
			mons.InZones("x", "y", "z", "u")(spec)
			spec.Migrate = v1alpha1.MigrateAutomatic
		})
		require.Empty(s, looks().Steps)
		require.Equal(s, []string{"u"}, w.CephMon().Status.EmptyZones)
		for _, zone := range []string{"nowhere", "y", "z"} {
			w.Relabel(0, zone)
			require.Empty(s, looks().Steps, "zone %s", zone)
			require.Equal(s, []string{"u"}, w.CephMon().Status.EmptyZones)
		}
		w.Spec("another image, which says nothing of zones", func(spec *v1alpha1.CephMonSpec) {
			spec.PodTemplate.Image = "ceph:2"
		})
		require.Equal(s, []string{"Restart: mon.a", "Restart: mon.b", "Restart: mon.c"}, looks().Steps)
		w.Relabel(0, "x")
		w.Spec("claims", mons.Claims("disk"))
		require.Equal(s, []string{"Migrate: mon.d for mon.a", "Migrate: mon.e for mon.b", "Migrate: mon.f for mon.c"},
			looks().Steps)
	})
}

// A node comes back with an empty disk while its mon leaves: the mon's pod makes a new store, and adds itself to the
// monmap once more after its successor was started, before it is ended. Then it has to leave again.
func TestAMonAddsItselfAgainAsItEnds(t *testing.T) {
	t.Parallel()
	slow := fiveZones
	slow.Draw = func(n int) int { return n - 1 } // whatever takes some time takes as long as it may
	simulated(t, sim.Options{}, slow, func(s *scene, w *mons.World) {
		w.Rook(true) // so that nobody replaces the mon while its node is away
		w.DeleteNode(0)
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, workflows.OutcomeRefused, out.Outcome)
		time.Sleep(mons.HealthTimeout + time.Minute)
		w.Rook(false)
		w.NodesReturn()
		out = s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"FailOver: mon.d for mon.a"}, out.Steps)
		story := strings.Join(w.Acts(), "\n")
		require.Equal(s, 2, strings.Count(story, "mon rm a"), story)
		require.Equal(s, []string{"b", "c", "d"}, w.Names())
		require.Empty(s, w.Leftovers())
		require.Empty(s, w.Whole())
	})
}
