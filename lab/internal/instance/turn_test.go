package instance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAwaitTurn: as many as there are files have a turn, and the next one has it when one of them gives it back.
func TestAwaitTurn(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"1", "2"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	take := func(waiting func()) *os.File {
		f, err := AwaitTurn(t.Context(), folder, waiting)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	never := func() { t.Error("waits") }
	first := take(never)
	take(never)
	waited := false
	third := take(func() { waited = true; first.Close() })
	if !waited || third.Name() != first.Name() {
		t.Errorf("waited %v, and has %s instead of %s", waited, third.Name(), first.Name())
	}

	ctx, cancel := context.WithCancel(t.Context())
	if _, err := AwaitTurn(ctx, folder, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody gives a turn back: %v", err)
	}
	if _, err := AwaitTurn(t.Context(), t.TempDir(), never); err == nil || !strings.Contains(err.Error(), "LAB_TURNS") {
		t.Errorf("a folder without files: %v", err)
	}
}
