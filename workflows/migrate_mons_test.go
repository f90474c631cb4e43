package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var monsID = jobs.MigrateMons.ID("n", "mons")

// playMons plays a script in a scene with mons.
func playMons(t *testing.T, mons string, script func(*scene, *monWorld)) {
	t.Helper()
	play(t, sim.Options{}, func(s *scene) {
		w := newMonWorld(s, mons)
		s.settle()
		script(s, w)
		for _, wrong := range w.wrong {
			s.Error(wrong)
		}
	})
}

// migrate starts the job as a person or the watcher does.
func (s *scene) migrate(in workflows.MigrateMonsInput) (run string) {
	in.CephMon = "n/mons"
	return s.start(monsID, jobs.MigrateMons.Type, in)
}

func (s *scene) migrateStatus() (status workflows.MigrateMonsStatus) {
	s.query(monsID, &status)
	return status
}

func (s *scene) awaitMigration(run string, within time.Duration) workflows.MigrateMonsResult {
	s.Helper()
	var e ended
	if !s.until(within, func() (ok bool) { e, ok = s.ended[monsID+"@"+run]; return ok }) {
		s.Fatalf("the job has not ended: %+v; %v", s.migrateStatus(), s.mons.acts)
	}
	require.NoError(s, e.err)
	return e.moved
}

// moved runs the job to its end.
func (s *scene) moved(in workflows.MigrateMonsInput) workflows.MigrateMonsResult {
	s.Helper()
	out := s.awaitMigration(s.migrate(in), 3*time.Hour)
	require.Empty(s, s.mons.leftovers())
	s.awaitNothingLeft(time.Minute)
	require.Empty(s, s.Memory().Lease.Holders, "the lease is given back")
	return out
}

func TestMonsMoveToClaims(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		w.want.Storage[""] = monplan.Storage{Claim: true}
		out := s.moved(workflows.MigrateMonsInput{Migrate: true})
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"d", "e", "f"}, w.monmap)
		require.Equal(s, []string{"d", "e", "f"}, w.endpoints)
		require.Equal(s, []string{
			"Migrate: mon.d for mon.a", "Migrate: mon.e for mon.b", "Migrate: mon.f for mon.c",
		}, out.Steps)
	})
}

// A mon that is dead leaves first, and nobody is asked for the lease.
func TestDeadMonIsReplaced(t *testing.T) {
	t.Parallel()
	playMons(t, "abc", func(s *scene, w *monWorld) {
		require.True(s, w.dies("b"))
		began := time.Now()
		out := s.moved(workflows.MigrateMonsInput{})
		require.Equal(s, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(s, []string{"FailOver: mon.d for mon.b"}, out.Steps)
		require.Equal(s, []string{"a", "c", "d"}, w.monmap)
		require.Equal(s, []string{"a", "c", "d"}, w.endpoints)
		require.GreaterOrEqual(s, time.Since(began), w.want.HealthTimeout, "not before its time")
	})
}
