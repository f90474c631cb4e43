package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// osdsBy is a world of twelve OSDs, two on each node, of a CephOSD with this update domain.
func osdsBy(domain string, more ...map[string]any) sim.Options {
	spec := map[string]any{"updateDomain": domain, "progressDeadline": "1m"}
	for _, m := range more {
		for k, v := range m {
			spec[k] = v
		}
	}
	return sim.Options{OSDsPerNode: 2, CephOSD: spec}
}

func TestUpdateOSDs(t *testing.T) {
	for domain, batches := range map[string]int{"OSD": 12, "Host": 6, "Zone": 3} {
		t.Run(domain, func(t *testing.T) {
			play(t, osdsBy(domain), func(s *scene) {
				s.settleOSDs()
				began := time.Now()
				s.SetImage("ceph:2")
				s.awaitUpdate("under way", time.Minute, func(u workflows.UpdateStatus) bool { return u.Batch != nil })
				s.mu.Lock()
				run := s.last[updateID]
				s.mu.Unlock()
				s.awaitImage("ceph:2", 10*time.Minute)
				s.Tell("it took %s", time.Since(began))
				e := s.ended[updateID+"@"+run]
				require.NoError(s, e.err)
				require.Equal(s, workflows.OutcomeDone, e.rollout.Outcome)
				require.Equal(s, 12, e.rollout.Replaced)
				require.Equal(s, batches, e.rollout.Batches)
				status := s.CephOSD().Status
				require.Equal(s, "12/12", status.Progress)
				require.Equal(s, "UpToDate", status.Reason)
				require.Nil(s, status.Halted)
				s.awaitWhole()
			})
		})
	}
}
