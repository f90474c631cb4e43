// bench stops OSDs, one after the other, in a cluster that lockkeeper looks after, and measures by its own watches and its
// own connection to Ceph how long lockkeeper takes. It prints one line "name value unit" for each figure:
//
//	reaction_ms  an OSD's pod is not ready → the budget says "nobody but in this failure domain"
//	reopen_ms    the first report of the manager, after everything was back, that all PGs are clean → the budget is at rest
//
// Everything that took longer than it should goes to standard error, with its parts.
package main

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

// rest is the pause before each event.
const rest = 1500 * time.Millisecond

func main() {
	events := flag.Int("events", 50, "how many OSDs to stop, one after the other")
	namespace := flag.String("namespace", "rook-ceph", "of the OSD pods")
	policy := flag.String("policy", "rook-ceph", "MaintenancePolicy")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *namespace, *policy, *events); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace, policy string, events int) error {
	if events < 1 {
		return fmt.Errorf("--events: %d: must be 1 or more", events)
	}
	w, err := newWorld(ctx, namespace, policy)
	if err != nil {
		return err
	}
	defer w.close()
	var reaction, reopen []time.Duration
	for i := range events {
		select { // each event begins with a world at rest: what the last one still has to do must not count twice
		case <-time.After(rest):
		case <-ctx.Done():
			return ctx.Err()
		}
		e, err := w.stopOne(ctx, i)
		if err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
		reopened := fmt.Sprintf("reopened %s after the first clean report", e.reopen.Round(time.Millisecond))
		if e.reopen < 0 {
			reopened = "and the manager never reported it"
		}
		fmt.Fprintf(os.Stderr, "%3d/%d %s: reaction %s, down and back %s, %s\n",
			i+1, events, e.pod, e.reaction.Round(time.Millisecond), e.outage.Round(time.Millisecond), reopened)
		reaction = append(reaction, e.reaction)
		if e.reopen >= 0 {
			reopen = append(reopen, e.reopen)
		}
	}
	print2("reaction_ms", reaction)
	print2("reopen_ms", reopen)
	fmt.Printf("events %d count\n", events)
	return nil
}

func print2(name string, d []time.Duration) {
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	for _, p := range []int{50, 99} {
		// The nearest rank: of fifty, p99 is the worst.
		i := (len(d)*p + 99) / 100
		fmt.Printf("%s_p%d %.1f ms\n", name, p, float64(d[i-1].Microseconds())/1000)
	}
}
