package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestMarksNoMoreThanTheBudgetCounts: two OSDs have become ready since the budget was written that counts four marks.
// They are proved as well, and get none before a budget counts them.
func TestMarksNoMoreThanTheBudgetCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(sim.Options{})
		defer func() {
			w.Close()
			time.Sleep(time.Minute) // until all that it does has ended
		}()
		time.Sleep(time.Minute)
		c, err := cephcluster.New(w.Kubernetes(), w).StorageCluster(t.Context(), sim.Key)
		require.NoError(t, err)
		policy, err := w.Kubernetes().MaintenancePolicy(t.Context(), sim.Key)
		require.NoError(t, err)
		for range 2 { // who goes on after a crash counts those that were marked before it
			out, err := c.Mark(t.Context(), activities.Marking{Most: 4}, func(activities.Marked) {})
			require.NoError(t, err)
			require.Equal(t, 2, out.Left)
			pods, err := w.Kubernetes().StoragePods(t.Context(), policy)
			require.NoError(t, err)
			marked := 0
			for i := range pods {
				if pods[i].Marked() {
					marked++
				}
			}
			require.Equal(t, 4, marked)
		}
		out, err := c.Mark(t.Context(), activities.Marking{Most: 6}, func(activities.Marked) {})
		require.NoError(t, err)
		require.Equal(t, activities.Marked{Done: 2}, out)
	})
}
