package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// A monCourse is one way in which a step of MigrateMons goes from its beginning to its end.
type monCourse struct {
	opts mons.Options
	set  func(w *mons.World) // what makes it necessary
	in   workflows.MigrateMonsInput
	want []string // the mons afterwards, if nothing has gone wrong
}

var monCourses = map[string]monCourse{
	"a move": {
		opts: mons.Options{Mons: 3, Zones: 4, PerZone: 1}, in: workflows.MigrateMonsInput{Migrate: true},
		set: func(w *mons.World) { w.Spec("zones", mons.InZones("x", "y", "u")) }, want: []string{"a", "b", "d"},
	},
	"a failover": {
		opts: mons.Options{Mons: 3, Zones: 3, PerZone: 2}, want: []string{"a", "c", "d"},
		set: func(w *mons.World) {
			w.Spec("claims", mons.Claims("disk")) // of which new mons have one
			w.KillMon("b")
		},
	},
	"a removal": {
		opts: mons.Options{Mons: 4, Zones: 4, PerZone: 1}, in: workflows.MigrateMonsInput{Migrate: true},
		set:  func(w *mons.World) { w.Spec("count", func(s *v1alpha1.CephMonSpec) { s.Count = 3 }) },
		want: []string{"a", "b", "c"},
	},
	"one less": {
		opts: mons.Options{Mons: 3, Zones: 3, PerZone: 1}, in: workflows.MigrateMonsInput{Migrate: true, OneLess: true},
		set: func(w *mons.World) {
			w.OneLess()
			w.Spec("zone z has claims", func(s *v1alpha1.CephMonSpec) {
				mons.InZones("x", "y", "z")(s)
				mons.Claims("disk")(s)
				s.Zones[2].VolumeClaimTemplate, s.VolumeClaimTemplate = s.VolumeClaimTemplate, nil
			})
		},
		want: []string{"a", "b", "d"},
	},
	"another image": {
		opts: mons.Options{Mons: 3, Zones: 3, PerZone: 1, Own: true}, want: []string{"a", "b", "c"},
		set: func(w *mons.World) {
			w.Spec("another image", func(s *v1alpha1.CephMonSpec) { s.PodTemplate.Image = "ceph:2" })
		},
	},
}

// TestEveryStepOfAMigration plays each course again and again, and each time something happens at another call of the
// job, until there is none left. Whatever it is, the quorum stays, and in the end the mons are as the spec says and
// nothing is left behind.
func TestEveryStepOfAMigration(t *testing.T) {
	t.Parallel()
	for courseName, c := range monCourses {
		for mishapName, m := range monMishaps() {
			t.Run(courseName+"/"+mishapName, func(t *testing.T) {
				t.Parallel()
				often, closely := 96, 1
				if m.any { // of which there are ten times as many
					often, closely = 960, 5
				}
				at, every := turns.Steps("TestEveryStepOfAMigration: "+courseName+", "+mishapName, often, closely)
				atEachStep(t, at, every, 2000, func(t *testing.T, at int) (came bool) {
					api := &apiServer{}
					play(t, sim.Options{Fail: api.fail}, func(s *scene) {
						came = c.with(&monStage{scene: s, api: api}, m, int64(at))
					})
					return came
				})
			})
		}
	}
}

// with plays the course with the mishap at one call, and tells whether it came to that call.
func (c monCourse) with(s *monStage, m monMishap, at int64) (came bool) {
	var calls atomic.Int64
	var through atomic.Bool
	opts := c.opts
	opts.Fail = func(_ context.Context, op string, change bool) mons.Failure {
		if m.strike == nil || !change && !m.any || through.Load() || calls.Add(1)-1 != at {
			return mons.Failure{}
		}
		s.Tell("at %s:", op)
		return m.strike(s)
	}
	w := s.simulateMons(opts)
	s.w = w
	s.settle()
	c.set(w)
	var attempts atomic.Int64
	s.update(func() {
		happens := func(info activity.Info) bool { return attempts.Load()-1 == at && info.WorkflowExecution.ID == monsID }
		s.onAttempt = func(_ int, info activity.Info) { // which comes before fault
			if info.WorkflowExecution.ID != monsID || m.strike != nil {
				return
			}
			if attempts.Add(1); m.do != nil && happens(info) {
				s.Tell("at %s:", info.ActivityType.Name)
				m.do(s.scene, "")
			}
		}
		s.fault = func(_ int, info activity.Info) fault {
			if m.fault != noFault && happens(info) {
				return m.fault
			}
			return noFault
		}
	})
	e := s.awaitMigrationEnd(s.migrate(c.in))
	if m.survives {
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.moved.Outcome, e.moved.Why)
	}
	if m.survives && !m.others {
		require.Equal(s, c.want, asIfNoNameWasLost(w.Names()))
	}
	came = calls.Load()+attempts.Load() > at
	s.update(func() { s.fault, s.onAttempt = nil, nil })
	through.Store(true)
	s.until(10*time.Minute, func() bool { return s.running[monsID] == "" }) // also one that was terminated

	time.Sleep(time.Second) // what was said to this job is not for the next one
	in := c.in
	in.Migrate = true
	again := s.awaitMigrationEnd(s.migrate(in))
	require.NoError(s, again.err)
	require.Equal(s, workflows.OutcomeDone, again.moved.Outcome, again.moved.Why)
	w.NodesReturn()
	time.Sleep(time.Minute) // pods end, those on nodes that were silent among them
	require.Empty(s, w.Leftovers())
	require.Empty(s, w.Whole())
	require.Empty(s, w.Violations())
	w.Close()
	s.awaitNothingLeft(5 * time.Minute)
	require.Empty(s, s.Memory().Lease.Holders)
	return came
}

// asIfNoNameWasLost are mons of which the newcomer has the first free name. It has the next one if the look that gave
// the first was carried out, and its answer was lost.
func asIfNoNameWasLost(mons []string) []string {
	if len(mons) == 3 && mons[2] == "e" {
		return []string{mons[0], mons[1], "d"}
	}
	return mons
}

func (s *scene) awaitMigrationEnd(run string) (e ended) {
	s.Helper()
	if !s.until(3*time.Hour, func() (ok bool) { e, ok = s.ended[monsID+"@"+run]; return ok }) {
		s.Errorf("the job has not ended: %+v", s.migrateStatus())
	}
	return e
}
