package doubt_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var (
	kinds = []doubt.Kind{
		doubt.PodStopped, doubt.Alarmed, doubt.Vanished, doubt.Silenced, doubt.Mute, doubt.Tampered, doubt.Changed,
		doubt.Opening,
	}
	at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// applied is what the budgets may say; nil: that is not known.
var applied = map[string]*budget.Decision{
	"closed": {Mode: budget.ModeClosed}, "open": {Mode: budget.ModeOpen}, "at rest": {Mode: budget.ModeDefault},
	"unknown": nil,
}

// TestKinds: what each kind puts in doubt, and when it closes the budgets before anybody has looked.
func TestKinds(t *testing.T) {
	for kind, c := range map[doubt.Kind]struct {
		data, everyone, budgets bool
		closes                  []string
	}{
		doubt.PodStopped: {data: true, closes: []string{"at rest"}},
		doubt.Alarmed:    {data: true},
		doubt.Vanished:   {data: true, everyone: true},
		doubt.Silenced:   {data: true, everyone: true},
		doubt.Mute:       {everyone: true, closes: []string{"at rest", "open", "unknown"}},
		doubt.Tampered:   {budgets: true, closes: []string{"at rest", "closed", "open", "unknown"}},
		doubt.Changed:    {budgets: true},
		doubt.Opening:    {closes: []string{"at rest"}},
	} {
		t.Run(string(kind), func(t *testing.T) {
			var s doubt.State
			s.Raise(at, doubt.Changed, "")
			before := s
			s.Raise(at, kind, "why")
			require.Greater(t, s.Last, before.Last)
			require.Equal(t, c.data, s.Data == s.Last)
			require.Equal(t, c.data, s.DataAt.Equal(at))
			require.Equal(t, c.everyone, s.Unheard())
			require.Equal(t, c.budgets, s.Budgets == s.Last)
			var closes []string
			for name, says := range applied {
				answered := s
				why, now := answered.Answer(says, false)
				if now {
					closes = append(closes, name)
					require.Equal(t, "why", why)
				}
				_, again := answered.Answer(says, false)
				require.False(t, again, "it is answered once")
				answered = s
				_, now = answered.Answer(says, true)
				require.Equal(t, len(c.closes) > 0, now, "a Machine may go by number")
			}
			slices.Sort(closes)
			require.Equal(t, c.closes, closes)
		})
	}
	require.Len(t, kinds, doubt.Kinds, "a kind that no test knows")
}

// TestAFactCountsUntilItIsDoubted: as of which doubt a fact is tells whether it counts, whatever else is raised.
func TestAFactCountsUntilItIsDoubted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s doubt.State
		var data, heard doubt.Seq
		dataDoubted, everyoneDoubted := false, false // since
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // somebody proves the data
				data, dataDoubted = s.Last, false
			case 1: // and that everyone lives
				heard, everyoneDoubted = s.Last, false
				s.Hear(heard)
			case 2:
				s.Answer(applied[rapid.SampledFrom([]string{"closed", "open", "at rest", "unknown"}).Draw(t, "applied")], false)
			default:
				kind := rapid.SampledFrom(kinds).Draw(t, "kind")
				s.Raise(at, kind, "")
				dataDoubted = dataDoubted || slices.Contains(kinds[:4], kind)
				everyoneDoubted = everyoneDoubted || slices.Contains(kinds[2:5], kind)
			}
			require.Equal(t, dataDoubted, data < s.Data)
			require.Equal(t, everyoneDoubted, s.Unheard())
		}
	})
}

// TestLook: what a look tells of what happened before it raises a doubt when it changes, and only then.
func TestLook(t *testing.T) {
	alarm := budget.Book{budget.Marked: {UID: "a", Alarm: "an alarm"}}
	for name, c := range map[string]struct {
		view    storage.View
		book    budget.Book
		before  doubt.Noticed
		unheard bool
		raises  bool
	}{
		"nothing":       {},
		"a silence":     {view: storage.View{Silent: at}, raises: true},
		"the same":      {view: storage.View{Silent: at}, before: doubt.Noticed{Silent: at}},
		"an older":      {view: storage.View{Silent: at}, before: doubt.Noticed{Silent: at.Add(1)}},
		"no answer":     {view: storage.View{Unavailable: "no quorum"}, raises: true},
		"still none":    {view: storage.View{Unavailable: "no quorum"}, unheard: true},
		"one vanished":  {view: storage.View{Unseen: 2}, before: doubt.Noticed{Unseen: 1}, raises: true},
		"one came back": {view: storage.View{Unseen: 1}, before: doubt.Noticed{Unseen: 2}},
		"an alarm":      {book: alarm, raises: true},
		"the same one":  {book: alarm, before: doubt.Noticed{Alarms: "an alarm"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := doubt.State{Noticed: c.before}
			if c.unheard {
				s.Raise(at, doubt.Mute, "")
			}
			before := s
			s.Look(at, c.view, c.book)
			require.Equal(t, c.raises, s.Data > before.Data)
			after := s
			s.Look(at, c.view, c.book)
			require.Equal(t, after.Last, s.Last, "the same look again is no news")
		})
	}
	s := doubt.State{Noticed: doubt.Noticed{Unseen: 2}}
	s.Look(at, storage.View{Unavailable: "no quorum"}, nil)
	require.Equal(t, 2, s.Noticed.Unseen, "a look that saw no daemons says nothing of them")
}

// TestTheFirstThatClosesIsSaid: several doubts are answered together, by one write.
func TestTheFirstThatClosesIsSaid(t *testing.T) {
	var s doubt.State
	s.Raise(at, doubt.PodStopped, "a pod")
	s.Raise(at, doubt.Tampered, "a budget")
	s.Raise(at, doubt.Tampered, "another")
	require.Len(t, s.Unanswered, 2)
	why, closes := s.Answer(applied["open"], false)
	require.True(t, closes)
	require.Equal(t, "a budget", why)
}
