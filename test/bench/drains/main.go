// drains measures what drains cost beyond what they have to take, and what lockkeeper costs at rest. It runs the worker
// and the watcher itself, with a proxy between them and the API server that counts their requests. One line "name value
// unit" for each figure; all else goes to standard error.
//
//	drain_overhead_s         what of a drain is neither eviction nor reboot nor recovery nor a wait for reports, see timeline
//	drain_report_wait_s      the waits for the storage's own reports
//	api_requests_per_drain   requests of worker and watcher together, without Leases
//	temporal_events_per_drain   events in the histories of the drain and of the keeper
//	idle_requests_per_hour, idle_history_events_per_hour   at rest, extrapolated from --idle
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/figures"
)

func main() {
	o := options{}
	flag.IntVar(&o.drains, "drains", 6, "how many nodes to drain, one after the other")
	flag.DurationVar(&o.idle, "idle", 3*time.Minute, "how long to watch lockkeeper do nothing")
	flag.StringVar(&o.dir, "dir", "", "folder with worker.kubeconfig and watch.kubeconfig (required)")
	flag.StringVar(&o.lab, "lab", "", "name of the lab, whose nodes are rebooted (required)")
	flag.StringVar(&o.namespace, "namespace", "rook-ceph", "of the policy and the storage pods")
	flag.StringVar(&o.policy, "policy", "rook-ceph", "MaintenancePolicy")
	figures.Main("drains", func(ctx context.Context) error { return run(ctx, o) })
}

type options struct {
	drains                      int
	idle                        time.Duration
	dir, lab, namespace, policy string
}

func (o options) validate() error {
	switch {
	case o.drains < 1:
		return fmt.Errorf("--drains %d: must be 1 or more", o.drains)
	case o.idle < time.Minute:
		return fmt.Errorf("--idle %s: must be 1m or more, since a shorter one says nothing about an hour", o.idle)
	case o.dir == "" || o.lab == "":
		return fmt.Errorf("--dir and --lab are required")
	}
	return nil
}

// cost is what somebody used in some time.
type cost struct {
	requests int
	events   int64
}

func run(ctx context.Context, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.awaitRest(ctx); err != nil {
		return err
	}
	nodes, err := w.storageNodes(ctx)
	if err != nil {
		return err
	}
	var overhead, reports []time.Duration
	var drains cost
	said := w.proxy.words()
	for i := range o.drains {
		node := nodes[i%len(nodes)]
		before, err := w.spent(ctx)
		if err != nil {
			return err
		}
		t, err := w.drain(ctx, node)
		if err != nil {
			return fmt.Errorf("drain %s: %w", node, err)
		}
		if err := w.awaitRest(ctx); err != nil {
			return err
		}
		after, err := w.spent(ctx)
		if err != nil {
			return err
		}
		used := cost{requests: after.requests - before.requests, events: after.events - before.events + t.events}
		fmt.Fprintf(os.Stderr, "%2d/%d %s: %s, %d requests, %d events\n", i+1, o.drains, node, t, used.requests, used.events)
		overhead, reports = append(overhead, t.overhead()), append(reports, t.reports)
		drains.requests += used.requests
		drains.events += used.events
	}
	w.proxy.explain(said)
	idle, err := w.idle(ctx, o.idle)
	if err != nil {
		return err
	}
	slices.Sort(overhead)
	slices.Sort(reports)
	fmt.Printf("drain_overhead_s %.2f s\n", overhead[len(overhead)/2].Seconds())
	fmt.Printf("drain_overhead_max_s %.2f s\n", overhead[len(overhead)-1].Seconds())
	fmt.Printf("drain_report_wait_s %.2f s\n", reports[len(reports)/2].Seconds())
	fmt.Printf("drains %d count\n", o.drains)
	fmt.Printf("api_requests_per_drain %.1f requests\n", float64(drains.requests)/float64(o.drains))
	fmt.Printf("temporal_events_per_drain %.1f events\n", float64(drains.events)/float64(o.drains))
	perHour := float64(time.Hour) / float64(o.idle)
	fmt.Printf("idle_requests_per_hour %.0f requests\n", float64(idle.requests)*perHour)
	fmt.Printf("idle_history_events_per_hour %.0f events\n", float64(idle.events)*perHour)
	return nil
}

// idle tells what lockkeeper does at rest.
func (w *world) idle(ctx context.Context, d time.Duration) (cost, error) {
	if err := figures.Pause(ctx, 10*time.Second); err != nil { // what a drain still has to write must not count
		return cost{}, err
	}
	fmt.Fprintf(os.Stderr, "at rest for %s\n", d)
	before, err := w.spent(ctx)
	if err != nil {
		return cost{}, err
	}
	said := w.proxy.words()
	if err := figures.Pause(ctx, d); err != nil {
		return cost{}, err
	}
	after, err := w.spent(ctx)
	if err != nil {
		return cost{}, err
	}
	w.proxy.explain(said)
	return cost{requests: after.requests - before.requests, events: after.events - before.events}, nil
}
