package workflows_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file has MigrateMons wait, and refuse what cannot work, with lockkeeper's own adapters in front of simulated
// mons: what it says is what a person reads.

// fiveZones is a world with a mon in each of zones x, y and z, and a node without one in each of u and v.
var fiveZones = mons.Options{Mons: 3, Zones: 5, PerZone: 1}

// simulated plays a script in a scene with simulated mons. In the end nothing is left that is under way.
func simulated(t *testing.T, world sim.Options, opts mons.Options, script func(s *scene, w *mons.World)) {
	t.Helper()
	play(t, world, func(s *scene) {
		w := s.simulateMons(opts)
		if world.CephOSD == nil {
			s.settle()
		} else {
			s.settleOSDs()
		}
		script(s, w)
		time.Sleep(10 * time.Second) // pods end
		require.Empty(s, w.Violations())
		require.Empty(s, w.Leftovers())
		w.Close()
	})
}

// What cannot work is refused before anything is changed, by the field that is wrong. When it is mended, it works.
func TestBadCephMons(t *testing.T) {
	t.Parallel()
	type spec = *v1alpha1.CephMonSpec
	for name, c := range map[string]struct {
		opts mons.Options
		set  func(s spec)
		why  string
	}{
		"an unknown zone": {fiveZones, func(s spec) { mons.InZones("x", "y", "w")(s) }, `spec.zones[2].name: "w"`},
		"an unknown label": {fiveZones, func(s spec) {
			mons.InZones("x", "y", "z")(s)
			s.FailureDomainLabel = "topology.rook.io/rack"
		}, `spec.failureDomainLabel: "topology.rook.io/rack"`},
		"an unknown class": {fiveZones, mons.Claims("slow"), `storageClassName: "slow": must be a StorageClass`},
		"a zone twice": {
			fiveZones, func(s spec) { mons.InZones("x", "y", "x")(s) },
			`spec.zones[2].name: "x": is the same as spec.zones[0].name`,
		},
		"a field of the template without effect": {fiveZones, func(s spec) {
			mons.Claims("disk")(s)
			s.VolumeClaimTemplate.Spec.VolumeName = "mine"
		}, `spec.volumeClaimTemplate.spec.volumeName: "mine": is not honoured`},
		"more than there are zones": {fiveZones, func(s spec) {
			mons.InZones("x", "y", "z")(s)
			s.Count = 4
		}, `spec.count: "4": must be at most 3`},
		"more than there are nodes": {fiveZones, func(s spec) { s.Count = 6 }, `spec.count: "6": must be at most 5`},
		"fewer than a majority": {
			mons.Options{Mons: 5, Zones: 5, PerZone: 1},
			func(s spec) { s.Count = 2 },
			`spec.count: "2": must be at least 3, a majority of the 5 mons`,
		},
		"no volume that a person has made": {fiveZones, func(s spec) {
			mons.InZones("x", "y", "u")(s)
			mons.Claims("local")(s)
		}, `"local": must have a free volume`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, sim.Options{}, c.opts, func(s *scene, w *mons.World) {
				before := w.CephMon().Spec
				w.Spec(name, c.set)
				out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{Migrate: true}), time.Minute)
				require.Equal(s, workflows.OutcomeRefused, out.Outcome)
				require.Contains(s, out.Why, c.why)
				require.Empty(s, w.Acts())
				status := w.CephMon().Status
				require.Equal(s, "Refused", status.Reason)
				require.Contains(s, status.Message, c.why)
				w.Spec("as it was", func(s spec) { *s = before })
				out = s.awaitMigration(s.migrate(workflows.MigrateMonsInput{Migrate: true}), time.Minute)
				require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
			})
		})
	}
}

// An even count is allowed, and warned of.
func TestEvenCountOfMons(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, fiveZones, func(s *scene, w *mons.World) {
		w.Spec("four", func(s *v1alpha1.CephMonSpec) { s.Count = 4 })
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "b", "c", "d"}, w.Names())
		require.Contains(s, w.CephMon().Status.Warnings[0], "spec.count 4 is even")
	})
}

// awaitPhaseOfMons waits until the job waits in a phase, and returns what it says.
func (s *scene) awaitPhaseOfMons(phase string) (waitsFor string) {
	s.Helper()
	var status workflows.MigrateMonsStatus
	if !s.Await(10*time.Minute, func() bool { status = s.migrateStatus(); return status.Phase == phase }) {
		s.Fatalf("the job should be in phase %s: %+v", phase, status)
	}
	return status.WaitsFor
}

// Where the scheduler has no room in the only zone that is left, the job waits, says for what, and leaves nothing.
func TestZoneWithoutRoom(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, fiveZones, func(s *scene, w *mons.World) {
		w.Full("u", true)
		w.Spec("zones", mons.InZones("x", "y", "u"))
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		require.Contains(s, s.awaitPhaseOfMons(workflows.PhaseMonSchedule), "a node for mon.d")
		time.Sleep(time.Hour)
		require.Equal(s, workflows.PhaseMonSchedule, s.migrateStatus().Phase)
		require.Empty(s, s.Memory().Lease.Holders, "who waits for a node keeps nobody waiting")
		s.signal(monsID, jobs.SignalAbort, nil)
		require.Equal(s, workflows.OutcomeAborted, s.awaitMigration(run, 10*time.Minute).Outcome)
		time.Sleep(10 * time.Second)
		require.Empty(s, w.Leftovers())
		require.Equal(s, []string{"a", "b", "c"}, w.Names())
		w.Full("u", false)
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{Migrate: true}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "b", "e"}, w.Names(), "no name is given twice")
		require.Empty(s, w.Whole())
	})
}

// With two of three mons down nothing is begun, and the status says what a person has to do.
func TestTwoOfThreeMonsDown(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, fiveZones, func(s *scene, w *mons.World) {
		w.Lose("a", "b")
		w.Spec("zones", mons.InZones("x", "y", "u"))
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		time.Sleep(time.Minute)
		require.Contains(s, s.migrateStatus().WaitsFor, "Ceph has not committed anything")
		require.Equal(s, "NoQuorum", w.CephMon().Status.Reason)
		require.Empty(s, w.Acts())
		w.Revive()
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Empty(s, w.Whole())
	})
}

// A zone's storage class is dead. The quorum stays, and a mon that dies meanwhile is replaced before the move goes on.
func TestDeadStorageClass(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{}, mons.Options{Mons: 3, Zones: 5, PerZone: 2}, func(s *scene, w *mons.World) {
		w.Class(3, true) // zone u
		w.Spec("zones", mons.InZones("x", "y", "u"))
		w.Spec("claims", mons.Claims("disk"))
		w.Full("x", true)
		w.Full("y", true)
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		// Its canary has found the zone, and waits there for its volume.
		require.Contains(s, s.awaitPhaseOfMons(workflows.PhaseMonSchedule), "a node for mon.d")
		claimed := func() bool { return slices.Contains(w.Acts(), "create claim rook-ceph-mon-d") }
		require.True(s, s.Await(time.Minute, claimed), "%v", w.Acts())
		time.Sleep(10 * time.Minute)
		require.Equal(s, []string{"a", "b", "c"}, w.Names())
		require.Empty(s, s.Memory().Lease.Holders, "who waits for a volume keeps nobody waiting")
		w.Room()
		w.KillMon("b")
		s.signal(monsID, workflows.SignalMonsChanged, "mon.b is out of quorum")
		replaced := func() bool { return len(w.Names()) == 3 && w.Names()[1] != "b" }
		require.True(s, s.Await(time.Hour, replaced), "%v", w.Names())
		w.Class(0, false)
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		time.Sleep(10 * time.Second)
		require.Empty(s, w.Whole())
	})
}

// A drain, a fence, a rollout of OSDs and a migration of mons, all at once: one after the other they get the lease.
func TestMigrationBesideEverything(t *testing.T) {
	t.Parallel()
	simulated(t, osdsBy("Zone"), fiveZones, func(s *scene, w *mons.World) {
		s.SetFencing(true)
		s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "the policy changed"})
		held := func() bool { return s.Status().Fencing != nil && s.Status().Fencing.Held == 6 }
		require.True(s, s.Await(time.Minute, held))
		w.Spec("claims", mons.Claims("disk"))
		s.SetImage("ceph:2")
		drained := s.drain(drainOf("node-a"))
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		s.machines.LosePower("node-d")
		fenced := s.fence("node-d")
		go func() {
			for s.runs(jobs.DrainNode.ID("node-a")) {
				time.Sleep(time.Minute)
				s.tellDrain("node-a", jobs.SignalDone)
			}
		}()
		require.NoError(s, s.awaitFence("node-d", fenced).err)
		require.NoError(s, s.awaitEnd("node-a", drained, 3*time.Hour).err)
		out := s.awaitMigration(run, 3*time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		s.awaitImage("ceph:2", time.Hour)
		require.Empty(s, w.Whole())
		s.heldAgain()
	})
}

// A step is taken back while the pod of its newcomer still makes the store. A pod that ends takes its time, and may
// join until it is gone.
func TestLateNewcomer(t *testing.T) {
	t.Parallel()
	slow := fiveZones
	slow.Draw = func(n int) int { return n - 1 }
	simulated(t, sim.Options{}, slow, func(s *scene, w *mons.World) {
		w.Spec("zones", mons.InZones("x", "y", "u"))
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		started := func() bool { return slices.Contains(w.Acts(), "create rook-ceph-mon-d") }
		require.True(s, s.Await(5*time.Minute, started), "%v", w.Acts())
		time.Sleep(9500 * time.Millisecond) // the canary's pod ends, the mon's starts, and makes its store
		s.signal(monsID, jobs.SignalAbort, nil)
		require.Equal(s, workflows.OutcomeAborted, s.awaitMigration(run, 10*time.Minute).Outcome)
		time.Sleep(time.Minute)
		require.Contains(s, w.Acts(), "mon rm d", "it was in the monmap: otherwise this proves nothing")
		require.Equal(s, []string{"a", "b", "c"}, w.Names())
	})
}

// The spec gets an image with which no mon starts: the job is refused before any mon gets it, and a plan asks nobody.
// One whose version nobody knows waits until a person says it.
func TestImageThatMonsCannotTake(t *testing.T) {
	t.Parallel()
	own := fiveZones
	own.Own = true
	simulated(t, sim.Options{}, own, func(s *scene, w *mons.World) {
		give := func(image string) {
			w.Spec(image, func(spec *v1alpha1.CephMonSpec) { spec.PodTemplate.Image = image })
		}
		done := func() []string { // beside asking
			return slices.DeleteFunc(w.Acts(), func(act string) bool { return strings.Contains(act, " pod version-of-") })
		}
		for image, why := range map[string]string{
			"ceph:16.2.15": "mon.a runs Ceph 18.2.0, and its store cannot go back to 16.2.15",
			"ceph:23.2.0":  "take one in between first",
		} {
			give(image)
			plan, err := w.Mons().Plan(s.Context(), mons.Ref, monplan.Mode{})
			require.NoError(s, err)
			require.Contains(s, strings.Join(plan.Survey.Warnings, "\n"), "is asked before any mon gets it")
			require.Empty(s, w.Asking())
			out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
			require.Equal(s, workflows.OutcomeRefused, out.Outcome)
			require.Contains(s, out.Why, "spec.podTemplate.image "+image)
			require.Contains(s, out.Why, why)
			plan, err = w.Mons().Plan(s.Context(), mons.Ref, monplan.Mode{})
			require.NoError(s, err)
			require.Contains(s, plan.Survey.Step.Why, why, "by now it is known")
			require.Empty(s, done())
		}
		w.Withhold("ceph:2", true)
		give("ceph:2")
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(5 * time.Minute)
		require.Contains(s, s.migrateStatus().WaitsFor, "ErrImagePull")
		require.Empty(s, done())
		w.Say("18.2.9")
		restarted := func() bool { return slices.Contains(w.Acts(), "patch rook-ceph-mon-a") }
		require.True(s, s.Await(10*time.Minute, restarted), "%+v", s.migrateStatus())
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Empty(s, w.Whole())
	})
}

// The spec gets an image with which no mon starts right after the look at another one: no mon gets it.
func TestTheImageChangesRightBeforeARestart(t *testing.T) {
	t.Parallel()
	own := fiveZones
	own.Own = true
	simulated(t, sim.Options{}, own, func(s *scene, w *mons.World) {
		give := func(image string) {
			w.Spec(image, func(spec *v1alpha1.CephMonSpec) { spec.PodTemplate.Image = image })
		}
		var once sync.Once
		s.update(func() {
			s.onAttempt = func(_ int, info activity.Info) {
				if info.ActivityType.Name == "CarryOutMon" {
					once.Do(func() { give("ceph:16.2.15") })
				}
			}
		})
		give("ceph:2")
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(time.Minute)
		require.NotContains(s, w.Acts(), "patch rook-ceph-mon-a")
		give("ceph:2")
		out := s.awaitMigration(run, time.Hour)
		for out.Outcome == workflows.OutcomeRefused { // it was over by then
			out = s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		}
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Empty(s, w.Whole())
	})
}

// A mon that gets another image never comes back, as with an image that is broken. After its time it is replaced,
// although the lease was held for it, and although the keeper waits for it.
func TestRestartedMonThatStaysAway(t *testing.T) {
	t.Parallel()
	own := fiveZones
	own.Own = true
	simulated(t, sim.Options{}, own, func(s *scene, w *mons.World) {
		w.Spec("another image", func(s *v1alpha1.CephMonSpec) { s.PodTemplate.Image = "ceph:2" })
		run := s.migrate(workflows.MigrateMonsInput{})
		restarted := func() bool { return slices.Contains(w.Acts(), "patch rook-ceph-mon-a") }
		require.True(s, s.Await(5*time.Minute, restarted), "%v", w.Acts())
		w.Lose("a")
		s.Kill("mon.a", 40*time.Minute) // as the keeper sees it, which has mons of its own
		time.Sleep(20 * time.Minute)
		require.Equal(s, []string{"b", "c", "d"}, w.Names(), "%+v", s.migrateStatus())
		out := s.awaitMigration(run, 3*time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		steps := []string{"FailOver: mon.d for mon.a", "Restart: mon.b", "Restart: mon.c"}
		require.Equal(s, steps, out.Steps[len(out.Steps)-len(steps):])
		require.Empty(s, w.Whole())
	})
}

// A mon dies right after the look that decides to restart another one. Ceph still counts it then; a commit does not.
func TestAMonDiesRightBeforeARestart(t *testing.T) {
	t.Parallel()
	five := mons.Options{Mons: 5, Zones: 5, PerZone: 1, Own: true} // of which two may be away
	simulated(t, sim.Options{}, five, func(s *scene, w *mons.World) {
		var once sync.Once
		s.update(func() {
			s.onAttempt = func(_ int, info activity.Info) {
				if info.ActivityType.Name == "CarryOutMon" {
					once.Do(func() { require.True(s, w.KillMon("b")) })
				}
			}
		})
		w.Spec("another image", func(s *v1alpha1.CephMonSpec) { s.PodTemplate.Image = "ceph:2" })
		run := s.migrate(workflows.MigrateMonsInput{})
		time.Sleep(time.Minute)
		require.Contains(s, s.migrateStatus().WaitsFor, "out of quorum: mon.b")
		require.NotContains(s, w.Acts(), "patch rook-ceph-mon-a")
		w.Revive()
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
	})
}

// The quorum is lost in the moment in which a dead mon leaves, and nobody waits for that any more when it is back: with
// the one that was dead, and without one that lived. Then nobody leaves.
func TestARemovalThatNobodyWaitsForAnyMore(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var w *mons.World
	three := mons.Options{Mons: 3, Zones: 3, PerZone: 2, Fail: func(_ context.Context, op string, _ bool) mons.Failure {
		if op == "mon rm b" {
			once.Do(func() { w.Lose("c") })
		}
		return mons.Failure{}
	}}
	simulated(t, sim.Options{}, three, func(s *scene, world *mons.World) {
		w = world
		require.True(s, w.KillMon("b"))
		run := s.migrate(workflows.MigrateMonsInput{})
		require.True(s, s.Await(10*time.Minute, func() bool { return !w.Alive("c") }), "%v", w.Acts())
		time.Sleep(time.Minute)
		w.Revive("b")
		time.Sleep(20 * time.Second)
		require.Equal(s, []string{"a", "b", "c"}, w.Names())
		w.Revive("c")
		out := s.awaitMigration(run, time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"FailOver: mon.d for mon.b, rolled back: mon.b is in quorum again"}, out.Steps)
	})
}

// A superfluous mon is dead, so that it may leave without a lease. It is back after the look that says so.
func TestADeadMonIsBackRightBeforeItLeaves(t *testing.T) {
	t.Parallel()
	four := mons.Options{Mons: 4, Zones: 4, PerZone: 1}
	simulated(t, sim.Options{}, four, func(s *scene, w *mons.World) {
		var once sync.Once
		s.update(func() {
			s.onAttempt = func(_ int, info activity.Info) {
				if info.ActivityType.Name == "CarryOutMon" {
					once.Do(func() { w.Revive(); time.Sleep(20 * time.Second) })
				}
			}
		})
		w.Spec("count", func(s *v1alpha1.CephMonSpec) { s.Count = 3 })
		require.True(s, w.KillMon("b"))
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "b", "c", "d"}, w.Names(), "only a person has superfluous living ones removed")
	})
}

// A newcomer is to be taken back, and comes into quorum after the look that says so. It stays: a mon in quorum is never
// taken back, and another one may have died by then.
func TestANewcomerIsInQuorumRightBeforeItLeaves(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var w *mons.World
	three := mons.Options{Mons: 3, Zones: 3, PerZone: 2, Fail: func(_ context.Context, op string, _ bool) mons.Failure {
		if op == "mon ok-to-rm" {
			once.Do(func() { w.Shy(false); time.Sleep(20 * time.Second) })
		}
		return mons.Failure{}
	}}
	simulated(t, sim.Options{}, three, func(s *scene, world *mons.World) {
		w = world
		w.Spec("claims", mons.Claims("disk"))
		w.Shy(true)
		run := s.migrate(workflows.MigrateMonsInput{Migrate: true})
		require.True(s, s.Await(time.Minute, func() bool { return slices.Contains(w.Names(), "d") }))
		s.signal(monsID, jobs.SignalAbort, nil)
		require.Equal(s, workflows.OutcomeAborted, s.awaitMigration(run, 10*time.Minute).Outcome)
		require.Equal(s, []string{"a", "b", "c", "d"}, w.Names())
		require.NotContains(s, w.Acts(), "mon rm d")
	})
}

// A superfluous mon is to leave, and the count is raised after the look that says so: whoever tries again, perhaps long
// after that, finds that it is not superfluous any more.
func TestACountIsRaisedRightBeforeAMonLeaves(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var w *mons.World
	five := mons.Options{Mons: 5, Zones: 5, PerZone: 1, Fail: func(_ context.Context, op string, _ bool) mons.Failure {
		failure := mons.Failure{}
		if op == "mon ok-to-rm" {
			once.Do(func() {
				go w.Spec("five again", func(s *v1alpha1.CephMonSpec) { s.Count = 5 })
				failure.Err = errLost
			})
		}
		return failure
	}}
	simulated(t, sim.Options{}, five, func(s *scene, world *mons.World) {
		w = world
		w.Spec("three", func(s *v1alpha1.CephMonSpec) { s.Count = 3 })
		out := s.awaitMigration(s.migrate(workflows.MigrateMonsInput{Migrate: true}), time.Hour)
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"a", "b", "c", "d", "e"}, w.Names())
		require.NotContains(s, w.Acts(), "mon rm e")
	})
}
