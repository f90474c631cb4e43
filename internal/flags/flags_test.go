package flags_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

const timeout = 30 * time.Minute

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// noout is Ceph's flag.
var noout = flags.Kind{Name: "noout", Title: "Noout", Of: "Ceph", Undo: "ceph osd unset-group noout"}

func planNoout(
	now time.Time, timeout time.Duration, holders []lease.Claim, records []flags.Record, present []string,
) flags.Plan {
	return flags.Decide(flags.Input{
		Kind: noout,
		Now:  now, Timeout: timeout, Holders: holders, Records: records,
		Present: present,
	})
}

// TestNoout plays a keeper with a bad memory for answers against a storage cluster and a person who sets and unsets
// flags.
func TestNoout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &nooutCluster{now: now, flags: map[string]bool{}, persons: map[string]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"grant":  c.grant,
			"end":    c.end,
			"wait":   c.wait,
			"keeper": func(t *rapid.T) { c.keeper(t, true) },
			"person": c.person,
			"":       c.check,
		})
		c.holders = nil
		for range 3 {
			c.keeper(t, false)
		}
		for host := range c.flags {
			if !c.persons[host] {
				t.Fatalf("noout is left on %s", host)
			}
		}
		for host := range c.persons {
			if !c.flags[host] {
				t.Fatalf("the person's noout on %s is gone", host)
			}
		}
		if len(c.records) > 0 {
			t.Fatalf("records are left: %+v", c.records)
		}
	})
}

// nooutCluster is a storage cluster's flags and what the keeper remembers of them.
type nooutCluster struct {
	now     time.Time
	holders []lease.Claim
	records []flags.Record
	flags   map[string]bool // host → carries noout
	persons map[string]bool // of those, set by a person while there was none
}

func (c *nooutCluster) grant(t *rapid.T) {
	job := rapid.SampledFrom([]string{"drain/a", "drain/b", "fence/a"}).Draw(t, "job")
	if slices.ContainsFunc(c.holders, func(h lease.Claim) bool { return h.WorkflowID == job }) {
		return
	}
	c.holders = append(c.holders, lease.Claim{WorkflowID: job, FlagHosts: []string{job[len(job)-1:]}, Granted: c.now})
}

func (c *nooutCluster) end(t *rapid.T) {
	if len(c.holders) > 0 {
		i := rapid.IntRange(0, len(c.holders)-1).Draw(t, "who")
		c.holders = slices.Delete(slices.Clone(c.holders), i, i+1)
	}
}

func (c *nooutCluster) wait(t *rapid.T) {
	c.now = c.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "minutes")) * time.Minute)
}

// person sets noout where there is none, or takes away one, whosever it is.
func (c *nooutCluster) person(t *rapid.T) {
	host := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host")
	if c.flags[host] {
		delete(c.flags, host)
		delete(c.persons, host)
		return
	}
	if slices.ContainsFunc(c.records, func(r flags.Record) bool { return r.Host == host && !r.Withdrawn }) {
		return // it is about to be set by the keeper, and nobody could tell the two apart
	}
	c.flags[host], c.persons[host] = true, true
}

// keeper is one pass. With trouble, any answer may be lost, before or after the deed, and the pass may end anywhere.
func (c *nooutCluster) keeper(t *rapid.T, trouble bool) {
	lost := func(what string) bool { return trouble && rapid.IntRange(0, 3).Draw(t, what) == 0 }
	plan := planNoout(c.now, timeout, c.holders, c.records, c.present())
	c.mustRepeat(t, plan)
	c.records = plan.Records // written before anything is done
	for _, host := range plan.Set {
		if !slices.ContainsFunc(c.records, func(r flags.Record) bool { return r.Host == host && !r.Withdrawn }) {
			t.Fatalf("noout on %s is set without a record", host)
		}
		if !lost("request to set") {
			if c.flags[host] && c.persons[host] {
				t.Fatalf("the person's noout on %s is taken for ours", host)
			}
			c.flags[host] = true
		}
		if lost("answer to set") {
			return
		}
	}
	for _, host := range plan.Unset {
		if c.persons[host] {
			t.Fatalf("the person's noout on %s is unset", host)
		}
		if lost("request to unset") {
			return
		}
		delete(c.flags, host)
		if lost("answer to unset") {
			return
		}
		c.records = flags.Withdraw(c.now, c.records, host, c.holders)
	}
}

func (c *nooutCluster) present() []string {
	var out []string
	for _, host := range []string{"a", "b", "c"} {
		if c.flags[host] {
			out = append(out, host)
		}
	}
	return out
}

// mustRepeat: a pass that died before it did anything is repeated to the letter.
func (c *nooutCluster) mustRepeat(t *rapid.T, plan flags.Plan) {
	again := planNoout(c.now, timeout, c.holders, plan.Records, c.present())
	if !slices.Equal(again.Set, plan.Set) || !slices.Equal(again.Unset, plan.Unset) {
		t.Fatalf("planned %+v, then %+v", plan, again)
	}
}

func (c *nooutCluster) check(t *rapid.T) {
	seen := map[string]bool{}
	for _, r := range c.records {
		if seen[r.Host] {
			t.Fatalf("two records of %s", r.Host)
		}
		seen[r.Host] = true
		if r.Owner == "" || r.Expires.IsZero() || r.Expires.Sub(r.Since) > timeout {
			t.Fatalf("a record without owner or end: %+v", r)
		}
	}
	for host := range c.flags {
		if !c.persons[host] && !seen[host] {
			t.Fatalf("noout on %s, and nobody knows whose", host)
		}
	}
}

func TestNooutExpires(t *testing.T) {
	h := lease.Claim{WorkflowID: "drain/a", FlagHosts: []string{"a"}, Granted: now}
	plan := planNoout(now, timeout, []lease.Claim{h}, nil, nil)
	require.Equal(t, []string{"a"}, plan.Set)
	require.Equal(t, now.Add(timeout), plan.Records[0].Expires)
	plan = planNoout(now.Add(timeout-1), timeout, []lease.Claim{h}, plan.Records, []string{"a"})
	require.Empty(t, plan.Unset)
	plan = planNoout(now.Add(timeout), timeout, []lease.Claim{h}, plan.Records, []string{"a"})
	require.Equal(t, []string{"a"}, plan.Unset)
	records := flags.Withdraw(now, plan.Records, "a", []lease.Claim{h})
	plan = planNoout(now.Add(2*timeout), timeout, []lease.Claim{h}, records, nil)
	require.Empty(t, plan.Set, "once is enough for one grant")
	h.Granted = now.Add(2 * timeout)
	plan = planNoout(now.Add(2*timeout), timeout, []lease.Claim{h}, records, nil)
	require.Equal(t, []string{"a"}, plan.Set, "another grant is another noout")
}

// TestNooutOnAllHostsOfANode: an OSD on a volume that moves has a host of its own in the CRUSH map.
func TestNooutOnAllHostsOfANode(t *testing.T) {
	h := lease.Claim{WorkflowID: "drain/a", FlagHosts: []string{"set-1", "set-2"}, Granted: now}
	plan := planNoout(now, timeout, []lease.Claim{h}, nil, []string{"set-2"})
	require.Equal(t, []string{"set-1"}, plan.Set, "the other one is a person's")
	plan = planNoout(now, timeout, nil, plan.Records, []string{"set-1", "set-2"})
	require.Equal(t, []string{"set-1"}, plan.Unset)
}

func TestNooutThatAPersonTookAwayStaysAway(t *testing.T) {
	h := []lease.Claim{{WorkflowID: "drain/a", FlagHosts: []string{"a"}, Granted: now}}
	plan := planNoout(now, timeout, h, nil, nil)
	plan = planNoout(now, timeout, h, plan.Records, []string{"a"}) // it was seen
	plan = planNoout(now, timeout, h, plan.Records, nil)           // it is gone
	require.Empty(t, plan.Set)
	plan = planNoout(now, timeout, h, plan.Records, []string{"a"}) // the person set it again: now it is theirs
	require.Empty(t, plan.Unset)
	plan = planNoout(now, timeout, nil, plan.Records, []string{"a"})
	require.Empty(t, plan.Unset)
	require.Empty(t, plan.Records)
}

// TestNooutFollowsThePolicy: an administrator who cuts the time short in the middle of a drain means this drain, too.
func TestNooutFollowsThePolicy(t *testing.T) {
	holders := []lease.Claim{{WorkflowID: "drain/a", FlagHosts: []string{"a"}, Granted: now}}
	plan := planNoout(now, timeout, holders, nil, nil)
	require.Equal(t, []string{"a"}, plan.Set)
	later := now.Add(5 * time.Minute)
	plan = planNoout(later, 20*time.Minute, holders, plan.Records, []string{"a"})
	require.Empty(t, plan.Unset)
	require.Equal(t, now.Add(20*time.Minute), plan.Records[0].Expires)
	plan = planNoout(later, time.Minute, holders, plan.Records, []string{"a"})
	require.Equal(t, []string{"a"}, plan.Unset)
}
