package e2e

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What takes long takes turns: of it each commit plays a share, and over a few commits all of it is played. `make test-all` plays all.

// The Makefile says by environment, since other packages are tested by the same command.
var (
	playAll = os.Getenv("TEST_ALL") != ""
	commit  = os.Getenv("TEST_COMMIT")   // decides whose turn it is
	leftOut = os.Getenv("TEST_LEFT_OUT") // the file to which is written what was left out; "": none
)

// How many commits it takes, on average, until something has had its turn.
const (
	often  = 4
	seldom = 6
)

// hasTurn tells whether something that takes long is played this time.
func hasTurn(what string, shares uint32) bool {
	if playAll || inTurn(what, commit, shares) {
		return true
	}
	others.Lock()
	defer others.Unlock()
	others.names = append(others.names, what)
	return false
}

// inTurn leaves it to chance, so that what was added or removed elsewhere moves nothing; but the same commit has the same share.
func inTurn(what, commit string, shares uint32) bool {
	h := fnv.New32a()
	fmt.Fprintln(h, what, commit)
	return h.Sum32()%shares == 0
}

// others is what was left out.
var others struct {
	sync.Mutex
	names []string
}

// tellLeftOut says what was left out, after all has been played.
func tellLeftOut() error {
	others.Lock()
	defer others.Unlock()
	if leftOut == "" {
		return nil
	}
	slices.Sort(others.names)
	return os.WriteFile(leftOut, []byte(strings.Join(append(others.names, ""), "\n")), 0o600)
}

// TestEverythingHasItsTurn within a few commits, whatever it is called.
func TestEverythingHasItsTurn(t *testing.T) {
	played, commits := 0, 60
	for i := range 50 {
		what, turns := fmt.Sprint("scenario-", i), 0
		for commit := range commits {
			if inTurn(what, fmt.Sprintf("%07x", commit*7919), often) {
				turns++
			}
		}
		require.Positive(t, turns, what)
		played += turns
	}
	require.InDelta(t, 50*commits/often, played, float64(50*commits)/10, "about a quarter each time")
}
