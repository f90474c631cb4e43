package turns

import (
	"os"
	"testing"
	"time"
)

// Await skips a test that takes long and does not have its turn.
func Await(t testing.TB, what string, takes time.Duration) {
	t.Helper()
	if Has(what, takes) {
		return
	}
	tell(t)
	t.Skip("not this commit's turn: ALL=1 plays all")
}

// Need skips a test without a program that only `make test-all` and a target of make build. When all is played it is a
// failure that it is missing.
func Need(t testing.TB, what, program, target string) {
	t.Helper()
	if _, err := os.Stat(program); err == nil {
		return
	}
	if All() {
		t.Fatalf("%s: %s is not there: run make %s", what, program, target)
	}
	LeaveOut(what)
	tell(t)
	t.Skipf("%s: make test-all, or make %s, builds what it needs", what, target)
}

func tell(t testing.TB) {
	t.Helper()
	if err := TellLeftOut(); err != nil {
		t.Fatal(err)
	}
}
