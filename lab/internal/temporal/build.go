package temporal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Program is the package of Temporal's command line, which is the dev server, too.
const Program = "github.com/temporalio/cli/cmd/temporal"

// EnsureBinary returns the path of the temporal program and builds it first if it is missing or older than its go.mod.
// module is the folder of the nested module that pins its version. LAB_TEMPORAL names a program to use instead.
//
// A first build takes about five minutes of one core; progress hears of it now and then.
func EnsureBinary(ctx context.Context, module, binary string, progress func(string)) (string, error) {
	if own := os.Getenv("LAB_TEMPORAL"); own != "" {
		if _, err := os.Stat(own); err != nil {
			return "", fmt.Errorf("LAB_TEMPORAL: %w", err)
		}
		return own, nil
	}
	current, err := newer(binary, filepath.Join(module, "go.mod"))
	if err != nil {
		return "", err
	}
	if current {
		return binary, nil
	}
	return binary, build(ctx, module, binary, progress)
}

// newer tells whether a file exists and is not older than its source.
func newer(file, source string) (bool, error) {
	want, err := os.Stat(source)
	if err != nil {
		return false, err
	}
	have, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !have.ModTime().Before(want.ModTime()), err
}

func build(ctx context.Context, module, binary string, progress func(string)) error {
	const label = "Temporal: building its server and UI (once; about five minutes of one core)"
	progress(label)
	// Built beside its place and moved there, so that an interrupted build leaves nothing that looks like a program.
	unfinished := binary + ".new"
	defer os.Remove(unfinished)
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", unfinished, Program)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=readonly"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build Temporal: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for start := time.Now(); ; {
		select {
		case <-tick.C:
			progress(fmt.Sprintf("%s: %s", label, time.Since(start).Round(time.Second)))
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build Temporal: %w: %s", err, lastLines(out.String(), 5))
			}
			return os.Rename(unfinished, binary)
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
