package budget_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestNooutFollowsItsHost: a host is its ID. What it is called, and whether it is there, the topology says.
func TestNooutFollowsItsHost(t *testing.T) {
	holder := lease.Claim{WorkflowID: "drain/a", Node: "a", FlagHosts: []string{"a"}, Granted: now}
	record := budget.Noout{Host: "a", ID: -3, Owner: "drain/a", Since: now, Expires: now.Add(timeout), Confirmed: true}
	renamed := record
	renamed.Host, renamed.Claimed = "b", "a"
	again := record
	again.ID, again.Confirmed = -9, false
	elsewhere := again
	elsewhere.Host, elsewhere.Claimed = "c", "a"
	unknown := record
	unknown.ID = 0
	for name, c := range map[string]struct {
		holders []lease.Claim
		in      budget.NooutInput
		want    budget.NooutPlan
	}{
		"nothing is known of it": {
			[]lease.Claim{holder},
			budget.NooutInput{Present: []string{"a"}},
			budget.NooutPlan{Records: []budget.Noout{record}},
		},
		"its ID becomes known": {
			[]lease.Claim{holder},
			budget.NooutInput{
				Records: []budget.Noout{unknown}, Present: []string{"a"},
				Hosts: []storage.Host{{Name: "a", ID: -3}},
			},
			budget.NooutPlan{Records: []budget.Noout{record}},
		},
		"renamed": {
			[]lease.Claim{holder},
			budget.NooutInput{
				Present: []string{"b"}, Hosts: []storage.Host{{Name: "b", ID: -3}},
				Gone: []storage.Host{{Name: "a"}},
			},
			budget.NooutPlan{Records: []budget.Noout{renamed}},
		},
		"renamed, and its time is over": {
			nil,
			budget.NooutInput{Present: []string{"b"}, Hosts: []storage.Host{{Name: "b", ID: -3}}},
			budget.NooutPlan{Records: []budget.Noout{renamed}, Unset: []string{"b"}},
		},
		"gone": {nil, budget.NooutInput{Gone: []storage.Host{{Name: "a", ID: -3}}}, budget.NooutPlan{}},
		"another one has its name, and noout of a person": {
			[]lease.Claim{holder},
			budget.NooutInput{
				Present: []string{"a"}, Hosts: []storage.Host{{Name: "a", ID: -9}},
				Gone: []storage.Host{{Name: "a", ID: -3}},
			},
			budget.NooutPlan{},
		},
		"another one has its name": {
			[]lease.Claim{holder},
			budget.NooutInput{Hosts: []storage.Host{{Name: "a", ID: -9}}, Gone: []storage.Host{{Name: "a", ID: -3}}},
			budget.NooutPlan{Records: []budget.Noout{again}, Set: []string{"a"}},
		},
		"gone, and its OSDs are on another one": {
			[]lease.Claim{holder},
			budget.NooutInput{
				Gone: []storage.Host{{Name: "a", ID: -3}, {Name: "a"}}, Nodes: []storage.Node{{Name: "a", Host: "c"}},
				Hosts: []storage.Host{{Name: "c", ID: -9}},
			},
			budget.NooutPlan{Records: []budget.Noout{elsewhere}, Set: []string{"c"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Now, c.in.Timeout, c.in.Holders = now, timeout, c.holders
			if c.in.Records == nil {
				c.in.Records = []budget.Noout{record}
			}
			plan := budget.PlanNoout(c.in)
			plan.News = nil
			require.Equal(t, c.want, plan)
		})
	}
}

// TestNooutWithoutAnAnswer: a set that got none may be carried out after the unset, for a while.
func TestNooutWithoutAnAnswer(t *testing.T) {
	holders := []lease.Claim{{WorkflowID: "drain/a", FlagHosts: []string{"a"}, Granted: now}}
	plan := planNoout(now, timeout, holders, nil, nil)
	records, before := budget.Asked(plan.Records, plan.Set)
	require.Empty(t, before)
	sure := budget.Answered(records, plan.Set, before, false)
	require.Empty(t, budget.Withdraw(now, sure, "a", nil))

	plan = planNoout(now, timeout, nil, records, nil)
	require.Equal(t, []string{"a"}, plan.Unset)
	records = budget.Withdraw(now, plan.Records, "a", nil)
	require.Len(t, records, 1)
	plan = planNoout(now.Add(time.Second), timeout, nil, records, nil)
	require.Empty(t, plan.Unset)
	plan = planNoout(now.Add(time.Second), timeout, nil, plan.Records, []string{"a"})
	require.Equal(t, []string{"a"}, plan.Unset)
	require.Equal(t, budget.ReasonNooutLate, plan.News[0].Reason)
	plan = planNoout(now.Add(time.Minute), timeout, nil, plan.Records, []string{"a"})
	require.Empty(t, plan.Unset, "by now it is a person's")
	require.Empty(t, plan.Records)
}
