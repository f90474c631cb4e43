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

// TestDetached: what was attached by hand, and is not any more, is told of; also why it is still.
func TestDetached(t *testing.T) {
	in := activities.DetachInput{Cluster: storage.ClusterKey{Namespace: "longhorn-system", Name: "l"}, Node: "node-a"}
	for want, d := range map[string]activities.Detached{
		"detached vol-1, vol-2 from node-a, which was attached by hand":          {Names: []string{"vol-1", "vol-2"}},
		"found nothing in longhorn-system/l that was attached to node-a by hand": {},
		"detached nothing of longhorn-system/l from node-a":                      {Refused: "forbidden"},
	} {
		p := newTape(t, jobs.DrainNode.ID("node-a"))
		p.start(jobs.DrainNode.Type, workflows.DrainNodeInput{Node: "node-a"})
		p.activity("DetachByHand", in, d)
		told := history.Read(p.run)
		last := told[len(told)-1]
		assert.Equal(t, want, last.What)
		if d.Refused != "" {
			assert.Contains(t, last.Facts, "because: forbidden")
		}
	}
}
