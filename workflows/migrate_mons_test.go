package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
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
