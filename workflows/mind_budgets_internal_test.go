package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestRelocation: data is moved once the budgets say what was decided, or are about to; once; and again after nobody
// knows whether it was, or after it was refused, which people are told.
func TestRelocation(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	away := []storage.Relocation{{Node: "a", Away: true}, {Node: "b"}}
	m := &mind{}
	planned := func() *plan {
		p := &plan{}
		m.planRelocation(p)
		return p
	}
	took := func(p *plan, r activities.RelocateResult, failed string) {
		m.tookRelocation(p, activities.Attempt[activities.RelocateResult]{Begun: true, Result: r, Failed: failed})
	}
	m.observed.Settings.ManagePodBudgets = true
	assert.Nil(t, planned().Relocate, "this kind of storage never moves any")
	m.verdict.Relocate = away
	assert.Nil(t, planned().Relocate, "the budgets may say something else")
	p := &plan{}
	p.Budgets = &activities.BudgetInput{}
	m.planRelocation(p)
	require.NotNil(t, p.Relocate)
	assert.Equal(t, away, p.Relocate.Nodes)
	assert.Equal(t, "data is moved away from a", p.relocation())

	m.state.Applied, m.state.Decision = &budget.Decision{}, budget.Decision{}
	took(planned(), activities.RelocateResult{Refused: "no right"}, "")
	assert.Equal(t, "no right", m.unmoved)
	assert.Equal(t, now.Add(movesAgain), m.moveAgain(now))
	assert.Equal(t, "no right", m.status().Unmoved)
	took(planned(), activities.RelocateResult{}, "")
	assert.Empty(t, m.unmoved)
	assert.Zero(t, m.moveAgain(now))
	assert.Nil(t, planned().Relocate, "that was done")
	m.verdict.Relocate = []storage.Relocation{}
	p = planned()
	require.NotNil(t, p.Relocate, "what is ours is taken back")
	took(p, activities.RelocateResult{}, "no answer")
	p = planned()
	require.NotNil(t, p.Relocate)
	took(p, activities.RelocateResult{}, "")
	assert.Nil(t, planned().Relocate)
	m.verdict.Relocate = nil
	assert.Nil(t, planned().Relocate, "nobody knows, and what was said stays")
}

// TestAnAttemptOfWhichNobodyHears: an answer that says that no data was moved is that of the last attempt. One that was
// given up may have gone on, so all is said once more.
func TestAnAttemptOfWhichNobodyHears(t *testing.T) {
	m := &mind{doubtsMoves: true, relocated: []storage.Relocation{}}
	m.observed.Settings.ManagePodBudgets = true
	m.state.Applied, m.state.Decision = &budget.Decision{}, budget.Decision{}
	m.verdict.Relocate = []storage.Relocation{{Node: "a"}}
	p := &plan{}
	m.planRelocation(p)
	require.NotNil(t, p.Relocate)
	require.NoError(t, m.took(time.Unix(1_800_000_000, 0), p, activities.CarryResult{}))
	m.verdict.Relocate = []storage.Relocation{}
	p = &plan{}
	m.planRelocation(p)
	require.NotNil(t, p.Relocate, "what may have been done is taken back")
	assert.Empty(t, p.Relocate.Nodes)
}

// TestALookAnswersWhatIsOlder: what was seen of the budgets says nothing about a doubt that came during the look, which
// takes another one.
func TestALookAnswersWhatIsOlder(t *testing.T) {
	for _, c := range []struct {
		name          string
		dates         bool
		lookAsOf      doubt.Seq
		again         bool
		wantAppliedAs doubt.Seq
	}{
		{"older", true, 2, false, 2},
		{"during the look", true, 1, true, 1},
		{"as a history from before it went on", false, 1, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &mind{datesLooks: c.dates, lookAsOf: c.lookAsOf}
			m.doubt(time.Unix(1, 0), doubt.Changed, "the keeper began")
			m.doubt(time.Unix(2, 0), doubt.Changed, "budget x of somebody else appeared")
			m.sawBudgets()
			assert.Equal(t, c.again, m.again)
			assert.Equal(t, c.wantAppliedAs, m.state.AppliedAsOf)
			assert.Equal(t, !c.again, m.undoubted())
		})
	}
}
