package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func TestOverridesAreTakenBack(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	one := storage.Override{Pod: "osd-1-x", UID: "1", Daemon: "osd.1"}
	m := &mind{}
	look := func(now time.Time, unavailable string, all ...storage.Override) *plan {
		m.observed.Seen.View = storage.View{Unavailable: unavailable, Overrides: all}
		m.sawOverrides(now)
		p := &plan{}
		m.planOverrides(now, p)
		return p
	}
	require.True(t, look(at, "").isNothing())
	require.Zero(t, m.overridesEnd())

	require.Empty(t, look(at, "", one).TakeBack)
	require.Equal(t, at.Add(overridesLast), m.overridesEnd())
	require.Empty(t, look(at.Add(overridesLast-1), "", one).TakeBack)
	require.Empty(t, look(at.Add(overridesLast), "no quorum").TakeBack)
	require.Zero(t, m.overridesEnd(), "nothing is known, so that nothing is to be looked at at once")

	at = at.Add(overridesLast)
	p := look(at, "", one)
	require.Equal(t, []storage.Override{one}, p.TakeBack, "to see nothing is not to see that it is gone")
	require.False(t, p.isNothing())
	require.Equal(t, "osd.1 waits for its turn again", p.summary())
	m.tookOverrides(at, p, activities.Attempt[struct{}]{Begun: true, Failed: "the API server does not answer"})
	require.Empty(t, m.news)
	require.Equal(t, at.Add(overridesLast), m.overridesEnd(), "not at once again")

	at = at.Add(overridesLast)
	p = look(at, "", one)
	m.tookOverrides(at, p, activities.Attempt[struct{}]{Begun: true})
	require.Len(t, m.news, 1)
	require.Equal(t, "osd.1 (pod osd-1-x) waits for its turn again: it was let go out of turn, and nobody has deleted it "+
		"within 1m0s", m.news[0].Message)
	require.Zero(t, m.overridesEnd())

	require.Empty(t, look(at, "", one).TakeBack, "a word that is given anew has its time")
}
