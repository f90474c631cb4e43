package workflows_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap grow tenfold between two collections: the simulation makes much garbage and keeps little.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(1000)
	}
	os.Exit(m.Run())
}
