package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
