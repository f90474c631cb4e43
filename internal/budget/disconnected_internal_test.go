package budget

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestWhoIsDisconnected: nobody is told to restart an OSD that may only be turning to another monitor.
func TestWhoIsDisconnected(t *testing.T) {
	const (
		lost    = ": up, and without a session with any monitor, so that PGs stand still when others stop"
		perhaps = "; the monitors were silent, or nobody asked them, so that it is known in a few seconds"
	)
	for name, c := range map[string]struct {
		d    *storage.Disconnected
		want string
	}{
		"nobody": {nil, ""},
		"one": {
			&storage.Disconnected{Daemons: 1, Examples: []string{"osd.3"}}, "osd.3" + lost + "; restart it",
		},
		"many": {
			&storage.Disconnected{Daemons: 5, Examples: []string{"osd.3"}},
			"osd.3 and 4 more" + lost + "; restart them, one after the other",
		},
		"unknown": {
			&storage.Disconnected{Daemons: 2, Why: "denied"},
			"2 OSDs (which, is not known: denied)" + lost + "; restart them, one after the other",
		},
		"perhaps": {
			&storage.Disconnected{Daemons: 2, Presumed: 2, Examples: []string{"osd.3"}},
			"osd.3 and 1 more: up, and perhaps without a session with any monitor" + perhaps,
		},
		"one for certain": {
			&storage.Disconnected{Daemons: 3, Presumed: 2, Examples: []string{"osd.3"}},
			"osd.3" + lost + "; restart it. Perhaps 2 more" + perhaps,
		},
		"perhaps some": {
			&storage.Disconnected{Daemons: 2, Presumed: 2, Why: "denied"},
			"2 OSDs (which, is not known: denied): up, and perhaps without a session with any monitor" + perhaps,
		},
	} {
		require.Equal(t, c.want, disconnectedToRestart(c.d), name)
		fact := strings.ReplaceAll(strings.ReplaceAll(c.want, "; restart it", ""), "; restart them, one after the other", "")
		require.Equal(t, fact, WhoIsDisconnected(c.d), name)
	}
}
