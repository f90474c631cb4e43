package history_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestRelocated: whose data is moved away is told of, and also why it is not.
func TestRelocated(t *testing.T) {
	key := storage.ClusterKey{Namespace: "longhorn-system", Name: "l"}
	away := []storage.Relocation{{Node: "node-a", Away: true}, {Node: "node-b"}}
	for want, d := range map[string]struct {
		nodes []storage.Relocation
		done  activities.Attempt[activities.RelocateResult]
	}{
		"has data moved away from node-a, which is to be removed": {
			away, activities.Attempt[activities.RelocateResult]{Begun: true},
		},
		"did not have data moved away from node-a": {
			away, activities.Attempt[activities.RelocateResult]{
				Begun: true, Result: activities.RelocateResult{Refused: "forbidden"},
			},
		},
		"has no data moved away any more": {
			nil, activities.Attempt[activities.RelocateResult]{Begun: true, Result: activities.RelocateResult{Changed: true}},
		},
		"could not have data moved away from nodes that are to be removed: no answer": {
			away, activities.Attempt[activities.RelocateResult]{Begun: true, Failed: "no answer"},
		},
	} {
		p := newTape(t, "keeper/"+key.String())
		p.start(jobs.Keeper.Type, workflows.KeeperInput{Cluster: key})
		p.activity("CarryOut", activities.CarryInput{
			Cluster: key, Relocate: &activities.RelocateInput{Cluster: key, Nodes: d.nodes},
		}, activities.CarryResult{Relocated: d.done})
		told := history.Read(p.run)
		last := told[len(told)-1]
		assert.Equal(t, want, last.What)
		if d.done.Result.Refused != "" {
			assert.Contains(t, last.Facts, "because: forbidden")
		}
	}
}
