package kube

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// TestWatchFor: a watch over a node ends when its removal taint stops to count, which no event tells.
func TestWatchFor(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	tainted := func(ago time.Duration) activities.NodeState {
		set := strconv.FormatInt(now.Add(-ago).Unix(), 10)
		return activities.NodeState{Leaving: leaving.Signs{Tainted: true, Taint: set}}
	}
	for name, c := range map[string]struct {
		last activities.NodeState
		want time.Duration
	}{
		"in service":     {activities.NodeState{}, awaitNodeFor},
		"tainted now":    {tainted(0), awaitNodeFor},
		"about to end":   {tainted(time.Hour - time.Minute), time.Minute},
		"has ended":      {tainted(time.Hour), awaitNodeFor},
		"has ended long": {tainted(48 * time.Hour), awaitNodeFor},
	} {
		assert.Equal(t, c.want, watchFor(c.last, now), name)
	}
}
