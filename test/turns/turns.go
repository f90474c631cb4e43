// Package turns lets what takes long take turns: of it each commit plays a share, and over a few commits all of it is
// played. `make test-all` plays all. The Makefile says which commit it is by environment, since many packages are
// tested by one command.
package turns

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// All tells whether everything is to be played.
func All() bool { return os.Getenv("TEST_ALL") != "" }

func commit() string { return os.Getenv("TEST_COMMIT") }

// turn is how much time each commit has for everything that takes long, on average.
const turn = time.Second

// Has tells whether something that takes long is played this time: the longer, the more seldom, so that all of it costs
// a commit the same on average. How long it takes is said of an idle machine, and with all that it has for itself.
func Has(what string, takes time.Duration) bool {
	if All() || draw(what, commit())%uint32(max(takes/turn, 1)) == 0 { //nolint:gosec // few
		return true
	}
	LeaveOut(what)
	return false
}

// OnlyWithAll tells whether everything is played, and takes note that something is not otherwise.
func OnlyWithAll(what string) bool {
	if !All() {
		LeaveOut(what)
	}
	return All()
}

// Steps tells at which steps of many something happens this time: at the first, and then at one in so many: one in
// often, or one in closely when all is played. The first moves with the commit. What is "TEST: VARIANT".
func Steps(what string, often, closely int) (first, every int) {
	every = often
	if All() {
		every = closely
	}
	if every > 1 {
		test, _, _ := strings.Cut(what, ":") // all of its variants are one line
		LeaveOut(fmt.Sprintf("%d of %d steps of %s", every-1, every, test))
	}
	return int(draw(what, commit()) % uint32(every)), every //nolint:gosec // few
}

// draw leaves it to chance, so that what was added or removed elsewhere moves nothing; but the same commit has the same
// share.
func draw(what, commit string) uint32 {
	h := fnv.New32a()
	fmt.Fprintln(h, what, commit)
	return h.Sum32()
}

// others is what was left out.
var others struct {
	sync.Mutex
	names []string
}

// LeaveOut takes note that something is not played this time.
func LeaveOut(what string) {
	others.Lock()
	defer others.Unlock()
	others.names = append(others.names, what)
}

// TellLeftOut adds what was left out to the file that the environment names, if it does, after all of a package has
// been played.
func TellLeftOut() error {
	others.Lock()
	defer others.Unlock()
	// Not os.Getenv: what that is asked for is part of what a cached result depends on, and this file is another one each
	// time.
	path, _ := syscall.Getenv("TEST_LEFT_OUT")
	if path == "" || len(others.names) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	slices.Sort(others.names)
	_, err = f.WriteString(strings.Join(append(slices.Compact(others.names), ""), "\n"))
	others.names = nil
	return err
}
