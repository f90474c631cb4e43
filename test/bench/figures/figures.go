// Package figures is the frame of every benchmark: it runs until it is done or interrupted, and prints figures.
package figures

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// Main parses the flags and runs the benchmark of that name.
func Main(name string, run func(context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Print prints the median and the 99th percentile, and nothing of what was not measured. It sorts d.
func Print(name string, d []time.Duration) {
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	for _, p := range []int{50, 99} {
		at := (len(d)*p + 99) / 100 // the nearest rank: of fifty, p99 is the worst
		fmt.Printf("%s_p%d %.1f ms\n", name, p, float64(d[at-1].Microseconds())/1000)
	}
}

// Pause waits, unless ctx ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
