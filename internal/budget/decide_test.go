package budget_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// TestDecisions goes through testdata/decisions.txt.
func TestDecisions(t *testing.T) {
	text, err := os.ReadFile("testdata/decisions.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, "|")
		require.Len(t, parts, 3, line)
		t.Run(strings.TrimSpace(parts[0]), func(t *testing.T) {
			w := atRest()
			for _, word := range strings.Fields(parts[1]) {
				w.say(word)
			}
			d := budget.Decide(w.input())
			require.Equal(t, strings.TrimSpace(parts[2]), brief(d), d.Message)
			require.NotEmpty(t, d.Message)
			switch d.Mode {
			case budget.ModeOpen:
				require.Equal(t, budget.Spec{MinAvailable: budget.Everything, Key: zoneLabel, Except: []string{d.Open.Name}},
					d.Budget)
				require.Equal(t, d.Budget, *d.Unproved)
			case budget.ModeClosed:
				require.Equal(t, budget.Spec{MinAvailable: budget.Everything}, d.Budget)
			case budget.ModeDefault:
				require.Empty(t, d.Budget.Except)
				require.Empty(t, d.Unproved.Except)
				require.True(t, d.Unproved.Quiet || d.Unproved.MinAvailable == budget.Everything, "no pod without a mark may go")
			}
		})
	}
}

func brief(d budget.Decision) string {
	s := string(d.Mode)
	if !d.Open.IsZero() {
		s += " " + d.Open.Name
	}
	s += " " + d.Reason
	if d.Mode == budget.ModeDefault {
		if d.Budget.Quiet {
			return s + " none"
		}
		s += fmt.Sprintf(" %d", d.Budget.MinAvailable)
	}
	return s
}

// TestMessagesNameTheCause, since they are what everybody who waits gets to read.
func TestMessagesNameTheCause(t *testing.T) {
	for state, want := range map[string]string{
		"osd.0=up/Terminating": "osd.0 on a is stopping (pod Terminating)",
		"osd.0=down/Pending osd.2=up/Pending touched=x": "zone x stays closed: in zone y osd.2 on c is stopping " +
			"(pod Pending)",
		"cordoned=a":                "a is cordoned: its OSDs may go",
		"gone=a":                    "a is deleted: its OSDs may go",
		"health=unclean proof=none": "20 of 32 PGs are clean",
		"health=stale proof=none":   "the PGs' state is not known to be fresh",
		"health=behind":             "the PGs' state is not known yet as of the last change of an OSD",
		"touched=x health=unclean healing=60 timeout=60": "PG health is ignored: 20 of 32 PGs are clean for longer than " +
			"pgHealthCheckTimeout (1m0s)",
		"unavailable":           "no quorum",
		"lease=x":               "drain/a holds the lease: drain of a",
		"lease=x okToStop=x:no": "zone x: 3 PGs would become unavailable",
		"osd.0=down/Pending touched=x health=broken":         "PGs are active+clean+inconsistent",
		"osd.0=down/None osd.1=up/Pending touched=x lease=x": "drain/a holds the lease: drain of a",
	} {
		w := atRest()
		for _, word := range strings.Fields(state) {
			w.say(word)
		}
		require.Equal(t, want, budget.Decide(w.input()).Message, state)
	}
}
