package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestScaleDownIsTold: who wanted the node gone, and why.
func TestScaleDownIsTold(t *testing.T) {
	p := newTape(t, jobs.ScaleDownNode.ID("node-a"))
	p.start(jobs.ScaleDownNode.Type, workflows.ScaleDownNodeInput{Node: "node-a", Reason: "too many nodes", Policy: "a/b"})
	cordoned := leaving.Sight{Found: true, UID: "1", Signs: leaving.Signs{Cordoned: true, Until: "2026-11-26T13:00:00Z"}}
	p.activity("AwaitSigns", activities.AwaitSignsInput{Node: "node-a"}, cordoned)
	p.activity("AwaitSigns", activities.AwaitSignsInput{Node: "node-a", Last: cordoned}, leaving.Sight{Found: true})
	p.activity("AwaitSigns", activities.AwaitSignsInput{Node: "node-a"}, leaving.Sight{})
	p.end(workflows.ScaleDownNodeResult{Outcome: workflows.OutcomeGone, Turns: 3, Took: time.Hour, Waited: time.Minute})
	told := words(history.Read(p.run))
	assert.Contains(t, told, "node-a is to leave; this job sees it through that")
	assert.Contains(t, told, "why: too many nodes")
	assert.Contains(t, told, "policy: a/b")
	assert.Contains(t, told, "node-a is cordoned\n        until: 2026-11-26T13:00:00Z")
	assert.Contains(t, told, "node-a is not leaving")
	assert.Contains(t, told, "node-a is gone")
	assert.Contains(t, told, "ended: Gone")
	assert.Contains(t, told, "after 1h0m0s, of which 1m0s waiting for the lease")
	assert.Contains(t, told, "the lease went back to others 3 times")
}
