package activities

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// TestSame: a job hears of what it would act on, and of nothing else.
func TestSame(t *testing.T) {
	survey := func(change func(*monplan.Step)) MonSurvey {
		s := monplan.Step{
			Verdict: monplan.Move, Why: "mon.a: old", Acts: []monplan.Act{{Do: monplan.Schedule, Mon: "d"}},
			Work: &monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a"},
		}
		change(&s)
		return MonSurvey{Found: true, Step: s}
	}
	begun := survey(func(*monplan.Step) {})
	for name, tt := range map[string]struct {
		change func(*monplan.Step)
		same   bool
	}{
		"nothing":                     {func(*monplan.Step) {}, true},
		"it has begun":                {func(s *monplan.Step) { s.Why = "" }, true},
		"the canary is there":         {func(s *monplan.Step) { s.Work.Canary = true }, true},
		"the canary has a node":       {func(s *monplan.Step) { s.Work.Node = "node-a" }, false},
		"another act":                 {func(s *monplan.Step) { s.Acts[0].Do = monplan.Start }, false},
		"it is rolled back":           {func(s *monplan.Step) { s.Work.Undo = "the spec was changed" }, false},
		"it has to wait":              {func(s *monplan.Step) { s.Verdict = monplan.Wait }, false},
		"it takes somebody away":      {func(s *monplan.Step) { s.Takes = "a" }, false},
		"nothing is under way at all": {func(s *monplan.Step) { s.Work = nil }, false},
	} {
		assert.Equal(t, tt.same, survey(tt.change).same(begun), name)
	}
	wait := func(why string) MonSurvey {
		return MonSurvey{Found: true, Step: monplan.Step{Verdict: monplan.Wait, Why: why}}
	}
	assert.False(t, wait("mon.b is out of quorum").same(wait("mon.c is out of quorum")), "what it waits for is its status")
}
