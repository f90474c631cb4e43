package workflows_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/activity"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// kindsForTwo are what may happen to two storage clusters on the same nodes, as often as they are listed. What an event
// does to one of them depends on its number.
var kindsForTwo = strings.Split("drain,drain,drain,drain,drain one,drain one,kubectl drain,kubectl drain,uncordon,"+
	"done,done,done,reboot,reboot,kill,kill,evict,evict,abort,abort,pause,resume,kill drain,kill keeper,kill keeper,"+
	"continue,continue,release,worker,watcher,manager,hang", ",")

var schedulesForTwo = rapid.Custom(func(t *rapid.T) schedule {
	s := schedule{
		OSDsPerNode: 1, Seed: rapid.Uint64().Draw(t, "seed"),
		Latency:  rapid.SampledFrom([]int{0, 20, 200, 1000}).Draw(t, "latency"),
		Failures: rapid.SampledFrom([]float64{0, 0, 0.05, 0.2}).Draw(t, "failures"),
		Lost:     rapid.SampledFrom([]float64{0, 0, 0.03, 0.1}).Draw(t, "lost"),
	}
	for range rapid.IntRange(3, 20).Draw(t, "events") {
		after := rapid.SampledFrom([]int{0, 10, 50, 200, 1000, 3000, 10000, 60000, 90000}).Draw(t, "after")
		s.Events = append(s.Events, event{
			After: time.Duration(after) * time.Millisecond,
			Kind:  rapid.SampledFrom(kindsForTwo).Draw(t, "kind"), Which: rapid.IntRange(0, 35).Draw(t, "which"),
		})
	}
	return s
})

// TestTwoClustersInDisorder: people drain nodes that host two storage clusters, and everything goes wrong meanwhile.
// Neither is ever disrupted in two places, no drain waits for another for ever, and nothing of ours is left.
func TestTwoClustersInDisorder(t *testing.T) {
	t.Parallel()
	for seed := *simSeed; seed < *simSeed+schedulesToPlay(*simTwo, 50); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := schedulesForTwo.Example(seed)
			if o := s.playTwo(t); o.failed() {
				t.Errorf("-sim.two=1 -sim.seed=%d\n%s", seed, tale(s, o))
			}
		})
	}
}

// playTwo plays a schedule with two storage clusters, and tells what went wrong.
func (s schedule) playTwo(t *testing.T) (o outcome) {
	defer s.watchStandstill()()
	synctest.Test(t, func(t *testing.T) {
		c := &chance{r: rand.New(rand.NewPCG(s.Seed, 1))} //nolint:gosec // not a secret
		other := s.options(c)
		other.Key, other.Shift = secondCluster.Key, secondCluster.Shift
		stage := newScene(t, s.options(c), other)
		stage.fault = func(_ int, info activity.Info) fault {
			switch {
			case info.Attempt > 3 || !c.is(s.Failures):
				return noFault
			case c.is(0.5):
				return notDone
			default:
				return doneAlso
			}
		}
		stage.run(func(stage *scene) { o.stuck = (&disorderOfTwo{disorder: disorder{scene: stage}}).play(s.Events) })
		for _, x := range stage.sights {
			for _, v := range x.Violations() {
				o.violations = append(o.violations, x.Key().Name+": "+v)
			}
			o.story = append(o.story, "== "+x.Key().String())
			o.story = append(o.story, x.Story()...)
		}
	})
	return o
}

// disorderOfTwo is what happens to two storage clusters, and how it is put in order again.
type disorderOfTwo struct {
	disorder
	silent, hanging map[*sight]string
}

func (d *disorderOfTwo) play(events []event) (stuck []string) {
	d.silent, d.hanging = map[*sight]string{}, map[*sight]string{}
	d.settleAll()
	for _, e := range events {
		time.Sleep(e.After)
		d.happen(e)
	}
	d.onNode(func(w *sim.World) { w.Tell("now let it rest") })
	return d.rest()
}

func (d *disorderOfTwo) happen(e event) {
	nodes, x := d.Nodes(), d.sights[e.Which%2]
	node, daemons := nodes[e.Which/2%len(nodes)], x.Daemons()
	job, keeper := jobs.DrainNode.ID(node), workflows.KeeperID(x.Key())
	if meddles[e.Kind] && d.draining(node) {
		d.excused.Store(node, true)
	}
	switch e.Kind {
	case "drain":
		d.drain(workflows.DrainNodeInput{Node: node, UncordonAfterReboot: e.Which%3 == 0})
	case "drain one":
		d.drain(drainOnly(x, node))
	case "kubectl drain":
		d.onNode(func(w *sim.World) { w.KubectlDrain(node) })
	case "uncordon":
		d.onNode(func(w *sim.World) { w.PersonCordons(node, false) })
	case "done", "abort", "pause", "resume":
		d.tellDrain(node, e.Kind)
	case "reboot":
		d.onNode(func(w *sim.World) { w.Reboot(node) })
	case "kill":
		x.Kill(daemons[e.Which/2%len(daemons)], 2*time.Second)
	case "evict":
		x.EvictAny(daemons[e.Which/2%len(daemons)])
	case "kill drain":
		if d.runs(job) {
			d.kill(job)
		}
	case "kill keeper":
		if d.runs(keeper) && !d.noWatcher { // nobody else would start another one
			x.Unguarded(2 * time.Minute)
			d.killKeeperOf(x.Key())
		}
	case "continue":
		d.continueJob(job)
	case "release":
		d.signal(keeper, workflows.SignalReleaseLease, workflows.LeaseRef{WorkflowID: job, RunID: d.running[job]})
	case "worker":
		d.noWorker = !d.noWorker
		d.crashWorker(d.noWorker)
	case "watcher":
		d.noWatcher = !d.noWatcher
		d.blindfold(d.noWatcher)
	case "manager":
		d.silence(x, d.silent[x] == "")
	case "hang":
		d.hang(x, node)
	default:
		panic("an event of no known kind: " + e.Kind)
	}
}

func (d *disorderOfTwo) silence(x *sight, on bool) {
	x.StopManager(on)
	d.silent[x] = map[bool]string{true: "manager"}[on]
}

// hang has the OSDs of a node hang, or those that hang go on.
func (d *disorderOfTwo) hang(x *sight, node string) {
	if was := d.hanging[x]; was != "" {
		x.Hang(false, was)
		d.hanging[x] = ""
		return
	}
	x.Hang(true, node)
	d.hanging[x] = node
}

// draining tells whether kubectl drains a node.
func (d *disorderOfTwo) draining(node string) bool {
	return slices.ContainsFunc(d.sights, func(x *sight) bool { return x.Draining(node) })
}

// rest ends what people began and mends what can be mended, and expects everything to come to rest by itself.
func (d *disorderOfTwo) rest() (stuck []string) {
	d.crashWorker(false)
	d.blindfold(false)
	for _, x := range d.sights {
		d.silence(x, false)
		if d.hanging[x] != "" {
			d.hang(x, "")
		}
	}
	for range 100 { // the last resort is the end of a noout, after half an hour, and one domain after the other
		for _, node := range d.Nodes() {
			d.signal(jobs.DrainNode.ID(node), jobs.SignalResume, nil)
			if !d.draining(node) || d.isExcused(node) {
				d.signal(jobs.DrainNode.ID(node), jobs.SignalDone, nil)
				d.onNode(func(w *sim.World) { w.PersonCordons(node, false) })
			}
		}
		if d.until(time.Minute, func() bool { return d.over }) || d.atRest() {
			return nil
		}
	}
	for _, node := range d.Nodes() {
		if d.lives(node) {
			stuck = append(stuck, fmt.Sprintf("the drain of %s does not end: %+v", node, d.drainStatus(node).JobStatus))
		}
		if d.draining(node) && !d.isExcused(node) {
			stuck = append(stuck, "kubectl drain "+node+" does not end")
		}
	}
	for _, x := range d.sights {
		stuck = append(stuck, fmt.Sprintf("%s: left behind: %q, not whole: %q, keeper: %+v", x.Key(), x.Leftovers(),
			x.Whole(), d.keeperOf(x).Lease))
	}
	return stuck
}

// atRest: no drain runs, of ours or kubectl's, nothing of ours is left over, and all data is whole.
func (d *disorderOfTwo) atRest() bool {
	for _, node := range d.Nodes() {
		if d.lives(node) || d.draining(node) && !d.isExcused(node) {
			return false
		}
	}
	for _, x := range d.sights {
		if len(x.Leftovers()) > 0 || len(x.Whole()) > 0 {
			return false
		}
	}
	return true
}
