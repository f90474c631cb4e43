package workflows_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/activity"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestRandomSchedules lets people, upgrade tools, bad luck and crashes loose on a cluster, and then lets it come to rest.
// The World judges every eviction and every budget on the way (I1 to I4, I8); in the end nothing of ours is left, and
// every drain has ended. A schedule that fails is told as a story.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		if failures, story := p.play(t); len(failures) > 0 {
			rt.Fatalf("%s\n\n%s", strings.Join(failures, "\n"), strings.Join(story, "\n"))
		}
	})
}

// plan is all that is random about a schedule.
type plan struct {
	osdsPerNode int
	seed        uint64  // of latencies and failures
	latency     int     // most milliseconds that a request takes
	failures    float64 // how many of the activities' attempts fail
	events      []event
}

type event struct {
	after time.Duration
	kind  string
	node  int
}

// what may happen, and how often.
var kinds = []string{
	"drain", "drain", "drain", "kubectl drain", "kubectl drain", "uncordon", "uncordon", "uncordon", "done", "done", "done",
	"reboot", "reboot", "kill OSD", "evict", "evict", "evict", "abort", "pause", "resume",
	"kill drain", "kill keeper", "watcher", "manager", "quorum", "noout", "delete node", "restore node", "break disk", "taint", "manage", "continue",
}

func drawPlan(t *rapid.T) plan {
	p := plan{
		osdsPerNode: rapid.IntRange(1, 2).Draw(t, "OSDs per node"),
		seed:        rapid.Uint64().Draw(t, "seed"),
		latency:     rapid.SampledFrom([]int{0, 20, 200, 1000}).Draw(t, "latency"),
		failures:    rapid.SampledFrom([]float64{0, 0, 0.05, 0.2}).Draw(t, "failures"),
	}
	for range rapid.IntRange(3, 25).Draw(t, "events") {
		p.events = append(p.events, event{
			after: time.Duration(rapid.SampledFrom([]int{0, 10, 50, 200, 1000, 3000, 10000, 60000}).Draw(t, "after")) * time.Millisecond,
			kind:  rapid.SampledFrom(kinds).Draw(t, "kind"), node: rapid.IntRange(0, 5).Draw(t, "node"),
		})
	}
	return p
}

// chance is a source of random numbers for many goroutines.
type chance struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (c *chance) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

func (c *chance) is(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.Float64() < p
}

// play plays the plan, and tells what went wrong.
func (p plan) play(t *testing.T) (failures, story []string) {
	synctest.Test(t, func(t *testing.T) {
		c := &chance{r: rand.New(rand.NewPCG(p.seed, 1))} //nolint:gosec // not a secret
		opts := sim.Options{OSDsPerNode: p.osdsPerNode}
		if p.latency > 0 {
			opts.Reaction = 2*time.Second + time.Duration(10*p.latency)*time.Millisecond
			opts.Latency = func() time.Duration { return time.Duration(c.intN(p.latency)) * time.Millisecond }
		}
		s := newScene(t, opts)
		s.fault = func(_ int, info activity.Info) fault {
			switch {
			case p.failures == 0 || info.Attempt > 3 || !c.is(p.failures):
				return noFault
			case c.is(0.5):
				return notDone
			default:
				return doneAlso
			}
		}
		s.run(func(s *scene) {
			d := &disorder{scene: s}
			failures = append(failures, d.play(p.events)...)
		})
		failures = append(failures, s.Violations()...)
		story = s.Story()
	})
	return failures, story
}

// disorder is what happens, and how it is put in order again.
type disorder struct {
	*scene
	managerDown, noQuorum, noWatcher bool
	deleted, broken, unmanaged       bool
	tainted                          string
}

func (d *disorder) play(events []event) (failures []string) {
	d.startKeeper()
	if !d.Await(5*time.Minute, func() bool { return len(d.Leftovers()) == 0 }) {
		return []string{fmt.Sprintf("does not come to rest at the beginning: %q", d.Leftovers())}
	}
	for _, e := range events {
		time.Sleep(e.after)
		d.happen(e)
	}
	d.Tell("now let it rest")
	return d.rest()
}

func (d *disorder) happen(e event) {
	nodes := d.Nodes()
	node := nodes[e.node%len(nodes)]
	osd := e.node % d.OSDs()
	job := workflows.DrainID(node)
	switch e.kind {
	case "drain":
		d.drain(workflows.DrainNodeInput{Node: node, Policy: sim.Key.String(), UncordonAfterReboot: e.node%2 == 0})
	case "kubectl drain":
		d.KubectlDrain(node)
	case "uncordon":
		d.PersonCordons(node, false)
	case "done":
		d.tellDrain(node, workflows.SignalDone)
	case "abort":
		d.tellDrain(node, workflows.SignalAbort)
	case "pause":
		d.tellDrain(node, workflows.SignalPause)
	case "resume":
		d.tellDrain(node, workflows.SignalResume)
	case "reboot":
		d.Reboot(node)
	case "kill OSD":
		d.KillOSD(osd)
	case "evict":
		d.EvictAny(fmt.Sprintf("osd.%d", osd))
	case "kill drain":
		if d.runs(job) {
			d.kill(job)
		}
	case "kill keeper":
		if d.runs(workflows.KeeperID(sim.Key)) {
			d.Unguarded(2 * time.Minute)
			d.killKeeper()
		}
	case "watcher":
		d.noWatcher = !d.noWatcher
		d.blindfold(d.noWatcher)
	case "manager":
		d.managerDown = !d.managerDown
		d.StopManager(d.managerDown)
	case "quorum":
		d.noQuorum = !d.noQuorum
		d.LoseQuorum(d.noQuorum)
	case "noout":
		d.PersonSetsNoout(node, d.Noout(node) == "")
	case "delete node":
		if !d.deleted {
			d.deleted = true
			d.DeleteNode(node)
		}
	case "continue":
		d.Tell("the keeper is to continue as new")
		d.post(func() { d.suggestContinueAsNew(true) })
	case "restore node":
		d.RestoreNode(node)
	case "manage":
		d.unmanaged = !d.unmanaged
		d.Manage(!d.unmanaged)
	case "break disk":
		if !d.broken {
			d.broken = true
			d.BreakDisk(osd)
		}
	case "taint":
		if d.tainted == "" {
			d.tainted = node
			d.Taint(node, "ToBeDeletedByClusterAutoscaler")
		}
	}
}

// rest ends what people began and mends what can be mended, and expects everything to come to rest by itself.
func (d *disorder) rest() (failures []string) {
	d.StopManager(false)
	d.LoseQuorum(false)
	d.Manage(true)
	d.blindfold(false)
	if d.tainted != "" {
		d.Taint(d.tainted, "")
	}
	for _, node := range d.Nodes() {
		if d.Noout(node) == "a person" {
			d.PersonSetsNoout(node, false)
		}
	}
	quiet := func() bool {
		for _, node := range d.Nodes() {
			if d.runs(workflows.DrainID(node)) {
				return false
			}
		}
		return len(d.Leftovers()) == 0
	}
	for range 6 {
		for _, node := range d.Nodes() {
			d.RestoreNode(node)
			d.signal(workflows.DrainID(node), workflows.SignalResume, nil)
			d.signal(workflows.DrainID(node), workflows.SignalDone, nil)
			d.PersonCordons(node, false)
		}
		if d.Await(10*time.Minute, quiet) {
			return nil
		}
	}
	for _, node := range d.Nodes() {
		if d.runs(workflows.DrainID(node)) {
			failures = append(failures, fmt.Sprintf("the drain of %s does not end: %+v", node, d.drainStatus(node).JobStatus))
		}
	}
	if left := d.Leftovers(); len(left) > 0 {
		failures = append(failures, fmt.Sprintf("left behind: %q, keeper: %+v", left, d.keeperStatus()))
	}
	return failures
}
