package turns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

// How long something takes that is played in one of four commits, and in how many commits that is.
const (
	takes = 6 * time.Second
	often = 4
)

func atCommit(t *testing.T, commit int) {
	t.Helper()
	t.Setenv("TEST_ALL", "")
	t.Setenv("TEST_COMMIT", fmt.Sprintf("%07x", commit*7919))
}

// TestEverythingHasItsTurn within a few commits, whatever it is called, and every step of what has many.
func TestEverythingHasItsTurn(t *testing.T) {
	played, commits, names := 0, 60, 50
	for i := range names {
		what, had, steps := fmt.Sprint("scenario-", i), 0, map[int]bool{}
		for commit := range commits {
			atCommit(t, commit)
			if turns.Has(what, takes) {
				had++
			}
			first, every := turns.Steps(what, often, 1)
			require.Equal(t, often, every)
			require.Less(t, first, every)
			steps[first] = true
		}
		require.Positive(t, had, what)
		require.Len(t, steps, often, what)
		played += had
	}
	require.InDelta(t, names*commits/often, played, float64(names*commits)/10, "about a quarter each time")
}

// TestAll plays everything.
func TestAll(t *testing.T) {
	t.Setenv("TEST_ALL", "1")
	for i := range 50 {
		require.True(t, turns.Has(fmt.Sprint("scenario-", i), takes))
	}
	first, every := turns.Steps("steps", often, 1)
	require.Equal(t, []int{0, 1}, []int{first, every})
	_, every = turns.Steps("many steps", often, 2)
	require.Equal(t, 2, every)
}

// TestWhatTakesLongerIsPlayedMoreSeldom, so that it costs the same.
func TestWhatTakesLongerIsPlayedMoreSeldom(t *testing.T) {
	commits, lasting := 4000, map[time.Duration]time.Duration{}
	for commit := range commits {
		atCommit(t, commit)
		for _, takes := range []time.Duration{time.Second, 20 * time.Second, 3 * time.Minute} {
			if turns.Has("what takes "+takes.String(), takes) {
				lasting[takes] += takes
			}
		}
	}
	require.Equal(t, time.Duration(commits)*time.Second, lasting[time.Second], "what is short is always played")
	for _, takes := range []time.Duration{20 * time.Second, 3 * time.Minute} {
		require.InDelta(t, 1.5, lasting[takes].Seconds()/float64(commits), 0.75, takes)
	}
}

// TestTellLeftOut adds to what other packages have told.
func TestTellLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "left-out")
	require.NoError(t, os.WriteFile(path, []byte("another package's\n"), 0o600))
	t.Setenv("TEST_LEFT_OUT", path)
	t.Setenv("TEST_ALL", "")
	turns.Steps("some-test: a variant", 3, 1)
	turns.Steps("some-test: another", 3, 1)
	require.NoError(t, turns.TellLeftOut())
	told, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Regexp(t, "^another package's\n", string(told))
	require.Equal(t, 1, strings.Count(string(told), "2 of 3 steps of some-test\n"), string(told))
}
