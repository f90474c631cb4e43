// rollouts measures how long a new pod template takes to reach every OSD of a CephOSD, one OSD at a time and one zone
// at a time, and how much of that is neither stopping nor starting nor recovery. It changes the variable UPDATE of the
// lab's template, and all else is the watcher's and the worker's work. One line "name value unit" for each figure:
//
//	rollout_24_by_osd_s, rollout_24_by_zone_s   from the change of the template to the end of the workflow, with 24 OSDs
//	rollout_speedup_zone        how many times faster by zone
//	batch_overhead_s, _max_s    mean and worst over all batches of both, see batch
//	temporal_events_per_osd_by_osd, _by_zone    in the histories of the workflow's runs
//
// With --overhead NAME, only by OSD, and only batch_overhead_NAME_s and _max_s.
//
// Every batch is told on standard error, with its parts.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/figures"
)

func main() {
	o := options{}
	flag.StringVar(&o.namespace, "namespace", "rook-ceph", "of the CephOSD, the policy and the OSD pods")
	flag.StringVar(&o.policy, "policy", "rook-ceph", "MaintenancePolicy")
	flag.StringVar(&o.cephOSD, "cephosd", "ceph-osds", "CephOSD whose template changes")
	flag.StringVar(&o.overhead, "overhead", "", "measure only the overhead of batches of one OSD, under this name")
	figures.Main("rollouts", func(ctx context.Context) error { return run(ctx, o) })
}

type options struct{ namespace, policy, cephOSD, overhead string }

func run(ctx context.Context, o options) error {
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer w.close()
	one, err := w.rollOut(ctx, "OSD")
	if err != nil {
		return fmt.Errorf("by OSD: %w", err)
	}
	if o.overhead != "" {
		printOverheads("batch_overhead_"+o.overhead, one.batches)
		return nil
	}
	zones, err := w.rollOut(ctx, "Zone")
	if err != nil {
		return fmt.Errorf("by Zone: %w", err)
	}
	fmt.Printf("rollout_%d_by_osd_s %.1f s\n", one.osds, one.total().Seconds())
	fmt.Printf("rollout_%d_by_zone_s %.1f s\n", zones.osds, zones.total().Seconds())
	fmt.Printf("rollout_speedup_zone %.1f ratio\n", one.total().Seconds()/zones.total().Seconds())
	printOverheads("batch_overhead", slices.Concat(one.batches, zones.batches))
	fmt.Printf("temporal_events_per_osd_by_osd %.1f events\n", one.eventsPerOSD())
	fmt.Printf("temporal_events_per_osd_by_zone %.1f events\n", zones.eventsPerOSD())
	return nil
}

// rollout is one of them, as it was measured.
type rollout struct {
	asked, ended time.Time
	osds         int
	batches      []batch
	events       int64 // in the histories of the workflow's runs
}

func (r rollout) total() time.Duration { return r.ended.Sub(r.asked) }

func (r rollout) eventsPerOSD() float64 { return float64(r.events) / float64(r.osds) }

func printOverheads(name string, batches []batch) {
	mean, worst := overheads(batches)
	fmt.Printf("%s_s %.2f s\n", name, mean.Seconds())
	fmt.Printf("%s_max_s %.2f s\n", name, worst.Seconds())
}

func overheads(batches []batch) (mean, worst time.Duration) {
	for _, b := range batches {
		mean += b.overhead()
		worst = max(worst, b.overhead())
	}
	return mean / time.Duration(len(batches)), worst
}
