package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestNews: what a decision depends on is news, and what only people read is not.
func TestNews(t *testing.T) {
	t.Parallel()
	last := activities.Watched{
		Fingerprint: "a", Unflagged: "b", Flagged: []string{"node-a"}, Disconnected: "c",
		Health: storage.Health{Fresh: true, PGs: 32, PGsClean: 31, Reason: "1 of 32 PGs are not clean"},
	}
	for name, c := range map[string]struct {
		change func(*activities.Watched)
		want   bool
	}{
		"nothing":                         {func(*activities.Watched) {}, false},
		"how far it is":                   {func(w *activities.Watched) { w.Health.PGsClean++ }, false},
		"who carries the flag":            {func(w *activities.Watched) { w.Fingerprint = "d" }, true},
		"the PGs are clean":               {func(w *activities.Watched) { w.Health.Clean = true }, true},
		"the PGs are, and some not heard": {func(w *activities.Watched) { w.Health.ButDisconnected = true }, true},
		"others are not heard":            {func(w *activities.Watched) { w.Disconnected = "d" }, true},
		"all are heard":                   {func(w *activities.Watched) { w.Disconnected = "" }, true},
	} {
		now := last
		c.change(&now)
		require.Equal(t, c.want, now.News(last), name)
		require.Equal(t, name == "nothing" || name == "how far it is" || name == "who carries the flag",
			now.OnlyFlags(last, last.Flagged), name)
	}
}
