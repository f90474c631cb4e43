// scale measures lockkeeper with a storage cluster of a size that no test machine holds: 1,000 OSDs in 100 failure
// domains by default. Ceph is simulated; the API server, Temporal, the watcher, the worker and all that is in them are
// real. It prints one line "name value unit" for each figure:
//
//	adoption_1000_s          from the start of lockkeeper until every OSD's pod is marked as proved
//	adoption_requests_1000   requests to the API server until then, of watcher and worker
//	reaction_1000_ms         an OSD's pod is not ready → the budget says "nobody but in this failure domain", or nobody
//	reaction_busy_1000_ms    the same, while another failure domain is open and the keeper tells --jobs jobs that they wait
//	requests_per_event_1000  requests to the API server from then until the budget is at rest again, of watcher and worker
//
// Run it from the top of the repository, with the lab built.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/figures"
)

func main() {
	domains := flag.Int("domains", 100, "failure domains, with a node each")
	osds := flag.Int("osds", 10, "OSDs in each")
	events := flag.Int("events", 25, "how many OSDs to stop, one after the other")
	busy := flag.Int("busy", 10, "how many OSDs to stop while the keeper is busy")
	jobs := flag.Int("jobs", 500, "how many jobs wait for the lease then")
	figures.Main("scale", func(ctx context.Context) error { return run(ctx, *domains, *osds, *events, *busy, *jobs) })
}

func run(ctx context.Context, domains, perDomain, events, busy, jobs int) error {
	if events < 1 || domains < 3 || perDomain < 1 {
		return fmt.Errorf("--events and --osds must be 1 or more, --domains 3 or more")
	}
	w, err := newWorld(ctx, domains, perDomain)
	if w != nil {
		defer w.close()
	}
	if err != nil {
		return err
	}
	fmt.Printf("adoption_%d_s %.1f s\nadoption_requests_%d %d count\n", domains*perDomain, w.adopted.Seconds(),
		domains*perDomain, w.requests.Load())
	var reaction []time.Duration
	var requests int64
	for i := range events {
		osd := i * 37 % (domains * perDomain) // all over the place
		before := w.requests.Load()
		took, err := w.stopOne(ctx, osd)
		if err != nil {
			return fmt.Errorf("event %d, osd.%d: %w", i+1, osd, err)
		}
		requests += w.requests.Load() - before
		fmt.Fprintf(os.Stderr, "%3d/%d osd.%d: reaction %s, %d requests\n", i+1, events, osd, took.Round(time.Millisecond),
			w.requests.Load()-before)
		reaction = append(reaction, took)
	}
	figures.Print(fmt.Sprintf("reaction_%d_ms", domains*perDomain), reaction)
	fmt.Printf("requests_per_event_%d %.1f count\n", domains*perDomain, float64(requests)/float64(events))
	if busy == 0 {
		return nil
	}
	if reaction, err = w.stopAllBusy(ctx, domains, jobs, busy); err != nil {
		return err
	}
	figures.Print(fmt.Sprintf("reaction_busy_%d_ms", domains*perDomain), reaction)
	return nil
}
