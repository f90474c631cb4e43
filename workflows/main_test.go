package workflows_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

// TestMain lets the heap grow tenfold between two collections: the simulation makes much garbage and keeps little.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(1000)
	}
	code := m.Run()
	if err := turns.TellLeftOut(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
