package longhorncluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// TestOpens: the watch tells of nodes that may leave when they could not before, and not again.
func TestOpens(t *testing.T) {
	decision := func(states ...longhorn.State) (d longhorn.Decision) {
		for i, s := range states {
			d.Nodes = append(d.Nodes, longhorn.NodeVerdict{Node: string(rune('a' + i)), State: s})
		}
		return d
	}
	known := known{decision: decision(longhorn.Kept, longhorn.Spare, longhorn.Open)}
	for want, now := range map[string]longhorn.Decision{
		"":        decision(longhorn.Spare, longhorn.Kept, longhorn.Open),
		"a":       decision(longhorn.Open, longhorn.Spare, longhorn.Kept),
		"a, b, d": decision(longhorn.Open, longhorn.Open, longhorn.Open, longhorn.Open),
	} {
		require.Equal(t, want, sight{decision: now}.opens(known))
	}
}

// TestMissed: it is news that somebody took away what held autoscalers back from a node, and none that they are about
// to be held back from it for the first time. A process that has just begun tells all that is missing.
func TestMissed(t *testing.T) {
	type sight struct{ stay, unheld, missed string }
	for name, sights := range map[string][]sight{
		"they are about to be": {{"", "", ""}, {"a", "a", ""}, {"a", "", ""}},
		"and somebody took it away": {
			{"", "", ""}, {"a", "a", ""}, {"a", "", ""}, {"a", "a", "a"}, {"a", "a", "a"}, {"a", "", ""},
		},
		"the process has just begun":   {{"a b", "b", "b"}, {"a b", "b", "b"}, {"a b", "", ""}},
		"it did not stay for a moment": {{"a", "", ""}, {"", "", ""}, {"a", "a", ""}, {"a", "", ""}, {"a", "a", "a"}},
		"one of two":                   {{"a b", "", ""}, {"a b", "b", "b"}, {"a b", "a b", "a b"}, {"a b", "a", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{}
			for i, s := range sights {
				require.Equal(t, strings.Fields(s.missed), append([]string{}, w.missed(decided(s.stay, s.unheld))...), i)
			}
		})
	}
	stays := decided("a", "")
	missed := decided("a", "a")
	missed.missed = missed.unheld
	require.NotEqual(t, stays.fingerprint(), missed.fingerprint())
	all := stays.managers()
	was := known{managers: all, decision: stays.decision}
	require.False(t, missed.canWait(was), "that somebody took it away is told at once")
	was.missed = missed.missed
	require.True(t, stays.canWait(was), "that it is there again is not")
}

// decided is a sight of the nodes a and b, of which some stay, and from some of which autoscalers are not held back.
func decided(stay, unheld string) (s sight) {
	for _, n := range []string{"a", "b"} {
		s.decision.Nodes = append(s.decision.Nodes, longhorn.NodeVerdict{Node: n, Stay: strings.Contains(stay, n)})
	}
	s.unheld = strings.Fields(unheld)
	return s
}
