package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestFactsAreAsOfADoubt: what was proved of the data, who gave a sign of life and what the budgets say count until
// they are doubted, and again as soon as they are asked for anew. Somebody who is known to be silent stays so.
func TestFactsAreAsOfADoubt(t *testing.T) {
	k := &keeper{}
	k.state.Watched.Health.Fresh, k.state.Life = true, &storage.Life{}
	counts := func() []bool { return []bool{k.health().Fresh, k.lives() != nil, k.undoubted()} }
	assert.Equal(t, []bool{true, true, true}, counts())

	doubts := &k.state.Doubts
	doubts.Raise(time.Time{}, doubt.Changed, "")
	assert.Equal(t, []bool{true, true, false}, counts())
	doubts.Raise(time.Time{}, doubt.PodStopped, "")
	assert.Equal(t, []bool{false, false, false}, counts())
	k.state.Life = &storage.Life{Silent: 1}
	assert.Equal(t, []bool{false, true, false}, counts())

	k.state.WatchedAsOf, k.state.LifeAsOf, k.state.AppliedAsOf = doubts.Last, doubts.Last, doubts.Last
	k.state.Life = &storage.Life{}
	assert.Equal(t, []bool{true, true, true}, counts())
}

// TestWhoIsAboutToLeave: before anybody opens, the budgets at rest are closed; also before the first look, if the watch
// tells of it. What was proved goes on to count.
func TestWhoIsAboutToLeave(t *testing.T) {
	k := &keeper{}
	k.state.Life = &storage.Life{}
	k.saw(time.Time{}, activities.Watched{Health: storage.Health{Fresh: true}}, 0)
	assert.Empty(t, k.state.Doubts.Unanswered)
	k.saw(time.Time{}, activities.Watched{Health: storage.Health{Fresh: true}, Opens: "node-a"}, 0)
	assert.True(t, k.health().Fresh)
	assert.NotNil(t, k.lives())
	assert.True(t, k.undoubted())
	why, closes := k.state.Doubts.Answer(&budget.Decision{Mode: budget.ModeDefault}, false)
	assert.True(t, closes)
	assert.Equal(t, "node-a is about to leave", why)
}

// TestAnOlderVersionMayHaveDoubted: what a run knew that numbered no doubts does not count; of one that did, it does.
func TestAnOlderVersionMayHaveDoubted(t *testing.T) {
	var older, newer KeeperState
	older.Watched.Health.Fresh = true
	newer.Watched.Health.Fresh = true
	newer.Doubts.Raise(time.Time{}, doubt.Changed, "")
	k := &keeper{}
	k.takeUp(older, time.Unix(1, 0))
	assert.False(t, k.health().Fresh)
	assert.True(t, k.state.Doubts.Unheard())
	k.takeUp(newer, time.Unix(1, 0))
	assert.True(t, k.health().Fresh)
	assert.False(t, k.state.Doubts.Unheard())
}
