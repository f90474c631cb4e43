package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
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

// stepOf is what a look finds of a step that is under way: the acts that are left.
func stepOf(takes string, dos ...monplan.Do) MonSurvey {
	s := monplan.Step{
		Verdict: monplan.Move, Takes: takes, Work: &monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a"},
	}
	for _, do := range dos {
		s.Acts = append(s.Acts, monplan.Act{Do: do, Mon: "a"})
	}
	return MonSurvey{Found: true, Step: s}
}

// steppedMons are mons of which each look finds the next of some surveys.
type steppedMons struct {
	Mons
	looks []MonSurvey
	done  []monplan.Do
	knew  []MonMemory // at each look
	// refuses is what is not done, and gone what finds that the CephMon was deleted.
	refuses, gone monplan.Do
}

func (m *steppedMons) Do(_ context.Context, _ MonsRef, s monplan.Step) (storage.Answer, error) {
	m.done = append(m.done, s.Acts[0].Do)
	if s.Acts[0].Do == m.gone {
		return storage.Answer{}, ErrNotFound
	}
	if s.Acts[0].Do == m.refuses {
		return storage.Answer{Reason: "no"}, nil
	}
	return storage.Answer{OK: true}, nil
}

func (m *steppedMons) Survey(_ context.Context, _ MonsRef, knows MonMemory) (MonSurvey, error) {
	s := m.looks[0]
	m.looks, m.knew = m.looks[1:], append(m.knew, knows)
	return s, nil
}

// TestWhatClearsUpIsDoneAtOnce: what only tells of an act, or clears up after it, is done with it. What takes a mon
// away or adds one is decided on by the job, which writes it down before.
func TestWhatClearsUpIsDoneAtOnce(t *testing.T) {
	t.Parallel()
	undone := stepOf("", monplan.StopMon)
	undone.Step.Work.Undo = "the spec was changed"
	changed := stepOf("", monplan.StopMon)
	changed.Generation = 2
	another := stepOf("b", monplan.StopMon)
	joined := stepOf("a", monplan.SaveEndpoints, monplan.RemoveMon)
	joined.Step.Work.Joined = true
	for name, tt := range map[string]struct {
		begins MonSurvey
		looks  []MonSurvey
		done   []monplan.Do
	}{
		"the mon has left": {
			stepOf("a", monplan.RemoveMon),
			[]MonSurvey{stepOf("", monplan.StopMon), stepOf("", monplan.SaveEndpoints), {Found: true}},
			[]monplan.Do{monplan.RemoveMon, monplan.StopMon, monplan.SaveEndpoints},
		},
		"the mon has left, and all that is left of it goes at once": {
			stepOf("a", monplan.RemoveMon, monplan.StopMon, monplan.SaveEndpoints),
			[]MonSurvey{stepOf("", monplan.StopMon, monplan.SaveEndpoints), {Found: true}},
			[]monplan.Do{monplan.RemoveMon, monplan.StopMon, monplan.SaveEndpoints},
		},
		"the mon has left, and its successor comes": {
			stepOf("", monplan.StopMon, monplan.DropCanary, monplan.Start),
			[]MonSurvey{stepOf("", monplan.DropCanary, monplan.Start)},
			[]monplan.Do{monplan.StopMon},
		},
		"the newcomer starts where its canary was": {
			stepOf("a", monplan.DropCanary, monplan.Start),
			[]MonSurvey{stepOf("a", monplan.AwaitQuorum)},
			[]monplan.Do{monplan.DropCanary, monplan.Start},
		},
		"the newcomer is in quorum": {
			stepOf("a", monplan.AwaitQuorum),
			[]MonSurvey{joined, stepOf("a", monplan.RemoveMon)},
			[]monplan.Do{monplan.AwaitQuorum, monplan.SaveEndpoints},
		},
		"a newcomer is started next": {
			stepOf("a", monplan.DropCanary), []MonSurvey{stepOf("a", monplan.Start)}, []monplan.Do{monplan.DropCanary},
		},
		"it is waited for": {
			stepOf("a", monplan.Start), []MonSurvey{stepOf("a", monplan.AwaitQuorum)}, []monplan.Do{monplan.Start},
		},
		"it is rolled back":       {stepOf("", monplan.ClaimVolume), []MonSurvey{undone}, []monplan.Do{monplan.ClaimVolume}},
		"the spec was changed":    {stepOf("", monplan.ClaimVolume), []MonSurvey{changed}, []monplan.Do{monplan.ClaimVolume}},
		"it needs a lease":        {stepOf("", monplan.ClaimVolume), []MonSurvey{another}, []monplan.Do{monplan.ClaimVolume}},
		"the CephMon was deleted": {stepOf("", monplan.RemoveMon), []MonSurvey{{}}, []monplan.Do{monplan.RemoveMon}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &steppedMons{looks: tt.looks}
			last := tt.looks[len(tt.looks)-1]
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestActivityEnvironment()
			env.RegisterActivity(&MonJob{Mons: m})
			out, err := env.ExecuteActivity((*MonJob)(nil).CarryOutMon, MonStepInput{Seen: tt.begins})
			require.NoError(t, err)
			var stepped MonStepped
			require.NoError(t, out.Get(&stepped))
			stepped.Unstarted = false
			assert.Equal(t, MonStepped{Survey: last}, stepped)
			assert.Equal(t, tt.done, m.done)
			if name == "the newcomer is in quorum" {
				assert.True(t, m.knew[1].Work.Joined, "what one look has found the next one knows")
			}
		})
	}
}

// TestWhatIsNotDoneTogether: of acts that are done one after the other without a look the first one's refusal is the
// job's to wait for. After any other refusal there is a look.
func TestWhatIsNotDoneTogether(t *testing.T) {
	t.Parallel()
	left := stepOf("", monplan.StopMon, monplan.SaveEndpoints)
	again := stepOf("a", monplan.RemoveMon, monplan.StopMon)
	for refuses, want := range map[monplan.Do]struct {
		stepped MonStepped
		done    []monplan.Do
	}{
		monplan.StopMon:       {MonStepped{Survey: again, Refused: "no"}, []monplan.Do{monplan.StopMon}},
		monplan.SaveEndpoints: {MonStepped{Survey: again}, []monplan.Do{monplan.StopMon, monplan.SaveEndpoints}},
	} {
		m := &steppedMons{looks: []MonSurvey{again}, refuses: refuses}
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(&MonJob{Mons: m})
		out, err := env.ExecuteActivity((*MonJob)(nil).CarryOutMon, MonStepInput{Seen: left})
		require.NoError(t, err)
		var stepped MonStepped
		require.NoError(t, out.Get(&stepped))
		stepped.Unstarted = false
		assert.Equal(t, want.stepped, stepped, refuses)
		assert.Equal(t, want.done, m.done, refuses)
	}
}

// TestAnActThatTakesLonger is left to be carried out later if it is allowed a moment only.
func TestAnActThatTakesLonger(t *testing.T) {
	t.Parallel()
	schedules, tells := stepOf("", monplan.Schedule), stepOf("", monplan.SaveEndpoints)
	for _, next := range []MonSurvey{schedules, tells} {
		m := &steppedMons{looks: []MonSurvey{next}}
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(&MonJob{Mons: m})
		out, err := env.ExecuteActivity((*MonJob)(nil).CarryOutMon, MonStepInput{Seen: schedules, AtMost: time.Nanosecond})
		require.NoError(t, err)
		var stepped MonStepped
		require.NoError(t, out.Get(&stepped))
		assert.Equal(t, MonStepped{Survey: next, Unstarted: true}, stepped)
		assert.Equal(t, []monplan.Do{monplan.Schedule}, m.done)
	}
}

// TestNothingWasStarted: whoever wrote down that a newcomer is about to be started hears if it was not, since the
// CephMon was deleted before. Of one that was refused nobody knows.
func TestNothingWasStarted(t *testing.T) {
	t.Parallel()
	starts := stepOf("a", monplan.DropCanary, monplan.Start)
	for name, tt := range map[string]struct {
		gone, refuses monplan.Do
		unstarted     bool
	}{
		"deleted before the canary was dropped": {gone: monplan.DropCanary, unstarted: true},
		"deleted before the start":              {gone: monplan.Start, unstarted: true},
		"refused":                               {refuses: monplan.Start},
		"started":                               {},
	} {
		m := &steppedMons{looks: []MonSurvey{{}}, gone: tt.gone, refuses: tt.refuses}
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(&MonJob{Mons: m})
		out, err := env.ExecuteActivity((*MonJob)(nil).CarryOutMon, MonStepInput{Seen: starts})
		require.NoError(t, err)
		var stepped MonStepped
		require.NoError(t, out.Get(&stepped))
		assert.Equal(t, tt.unstarted, stepped.Unstarted, name)
	}
}
