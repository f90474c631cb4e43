package budget_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
)

func TestPlanMarks(t *testing.T) {
	for name, c := range map[string]struct {
		state string
		want  budget.MarkPlan
	}{
		"all are marked":                  {"", budget.MarkPlan{}},
		"one was replaced":                {"unmarked=3", budget.MarkPlan{Set: true, Most: 6}},
		"one crash-loops, none misses it": {"osd.2=down/NotReady", budget.MarkPlan{Unset: true}},
		"both": {
			"osd.2=down/NotReady unmarked=3", budget.MarkPlan{Set: true, Unset: true, Most: 5},
		},
		"none may go at rest":                  {"rest=None", budget.MarkPlan{Unset: true, UnsetAll: true}},
		"a zone is open: marks change nothing": {"unmarked=3 cordoned=a", budget.MarkPlan{}},
		"closed":                               {"unmarked=3 health=unclean proof=none", budget.MarkPlan{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest()
			for _, word := range strings.Fields(c.state) {
				w.say(word)
			}
			require.Equal(t, c.want, budget.PlanMarks(w.input(), budget.Decide(w.input())))
		})
	}
	in := atRest().input()
	in.View.Marks = nil
	require.Equal(t, budget.MarkPlan{}, budget.PlanMarks(in, budget.Decide(in)), "whoever looked did not know of marks")
}

// TestTheWayToRest leads through a look that is taken while everything is closed, unless none could go before.
func TestTheWayToRest(t *testing.T) {
	w := atRest()
	rest := budget.Decide(w.input())
	require.Equal(t, budget.ModeDefault, rest.Mode)
	w.say("cordoned=a")
	open := budget.Decide(w.input())
	require.Equal(t, budget.ModeOpen, open.Mode)
	closed := budget.CloseFirst(rest, "a test")

	for name, before := range map[string]*budget.Decision{"nobody knows what they say": nil, "a zone is open": &open} {
		step, more := budget.Step(before, rest)
		require.True(t, more, name)
		require.Equal(t, budget.ModeClosed, step.Mode, name)
		require.False(t, step.Specs().LetsGo(), name)
	}
	step, more := budget.Step(&closed, rest)
	require.False(t, more)
	require.Equal(t, rest, step)
	step, more = budget.Step(&rest, rest)
	require.False(t, more)
	require.Equal(t, rest, step)
	step, more = budget.Step(&rest, open)
	require.True(t, more)
	require.False(t, step.Specs().LetsGo())
	require.Equal(t, budget.Spec{MinAvailable: budget.Everything}, *step.Unproved)
}

func TestLetsGo(t *testing.T) {
	all := budget.Spec{MinAvailable: budget.Everything}
	for name, c := range map[string]struct {
		specs budget.Specs
		want  bool
	}{
		"closed": {budget.Specs{Daemons: all, Unproved: &all, Mons: &all}, false},
		"quiet": {budget.Specs{
			Daemons: budget.Spec{Quiet: true}, Unproved: &budget.Spec{Quiet: true},
			Mons: &budget.Spec{Quiet: true},
		}, false},
		"one at rest": {budget.Specs{Daemons: budget.Spec{MinAvailable: 5}, Unproved: &all, Mons: &all}, true},
		"a zone is open": {budget.Specs{
			Daemons:  budget.Spec{MinAvailable: budget.Everything, Except: []string{"x"}},
			Unproved: &all,
		}, true},
		"only the marked": {budget.Specs{
			Daemons:  all,
			Unproved: &budget.Spec{MinAvailable: budget.Everything, Except: []string{"x"}},
		}, true},
		"a mon may go": {budget.Specs{
			Daemons: all, Unproved: &all,
			Mons: &budget.Spec{MinAvailable: budget.Everything, Except: []string{"a"}},
		}, true},
		"none of the mons": {budget.Specs{Daemons: all, Unproved: &all}, false},
	} {
		require.Equal(t, c.want, c.specs.LetsGo(), name)
	}
}
