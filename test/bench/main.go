// bench stops OSDs, one after the other, in a cluster that lockkeeper looks after, cordons nodes, and has many jobs
// wait for the lease. It measures by the API server's audit log, its own watches and its own connection to Ceph how
// long lockkeeper takes, and prints one line "name value unit" for each figure:
//
//	reaction_ms       an OSD's pod is not ready → the budgets say "nobody but in this failure domain"
//	reopen_ms         the manager's report, after everything was back, that all PGs are clean, and proved not to be old → one OSD may go again
//	reopen_report_wait_ms   the wait for the reports that prove it, from the first clean one on
//	sign_of_life_ms   the keeper asks who lives, since something is to open → every OSD elsewhere has given a sign of life
//	reaction_busy_ms  as reaction_ms, while a failure domain is open and the keeper tells --jobs jobs that they wait
//
// Everything that took longer than it should goes to standard error, with its parts.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/figures"
)

// rest is the pause before each event, beside that for the audit log: what the last one still has to do must not count
// twice.
const rest = 500 * time.Millisecond

type options struct {
	events, openings, busy, jobs int
	namespace, policy            string
}

func main() {
	var o options
	flag.IntVar(&o.events, "events", 50, "how many OSDs to stop, one after the other")
	flag.IntVar(&o.openings, "openings", 20, "how many nodes to cordon, one after the other")
	flag.IntVar(&o.busy, "busy", 10, "how many OSDs to stop while the keeper is busy")
	flag.IntVar(&o.jobs, "jobs", 500, "how many jobs wait for the lease then")
	flag.StringVar(&o.namespace, "namespace", "rook-ceph", "of the OSD pods")
	flag.StringVar(&o.policy, "policy", "rook-ceph", "MaintenancePolicy")
	figures.Main("bench", func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	if min(o.events, o.openings, o.busy, o.jobs) < 1 {
		return fmt.Errorf("--events, --openings, --busy and --jobs must be 1 or more")
	}
	began := time.Now()
	w, err := newWorld(ctx, o.namespace, o.policy)
	if err != nil {
		return err
	}
	defer w.close()
	for _, part := range []func(context.Context, *world, options) error{stopAll, openAll} {
		if err := part(ctx, w, o); err != nil {
			return err
		}
	}
	life, err := w.signsOfLife(ctx, began)
	if err != nil {
		return err
	}
	if len(life) == 0 {
		return fmt.Errorf("of %d openings none asked for signs of life", o.openings)
	}
	figures.Print("sign_of_life_ms", life)
	fmt.Printf("signs_of_life %d count\n", len(life))
	return stopAllBusy(ctx, w, o)
}

func stopAll(ctx context.Context, w *world, o options) error {
	var reaction, reopen, reports []time.Duration
	for i := range o.events {
		if err := figures.Pause(ctx, rest); err != nil {
			return err
		}
		e, err := w.stopOne(ctx, i)
		if err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
		reopened := fmt.Sprintf("clean proved %s after the first clean report, reopened %s later, of which the disruption "+
			"controller took %s", ms(e.reports), ms(e.reopen), ms(e.counted))
		if e.reopen < 0 {
			reopened = "and the manager never reported it"
		}
		fmt.Fprintf(os.Stderr, "%3d/%d %s: reaction %s, down and back %s, %s\n", i+1, o.events, e.pod, ms(e.reaction),
			ms(e.outage), reopened)
		reaction = append(reaction, e.reaction)
		if e.reopen >= 0 {
			reopen, reports = append(reopen, e.reopen), append(reports, e.reports)
		}
	}
	figures.Print("reaction_ms", reaction)
	figures.Print("reopen_ms", reopen)
	figures.Print("reopen_report_wait_ms", reports)
	fmt.Printf("events %d count\n", o.events)
	return nil
}

func openAll(ctx context.Context, w *world, o options) error {
	for i := range o.openings {
		if err := figures.Pause(ctx, proofLasts); err != nil {
			return err
		}
		node, took, err := w.openOne(ctx, i)
		if err != nil {
			return fmt.Errorf("opening %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "%3d/%d %s: open %s after the cordon\n", i+1, o.openings, node, ms(took))
	}
	return nil
}

func stopAllBusy(ctx context.Context, w *world, o options) error {
	began := time.Now()
	c, err := w.crowd(ctx, o.jobs)
	if c != nil {
		defer func() {
			if err := c.Disperse(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "bench: end the jobs:", err)
			}
		}()
	}
	if err != nil {
		return fmt.Errorf("%d jobs that wait: %w", o.jobs, err)
	}
	fmt.Fprintf(os.Stderr, "%d jobs wait, after %s\n", o.jobs, time.Since(began).Round(time.Second))
	var reaction []time.Duration
	for i := range o.busy {
		e, err := c.stopOneMeanwhile(ctx, i)
		if err != nil {
			return fmt.Errorf("busy event %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "%3d/%d %s: reaction %s; of %d jobs the keeper had told %d when the pod was to go, and %d "+
			"when the budgets were closed\n",
			i+1, o.busy, e.pod, ms(e.reaction), o.jobs, e.before, e.then)
		if e.then >= int64(o.jobs) {
			return fmt.Errorf("busy event %d: the keeper was not busy any more", i+1)
		}
		reaction = append(reaction, e.reaction)
	}
	figures.Print("reaction_busy_ms", reaction)
	fmt.Printf("busy_events %d count\n", o.busy)
	return nil
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
