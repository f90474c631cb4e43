package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitTurn waits until one of the files in a folder is locked by nobody, and locks it. How many files there are is how
// many may have a turn at a time. Whoever has one gives it back by closing the file, or by ending. waiting is called
// once if there is none at first.
func AwaitTurn(ctx context.Context, folder string, waiting func()) (*os.File, error) {
	for first := true; ; first = false {
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("LAB_TURNS: %q: must be a folder with a file for each lab that may be up at a time", folder)
		}
		for _, path := range files {
			f, err := os.Open(path)
			if err != nil {
				return nil, fmt.Errorf("LAB_TURNS: %w", err)
			}
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				return f, nil
			}
			f.Close()
			if !errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("LAB_TURNS: lock %s: %w", path, err)
			}
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Kept tells whether there is a lab of that name that was stopped, and is to go on where it was.
func Kept(name string) bool {
	before, err := Load(name)
	return err == nil && before.kept()
}
