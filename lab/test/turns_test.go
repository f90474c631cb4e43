package test

import (
	"fmt"
	"hash/fnv"
	"os"
	"testing"
)

// awaitTurn skips a test that takes long and does not have its turn: it has one in one of so many commits, on average.
func awaitTurn(t *testing.T, shares uint32) {
	t.Helper()
	h := fnv.New32a()
	fmt.Fprintln(h, t.Name(), os.Getenv("TEST_COMMIT"))
	if os.Getenv("TEST_ALL") == "" && h.Sum32()%shares != 0 {
		t.Skip("not this commit's turn: ALL=1 plays all")
	}
}
