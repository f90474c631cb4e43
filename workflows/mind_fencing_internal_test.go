package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestTakenAway: somebody is blamed for the lack of a hold that was there, and that this keeper has left alone.
func TestTakenAway(t *testing.T) {
	bare, held := fencing.Machine{Name: "a"}, fencing.Machine{Name: "a", Held: true}
	look := func(machines ...fencing.Machine) fencing.Survey { return fencing.Survey{Machines: machines} }
	again, idle := fencing.Step{Again: []string{"a"}}, fencing.Step{}
	type pass struct {
		seen fencing.Survey
		step fencing.Step
		want []string
	}
	removes := fencing.Step{Remove: []fencing.Machine{held}}
	atOnce := fencing.Step{AtOnce: []fencing.Machine{held}}
	silent, many := fencing.Survey{Unavailable: "x"}, fencing.Survey{More: 1}
	blamed := []string{"a"}
	for name, passes := range map[string][]pass{
		"a person takes it": {{look(), idle, nil}, {look(bare), again, blamed}},
		"a person takes it twice": {
			{look(), idle, nil}, {look(bare), again, blamed}, {look(held), idle, nil}, {look(bare), again, blamed},
		},
		"the first look of a keeper":       {{look(bare), again, nil}},
		"it could not be set":              {{look(), idle, nil}, {look(bare), idle, nil}, {look(bare), again, nil}},
		"the keeper takes it, at once":     {{look(held), atOnce, nil}, {look(bare), again, nil}},
		"the keeper takes it":              {{look(held), removes, nil}, {look(bare), again, nil}},
		"a look without an answer":         {{look(), idle, nil}, {silent, again, nil}, {look(bare), again, blamed}},
		"of many Machines some are unseen": {{many, idle, nil}, {look(bare), again, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &mind{}
			for _, p := range passes {
				assert.Equal(t, p.want, m.takenAway(p.seen, p.step))
			}
		})
	}
}

// TestUnheld: who was let go, and who is to be held again and is not yet.
func TestUnheld(t *testing.T) {
	m := &mind{countsLetGo: true}
	m.state.Memory.Fencing = &fencing.Ledger{Cases: []fencing.Case{
		{Target: fencing.Target{Node: "held"}, Stage: fencing.StageHeld},
		{Target: fencing.Target{Node: "not yet"}, Stage: fencing.StageHeld},
		{Target: fencing.Target{Node: "let go"}, Stage: fencing.StageReleased},
		{Target: fencing.Target{Node: "back"}, Stage: fencing.StageHealing},
	}}
	m.observed.Survey = &fencing.Survey{Machines: []fencing.Machine{
		{Node: "held", Held: true}, {Node: "not yet"}, {Node: "let go"}, {Node: "back"},
	}}
	assert.Equal(t, []string{"not yet", "let go"}, m.unheld())
	m.countsLetGo = false
	assert.Empty(t, m.unheld())
}

// TestSilence: since when the storage cluster answers, and as of what it did before, by whatever clock.
func TestSilence(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1000+s, 0).UTC() }
	m := &mind{}
	for _, look := range []struct {
		what  string
		view  storage.View
		since time.Time
		asOf  int64
	}{
		{"the first look", storage.View{At: at(0), ChangeEpoch: 7}, at(0), 0},
		{"the next one", storage.View{At: at(1), ChangeEpoch: 8}, at(0), 0},
		{"no quorum", storage.View{At: at(20), Unavailable: "no quorum"}, at(20), 8},
		{"no quorum for longer", storage.View{At: at(25), Unavailable: "no quorum"}, at(25), 8},
		{"an answer", storage.View{At: at(26), ChangeEpoch: 9}, at(25), 8},
		{"a silence between two looks", storage.View{At: at(40), Silent: at(38), ChangeEpoch: 10}, at(38), 9},
		{"heard of once more", storage.View{At: at(41), Silent: at(38), ChangeEpoch: 11}, at(38), 9},
		{"a worker whose clock is behind", storage.View{At: at(-3600), ChangeEpoch: 11}, at(-3600), 9},
		{"and goes on", storage.View{At: at(-3594), ChangeEpoch: 11}, at(-3600), 9},
	} {
		m.observed.Seen.View = look.view
		m.sawAll(look.view.At)
		assert.Equal(t, look.since, m.state.Silent, look.what)
		assert.Equal(t, look.asOf, m.state.SilentAsOf, look.what)
	}
}

// TestAnAlarmClosesWhatLetsAMachineGo, and nothing that does not, that is not ours, or of which nobody knows.
func TestAnAlarmClosesWhatLetsAMachineGo(t *testing.T) {
	spec := storage.Fencing{API: fencing.APIBudget, Namespace: "machines"}
	noted := &fencing.Ledger{Fencing: spec, Budget: true}
	for name, c := range map[string]struct {
		seen  *fencing.Survey
		noted *fencing.Ledger
		want  *storage.Fencing
		said  *int
	}{
		"no fencing":               {},
		"no budget yet":            {seen: &fencing.Survey{Fencing: spec}, noted: &fencing.Ledger{Fencing: spec}},
		"it lets one go":           {&fencing.Survey{Fencing: spec, Max: new(1)}, noted, &spec, nil},
		"it is not as it was made": {&fencing.Survey{Fencing: spec, Max: new(-1)}, noted, &spec, nil},
		"it lets nobody go":        {seen: &fencing.Survey{Fencing: spec, Max: new(0)}, noted: noted, said: new(0)},
		"it has let one go since": {
			seen: &fencing.Survey{Fencing: spec, Max: new(0)}, noted: noted, said: new(1), want: &spec,
		},
		"it was made since":       {seen: &fencing.Survey{Fencing: spec}, noted: noted, said: new(1), want: &spec},
		"it cannot be read":       {&fencing.Survey{Fencing: spec, Max: new(1), Unavailable: "not ours"}, noted, nil, nil},
		"it was taken away since": {seen: &fencing.Survey{Fencing: spec, Max: new(1)}},
		"it was elsewhere":        {seen: &fencing.Survey{Max: new(1)}, noted: noted},
	} {
		t.Run(name, func(t *testing.T) {
			m := &mind{}
			m.observed.Survey, m.state.Memory.Fencing, m.maxUnavailable = c.seen, c.noted, c.said
			assert.Equal(t, c.want, m.openForMachines())
		})
	}
}

// TestNothingGoesBeforeTheBudgetsAreClosed: where a Machine goes though nothing opens for it, it goes from budgets that
// were closed at the last look already.
func TestNothingGoesBeforeTheBudgetsAreClosed(t *testing.T) {
	x := storage.FailureDomain{Type: "zone", Name: "x"}
	for _, c := range []struct {
		applied *budget.Decision
		manages bool
		early   bool
	}{
		{nil, true, true},
		{&budget.Decision{Mode: budget.ModeDefault}, true, true},
		{&budget.Decision{Mode: budget.ModeOpen, Open: x}, true, true},
		{&budget.Decision{Mode: budget.ModeClosed}, true, false},
		{nil, false, false},
	} {
		m := &mind{}
		m.state.Decision = budget.Decision{Mode: budget.ModeClosed, Shut: x}
		m.state.Applied, m.observed.Settings.ManagePodBudgets = c.applied, c.manages
		d, early := m.asCarriedOut()
		assert.Equal(t, c.early, early, "%+v", c)
		assert.Equal(t, c.early, d.Shut.IsZero(), "%+v", c)
	}
}

// TestWhatIsOddIsTold: the status says what would keep a node from ever being fenced.
func TestWhatIsOddIsTold(t *testing.T) {
	m := &mind{}
	m.observed.Settings.Fencing = &storage.Fencing{API: "ClusterAPI"}
	m.observed.Survey = &fencing.Survey{Foreign: []string{"m-1"}, Odd: []string{"MachineHealthCheck x never acts"}}
	assert.Equal(t, []string{
		"held by somebody else in our way, and not ours to release: m-1", "MachineHealthCheck x never acts",
	}, m.fencingReport().Notes)
}
