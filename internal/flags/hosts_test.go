package flags_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestNooutFollowsItsHost: a host is its ID. What it is called, and whether it is there, the topology says.
func TestNooutFollowsItsHost(t *testing.T) {
	holder := lease.Claim{WorkflowID: "drain/a", Node: "a", FlagHosts: []string{"a"}, Granted: now}
	record := flags.Record{Host: "a", ID: -3, Owner: "drain/a", Since: now, Expires: now.Add(timeout), Confirmed: true}
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
		in      flags.Input
		want    flags.Plan
	}{
		"nothing is known of it": {
			[]lease.Claim{holder},
			flags.Input{Present: []string{"a"}},
			flags.Plan{Records: []flags.Record{record}},
		},
		"its ID becomes known": {
			[]lease.Claim{holder},
			flags.Input{
				Records: []flags.Record{unknown}, Present: []string{"a"},
				Hosts: []storage.Host{{Name: "a", ID: -3}},
			},
			flags.Plan{Records: []flags.Record{record}},
		},
		"renamed": {
			[]lease.Claim{holder},
			flags.Input{
				Present: []string{"b"}, Hosts: []storage.Host{{Name: "b", ID: -3}},
				Gone: []storage.Host{{Name: "a"}},
			},
			flags.Plan{Records: []flags.Record{renamed}},
		},
		"renamed, and its time is over": {
			nil,
			flags.Input{Present: []string{"b"}, Hosts: []storage.Host{{Name: "b", ID: -3}}},
			flags.Plan{Records: []flags.Record{renamed}, Unset: []string{"b"}},
		},
		"gone": {nil, flags.Input{Gone: []storage.Host{{Name: "a", ID: -3}}}, flags.Plan{}},
		"another one has its name, and noout of a person": {
			[]lease.Claim{holder},
			flags.Input{
				Present: []string{"a"}, Hosts: []storage.Host{{Name: "a", ID: -9}},
				Gone: []storage.Host{{Name: "a", ID: -3}},
			},
			flags.Plan{},
		},
		"another one has its name": {
			[]lease.Claim{holder},
			flags.Input{Hosts: []storage.Host{{Name: "a", ID: -9}}, Gone: []storage.Host{{Name: "a", ID: -3}}},
			flags.Plan{Records: []flags.Record{again}, Set: []string{"a"}},
		},
		"gone, and its OSDs are on another one": {
			[]lease.Claim{holder},
			flags.Input{
				Gone: []storage.Host{{Name: "a", ID: -3}, {Name: "a"}}, HostsOf: map[string][]string{"a": {"c"}},
				Hosts: []storage.Host{{Name: "c", ID: -9}},
			},
			flags.Plan{Records: []flags.Record{elsewhere}, Set: []string{"c"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Now, c.in.Timeout, c.in.Holders = now, timeout, c.holders
			if c.in.Records == nil {
				c.in.Records = []flags.Record{record}
			}
			plan := flags.Decide(c.in)
			plan.News = nil
			require.Equal(t, c.want, plan)
		})
	}
}

// TestNooutWithoutAnAnswer: a set that got none may be carried out after the unset, for a while.
func TestNooutWithoutAnAnswer(t *testing.T) {
	holders := []lease.Claim{{WorkflowID: "drain/a", FlagHosts: []string{"a"}, Granted: now}}
	plan := planNoout(now, timeout, holders, nil, nil)
	records, before := flags.Asked(plan.Records, plan.Set)
	require.Empty(t, before)
	sure := flags.Answered(records, plan.Set, before, false)
	require.Empty(t, flags.Withdraw(now, sure, "a", nil))

	plan = planNoout(now, timeout, nil, records, nil)
	require.Equal(t, []string{"a"}, plan.Unset)
	records = flags.Withdraw(now, plan.Records, "a", nil)
	require.Len(t, records, 1)
	plan = planNoout(now.Add(time.Second), timeout, nil, records, nil)
	require.Empty(t, plan.Unset)
	plan = planNoout(now.Add(time.Second), timeout, nil, plan.Records, []string{"a"})
	require.Equal(t, []string{"a"}, plan.Unset)
	require.Equal(t, "NooutLate", plan.News[0].Reason)
	plan = planNoout(now.Add(time.Minute), timeout, nil, plan.Records, []string{"a"})
	require.Empty(t, plan.Unset, "by now it is a person's")
	require.Empty(t, plan.Records)
}
