package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// twoNodes is a world at rest: node-a has osd.0 and mon.a, node-b has osd.1.
func twoNodes() *journal {
	j := newJournal()
	j.home = map[string]string{"osd.0": "node-a", "mon.a": "node-a", "osd.1": "node-b"}
	for daemon := range j.home {
		j.note(began, change{serves, daemon, true})
	}
	j.note(began, change{clean, "", true})
	j.note(began, change{letsOneGo, "", true})
	j.note(began, change{hasHold, "node-a", true})
	j.note(began, change{hasHold, "node-b", true})
	return j
}

// TestJudge: which releases are wrong, and why.
func TestJudge(t *testing.T) {
	goes := func(daemon string) change { return change{serves, daemon, false} }
	unclean, closed := change{clean, "", false}, change{letsOneGo, "", false}
	for name, test := range map[string]struct {
		changes []change
		wrong   string // "": nothing is
	}{
		"nothing on it serves": {[]change{goes("osd.0"), goes("mon.a"), unclean, closed, {hasHold, "node-a", false}}, ""},
		"all else is whole":    {[]change{{hasHold, "node-a", false}}, ""},
		"an OSD serves and the data is hurt": {
			[]change{unclean, {hasHold, "node-a", false}},
			"mon.a, osd.0 serve, and not all placement groups are clean",
		},
		"an OSD serves and another is down": {
			[]change{goes("osd.1"), {hasHold, "node-a", false}}, "mon.a, osd.0 serve, and osd.1 is down",
		},
		"a mon serves and another OSD is down": {
			[]change{goes("osd.0"), goes("osd.1"), {hasHold, "node-a", false}}, "mon.a serve, and osd.1 is down",
		},
		"two at once": {
			[]change{goes("osd.0"), goes("mon.a"), goes("osd.1"), {hasHold, "node-a", false}, {hasHold, "node-b", false}},
			"the Machine of node-a is released",
		},
		"the budget opens while the data is hurt": {
			[]change{closed, unclean, {letsOneGo, "", true}}, "not all placement groups are clean",
		},
		"the budget opens while an OSD is down": {
			[]change{goes("osd.1"), closed, {letsOneGo, "", true}}, "osd.1 is down",
		},
		"the budget opens while a Machine is released": {
			[]change{closed, {hasHold, "node-a", false}, {letsOneGo, "", true}}, "the Machine of node-a is released",
		},
		"the budget opens at rest": {[]change{closed, {letsOneGo, "", true}}, ""},
		"holds are set":            {[]change{{hasHold, "node-a", false}, {hasHold, "node-a", true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := twoNodes()
			for _, c := range test.changes {
				j.note(began.Add(time.Second), c)
			}
			j.judge(began.Add(time.Second))
			require.Empty(t, j.wrong, "the look had begun before")
			j.judge(began.Add(2 * time.Second))
			require.Empty(t, j.toJudge)
			if test.wrong == "" {
				require.Empty(t, j.wrong)
				return
			}
			require.NotEmpty(t, j.wrong)
			assert.Contains(t, strings.Join(j.wrong, "\n"), test.wrong)
		})
	}
}

// TestCostless: a release takes nothing when the condition is met and the last of the node's daemons has ended.
func TestCostless(t *testing.T) {
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	j := twoNodes()
	cost := func() time.Time { return j.costless("node-a", began, 2*time.Second) }
	j.note(at(1), change{serves, "osd.0", false})
	require.Zero(t, cost(), "it is ready")
	j.readiness("node-a", at(4))
	require.Zero(t, cost(), "its mon is in quorum")
	j.note(at(3), change{serves, "mon.a", false})
	require.Equal(t, at(6), cost())
	j.log[len(j.log)-1].at = at(9)
	require.Equal(t, at(9), cost())
}

// TestMissing: a world is at rest when nothing is missing.
func TestMissing(t *testing.T) {
	j := twoNodes()
	require.Empty(t, j.missing())
	require.True(t, j.wholeFor(time.Second))
	j.note(time.Now(), change{serves, "mon.a", false})
	j.note(time.Now(), change{leaving, "osd.1", true})
	j.readiness("node-b", began)
	require.Equal(t, "mon.a is not in quorum; node-b is not ready; osd.1 ends", j.missing())
	require.False(t, j.wholeFor(time.Second))
	j.dismiss("node-a")
	require.NotContains(t, j.missing(), "node-a", "a Machine that is gone is not released")
}
