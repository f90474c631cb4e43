package workflows_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/longhorn"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var simLonghorn = flag.Int("sim.longhorn", 0, "how many schedules TestLonghornInDisorder plays; 0: a share")

// longhornSchedule is all that is random about what happens to a Longhorn installation.
type longhornSchedule struct {
	Nodes    int
	Volumes  []int // how many replicas each has
	Seed     uint64
	Latency  int     // most milliseconds that a request takes
	Failures float64 // how many of the activities' attempts fail
	Lost     float64 // how many requests get no answer
	Hammered bool    // somebody evicts everything all the time
	Retires  bool    // in the end the installation is handed back to Longhorn
	Events   []event
	Moves    bool // replicas that would keep a node that is removed are moved
	ByWorker bool // lockkeeper empties Longhorn's budgets, and not the API server
}

// longhornKinds are what may happen, as often as they are listed.
var longhornKinds = strings.Split("cordon,cordon,cordon,uncordon,uncordon,kubectl drain,kubectl drain,kubectl drain,"+
	"drain,drain,drain,autoscale,autoscale,autoscale,autoscale,autoscale,karpenter,karpenter,karpenter,taint,taint,"+
	"old taint,odd taint,untaint,untaint,lose node,lose node,nodes return,nodes return,delete node,add node,attach,"+
	"workload,workload,workload,detach,detach,create,create,delete,fail replica,fail replica,fail replica,kill manager,"+
	"replace manager,drain policy,drain policy,drain policy,autoscaler setting,hammer,hammer,helper,worker,watcher,"+
	"crash,crash,kill keeper,continue,kill job,kill job,cancel job,abort,pause,resume,done,tamper,edit,unhold,"+
	"one writer", ",")

var longhornSchedules = rapid.Custom(func(t *rapid.T) longhornSchedule {
	s := longhornSchedule{
		Nodes: rapid.IntRange(3, 6).Draw(t, "nodes"), Seed: rapid.Uint64().Draw(t, "seed"),
		Volumes:  rapid.SliceOfN(rapid.IntRange(1, 3), 1, 5).Draw(t, "volumes"),
		Latency:  rapid.SampledFrom([]int{2, 20, 200, 1000}).Draw(t, "latency"),
		Failures: rapid.SampledFrom([]float64{0, 0, 0.05, 0.2}).Draw(t, "failures"),
		Lost:     rapid.SampledFrom([]float64{0, 0, 0.03, 0.1}).Draw(t, "lost"),
		Hammered: rapid.Bool().Draw(t, "hammered"), Retires: rapid.IntRange(0, 3).Draw(t, "retires") == 0,
	}
	for range rapid.IntRange(3, 24).Draw(t, "events") {
		after := rapid.SampledFrom([]int{0, 20, 200, 1000, 3000, 10000, 30000, 90000}).Draw(t, "after")
		s.Events = append(s.Events, event{
			After: time.Duration(after) * time.Millisecond,
			Kind:  rapid.SampledFrom(longhornKinds).Draw(t, "kind"), Which: rapid.IntRange(0, 59).Draw(t, "which"),
		})
	}
	s.Moves = rapid.Bool().Draw(t, "moves")
	s.ByWorker = rapid.IntRange(0, 3).Draw(t, "by worker") == 0
	return s
})

// TestLonghornInDisorder: people, autoscalers and upgrade tools take nodes of a Longhorn installation away. Nodes,
// replicas and instance managers fail meanwhile, everything is evicted that may be, and lockkeeper is killed at any
// request. No volume loses its last healthy replica by what lockkeeper allows, no two nodes with replicas of one volume
// are let go together, each instance manager is under one budget; and when everything works again whoever may leave has
// left, no claim is held, and nothing of ours is where it should not be.
func TestLonghornInDisorder(t *testing.T) {
	t.Parallel()
	var (
		played, failed atomic.Int64
		mu             sync.Mutex
		all            longhorn.Counts
	)
	began, many := time.Now(), schedulesToPlay(*simLonghorn, 150)
	t.Run("schedules", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for n := int(played.Add(1)); n <= many; n = int(played.Add(1)) {
					seed := *simSeed + n - 1
					s := longhornSchedules.Example(seed)
					o, counts := s.play(t)
					mu.Lock()
					all = all.Plus(counts)
					mu.Unlock()
					if !o.failed() {
						continue
					}
					if *simFirst {
						fmt.Printf("schedule %d\n%s", seed, s.tale(o))
						os.Exit(1)
					}
					if k := failed.Add(1); *simFailures > 0 && int(k) > *simFailures {
						return
					}
					s, o = s.shorter(t, o)
					t.Errorf("schedule %d (make sim-longhorn N=1 SEED=%d)\n%s", seed, seed, s.tale(o))
				}
			})
		}
	})
	if *simReport {
		fmt.Printf("longhorn_schedules %d count\nfailed %d count\nevicted %d count\njudged %d count\nrefused %d count\n"+
			"removed %d count\nwaited %d count\nheld_back %d count\nmoved %d count\ntwo_budgets %d count\n"+
			"schedules_per_s %.1f 1/s\n", many, failed.Load(), all.Evicted, all.Judged, all.Refused, all.Removed, all.Waited,
			all.HeldBack, all.Moved, all.TwoBudgets, float64(many)/time.Since(began).Seconds())
	}
	const enough = 40
	if many < enough || t.Failed() {
		return // too few to tell, or ended early
	}
	assert.Greater(t, all.Judged, 2*many, "evictions of instance managers that our budgets had allowed")
	assert.Greater(t, all.Refused, 20*many, "evictions that were refused")
	assert.Greater(t, all.Removed, many/4, "nodes that were removed")
	assert.Greater(t, all.Waited, many, "looks at the lease at which somebody waited for his turn")
	assert.Greater(t, all.HeldBack, 0, "nodes from which an autoscaler was held back")
}

// TestAReplicaIsMovedAway: the node with the only replica of a volume is to be removed, and leaves once Longhorn has
// moved it to another node. Where the policy does not say so it stays.
func TestAReplicaIsMovedAway(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{true, false} {
		s := longhornSchedule{Nodes: 3, Volumes: []int{1}, Seed: 1, Latency: 20, Hammered: true, Moves: moves}
		s.Events = []event{{Kind: "taint", After: time.Second}}
		o, counts := s.play(t)
		require.False(t, o.failed(), s.tale(o))
		require.Equal(t, moves, counts.Moved == 1, s.tale(o))
	}
}

// TestAttachingCostsLittle: volumes are attached and detached all the time, and the keeper hears of it now and then.
func TestAttachingCostsLittle(t *testing.T) {
	t.Parallel()
	s := longhornSchedule{Nodes: 3, Volumes: []int{3, 3, 3, 3, 3, 3}, Seed: 1, Latency: 2}
	idle, _ := s.play(t)
	require.False(t, idle.failed(), s.tale(idle))
	for i := range 120 {
		volume, round := i%6, i/6
		e := event{Kind: "attach", After: time.Second, Which: volume + 6*(round%3)}
		if round%2 == 1 {
			e.Kind = "detach"
		}
		s.Events = append(s.Events, e)
	}
	o, _ := s.play(t)
	require.False(t, o.failed(), s.tale(o))
	require.LessOrEqual(t, o.watches-idle.watches, 120/10, s.tale(o))
}

func (s longhornSchedule) tale(o outcome) string {
	var b strings.Builder
	for _, v := range append(o.violations, o.stuck...) {
		fmt.Fprintf(&b, "  ! %s\n", v)
	}
	fmt.Fprintf(&b, "  %d nodes, volumes with %v replicas, requests take up to %d ms, %.0f%% of attempts fail, %.0f%% of "+
		"answers are lost, hammered: %t\n", s.Nodes, s.Volumes, s.Latency, 100*s.Failures, 100*s.Lost, s.Hammered)
	fmt.Fprintf(&b, "  %v\n  %s\n", s.Events, strings.Join(o.story, "\n  "))
	return b.String()
}

// play plays a schedule and tells what went wrong, and how often what happened.
func (s longhornSchedule) play(t *testing.T) (o outcome, counts longhorn.Counts) {
	defer schedule{Seed: s.Seed}.watchStandstill()()
	synctest.Test(t, func(t *testing.T) {
		d := &longhornDisorder{schedule: s, chance: chance{r: rand.New(rand.NewPCG(s.Seed, 1))}} //nolint:gosec // not a secret
		var stop func()
		d.scene = newSceneOn(t, func(a *worker.Adapters) {
			d.w = longhorn.New(d.options())
			stop = longhornAdapters(d.w, a)
		}, sim.Options{Key: longhorn.Key})
		d.fault = d.faults
		d.scene.run(func(stage *scene) {
			stage.blindfold(true)
			stage.World.Close() // there is no Ceph
			d.watcher = stage.watchLonghorn(d.w)
			o.stuck = d.play(s.Events)
			d.watcher.run(false)
			stop()
			d.w.Close()
			o.violations, counts, o.watches = d.w.Violations(), d.w.Counted(), int(d.watches.Load())
		})
		o.story = d.Story()
	})
	return o, counts
}

// shorter leaves out events without which the schedule fails all the same.
func (s longhornSchedule) shorter(t *testing.T, o outcome) (longhornSchedule, outcome) {
	until := time.Now().Add(30 * time.Second)
	try := func(next longhornSchedule) bool {
		for range 2 { // goroutines that are ready at the same instant run in any order
			if time.Now().After(until) {
				return false
			}
			if x, _ := next.play(t); x.failed() && (len(x.violations) > 0) == (len(o.violations) > 0) {
				s, o = next, x
				return true
			}
		}
		return false
	}
	calm := s
	calm.Failures, calm.Lost = 0, 0
	try(calm)
	for size := max(len(s.Events)/2, 1); ; size /= 2 {
		for i := 0; i+size <= len(s.Events); {
			next := s
			next.Events = append(append([]event{}, s.Events[:i]...), s.Events[i+size:]...)
			if !try(next) {
				i += size
			}
		}
		if size <= 1 {
			return s, o
		}
	}
}

// longhornDisorder is what happens to a Longhorn installation, and how it is put in order again.
type longhornDisorder struct {
	*scene
	chance
	schedule            longhornSchedule
	w                   *longhorn.World
	watcher             *longhornWatcher
	noWorker, noWatcher atomic.Bool
	without             bool         // the admission policy
	crashIn             atomic.Int64 // after so many requests somebody dies
	mended              atomic.Bool  // nothing is lost any more
	victim              atomic.Int64
	watches             atomic.Int64
	stopHammer          func()
}

func (d *longhornDisorder) options() longhorn.Options {
	s := d.schedule
	o := longhorn.Options{
		Nodes: s.Nodes, Volumes: s.Volumes, Moves: s.Moves, ByWorker: s.ByWorker,
		Turn: time.Minute, TaintExpiry: 10 * time.Minute, Draw: d.intN,
		Reaction: 5*time.Second + time.Duration(20*s.Latency)*time.Millisecond,
		Latency:  func() time.Duration { return time.Duration(1+d.intN(s.Latency)) * time.Millisecond },
		Fail:     d.lose, May: func(ctx context.Context) error { return d.stopFrozen(ctx) },
		Tell: func(format string, args ...any) { d.Tell(format, args...) },
	}
	if s.Failures+s.Lost > 0 {
		o.Reaction += 15 * time.Second
	}
	return o
}

// faults has attempts of activities fail.
func (d *longhornDisorder) faults(_ int, info activity.Info) fault {
	if info.ActivityType.Name == "WatchStorage" {
		d.watches.Add(1)
	}
	switch {
	case info.Attempt > 3 || !d.is(d.schedule.Failures):
		return noFault
	case d.is(0.4):
		return notDone
	case d.is(0.6):
		return doneAlso
	default:
		return twice
	}
}

// lose has a request fail, or its answer get lost, or come late; or somebody die.
func (d *longhornDisorder) lose(change bool) longhorn.Failure {
	if d.crashIn.Load() > 0 && d.crashIn.Add(-1) == 0 {
		switch d.victim.Load() % 4 {
		case 0:
			go d.killKeeperAndWait()
		case 1:
			go d.watcherBlinks()
		default:
			go d.blinks()
			return longhorn.Failure{Err: errLost, Done: d.is(0.5)}
		}
	}
	switch {
	case d.mended.Load(), !d.is(d.schedule.Lost), !change && !d.is(0.1):
		return longhorn.Failure{}
	case !change || d.is(0.3):
		return longhorn.Failure{Err: errLost}
	case d.is(0.5):
		return longhorn.Failure{Err: errLost, Done: true}
	default:
		return longhorn.Failure{Err: errLost, Done: true, Late: time.Duration(d.intN(3000)) * time.Millisecond}
	}
}

// blinks kills the worker, and starts it again after a while.
func (d *longhornDisorder) blinks() {
	if d.noWorker.Load() {
		return
	}
	d.work(false)
	time.Sleep(time.Duration(d.intN(20000)) * time.Millisecond)
	if !d.noWorker.Load() {
		d.work(true)
	}
}

// watcherBlinks kills the watcher, and starts another one after a while.
func (d *longhornDisorder) watcherBlinks() {
	if d.noWatcher.Load() {
		return
	}
	d.watcher.run(false)
	time.Sleep(time.Duration(d.intN(20000)) * time.Millisecond)
	if !d.noWatcher.Load() {
		d.watcher.run(true)
	}
}

// killKeeperAndWait terminates the keeper, of which lockkeeper is blind until the watcher starts another one.
func (d *longhornDisorder) killKeeperAndWait() {
	keeper := workflows.KeeperID(longhorn.Key)
	if !d.lives(keeper) || d.noWatcher.Load() { // nobody else would start another one
		return
	}
	d.w.Dark("keeper", true)
	d.killKeeperOf(longhorn.Key)
	d.until(forever, func() bool { return d.running[keeper] != "" || d.over })
	d.w.Dark("keeper", false)
}

func (d *longhornDisorder) work(on bool) {
	d.w.Dark("worker", !on)
	d.crashWorker(!on)
}

func (d *longhornDisorder) play(events []event) (stuck []string) {
	d.watcher.run(true)
	if !d.w.Await(5*time.Minute, d.isQuiet) {
		return []string{fmt.Sprintf("does not come to rest at the beginning: %q", d.w.Leftovers())}
	}
	if d.schedule.Hammered {
		d.stopHammer = d.w.Hammer()
	}
	for _, e := range events {
		time.Sleep(e.After)
		d.Tell("-- %s", e)
		d.happen(e)
	}
	d.Tell("now let it rest")
	return d.rest()
}

func (d *longhornDisorder) isQuiet() bool { return len(d.w.Leftovers()) == 0 }

func (d *longhornDisorder) happen(e event) {
	w, nodes := d.w, d.w.Nodes()
	node := nodes[e.Which%len(nodes)]
	switch e.Kind {
	case "cordon", "uncordon":
		w.Cordon(node, e.Kind == "cordon")
	case "kubectl drain":
		w.KubectlDrain(node)
	case "drain":
		d.drain(workflows.DrainNodeInput{Node: node, UncordonAfterReboot: e.Which%2 == 0})
	case "autoscale", "karpenter":
		w.Autoscale(node, e.Kind == "karpenter", e.Which/len(nodes))
	case "taint":
		w.Taint(node, leaving.RemovalTaint, longhorn.FreshTaint(time.Duration(e.Which)*10*time.Second))
	case "old taint":
		w.Taint(node, leaving.RemovalTaint, longhorn.FreshTaint(time.Hour))
	case "odd taint":
		w.Taint(node, leaving.RemovalTaint, "yesterday")
	case "untaint":
		w.Untaint(node)
	case "lose node":
		w.LoseNode(node)
	case "nodes return":
		w.ReturnNodes()
	case "delete node":
		w.DeleteNode(node)
	case "add node":
		w.AddNode()
	case "attach", "workload", "detach", "create", "delete":
		w.Volume(e.Kind, e.Which)
	case "fail replica":
		w.FailReplica(e.Which)
	case "kill manager", "replace manager":
		w.KillManager(node, e.Kind == "replace manager")
	case "drain policy":
		values := longhorn.DrainPolicies()
		w.DrainPolicy(values[e.Which%len(values)])
	case "autoscaler setting":
		w.AutoscalerSetting(e.Which%2 == 0)
	case "hammer":
		if !d.schedule.Hammered {
			stop := w.Hammer()
			time.AfterFunc(time.Duration(1+e.Which)*time.Second, stop)
		}
	case "helper":
		w.Helper(node, e.Which%3 > 0)
	case "tamper":
		w.Tamper(e.Which)
	case "unhold":
		w.Unhold(node, e.Which%3 == 0)
	case "edit":
		d.edit(e.Which)
	case "one writer":
		d.without = !d.without
		w.OneWriter(!d.without)
	default:
		d.machinery(e, node)
	}
}

func (d *longhornDisorder) edit(which int) {
	edits := []struct {
		what   string
		change func(*v1alpha1.LonghornSpec)
	}{
		{"atRest: None", func(s *v1alpha1.LonghornSpec) { s.AtRest = "None" }},
		{"atRest: One", func(s *v1alpha1.LonghornSpec) { s.AtRest = "One" }},
		{"turnTimeout: 30s", func(s *v1alpha1.LonghornSpec) {
			s.TurnTimeout = &metav1.Duration{Duration: 30 * time.Second}
		}},
		{"evictOnRemoval: true", func(s *v1alpha1.LonghornSpec) { s.EvictOnRemoval = true }},
		{"evictOnRemoval: false", func(s *v1alpha1.LonghornSpec) { s.EvictOnRemoval = false }},
		{"removalTaintExpiry: 2m", func(s *v1alpha1.LonghornSpec) {
			s.RemovalTaintExpiry = &metav1.Duration{Duration: 2 * time.Minute}
		}},
	}
	e := edits[which%len(edits)]
	d.w.EditPolicy(e.what, e.change)
}

// machinery is what happens to lockkeeper and Temporal.
func (d *longhornDisorder) machinery(e event, node string) {
	job := jobs.ScaleDownNode.ID(node)
	if e.Which%3 == 0 || !d.runs(job) {
		job = jobs.DrainNode.ID(node)
	}
	switch e.Kind {
	case "worker":
		was := d.noWorker.Load()
		d.noWorker.Store(!was)
		d.work(was)
	case "watcher":
		was := d.noWatcher.Load()
		d.noWatcher.Store(!was)
		d.watcher.run(was)
	case "crash":
		d.victim.Store(int64(e.Which))
		d.crashIn.Store(int64(1 + e.Which*e.Which/20))
	case "kill keeper":
		go d.killKeeperAndWait()
	case "continue":
		d.Tell("the keeper is to continue as new")
		d.post(func() { d.suggestContinueAsNew(true) })
		d.continueJob(job)
	case "kill job":
		d.killJob(job)
	case "cancel job":
		if d.lives(job) {
			d.cancel(job)
		}
	case "abort", "pause", "resume", "done":
		if d.lives(job) {
			d.Tell("%s is told: %s", job, e.Kind)
			d.signal(job, e.Kind, nil)
		}
	default:
		panic("an event of no known kind: " + e.Kind)
	}
}

// killJob terminates a job. What is left of it in the test environment ends when its keeper has noticed.
func (d *longhornDisorder) killJob(job string) {
	if !d.lives(job) {
		return
	}
	d.kill(job)
	time.AfterFunc(time.Minute, func() {
		if d.runs(job) && !d.isOver() {
			d.cancel(job)
		}
	})
}

// lives tells whether a job runs.
func (d *longhornDisorder) lives(job string) bool { return d.runs(job) && !d.dead(job) }

// jobs are those that may run.
func (d *longhornDisorder) eachJob(do func(id, node string)) {
	d.scene.mu.Lock()
	running := slices.Sorted(maps.Keys(d.running))
	d.scene.mu.Unlock()
	for _, id := range running {
		for _, of := range []*jobs.Job{jobs.DrainNode, jobs.ScaleDownNode} {
			if node, is := strings.CutPrefix(id, of.Prefix); is {
				do(id, node)
			}
		}
	}
}

// patience is for how many minutes a node may stay that may leave.
const patience = 20

// rest mends what can be mended, and expects that whoever may leave leaves. Then all others stay, and nothing of ours
// is left.
func (d *longhornDisorder) rest() (stuck []string) {
	if d.stopHammer != nil {
		d.stopHammer()
	}
	d.crashIn.Store(0)
	d.mended.Store(true)
	d.noWorker.Store(false)
	d.noWatcher.Store(false)
	d.work(true)
	d.watcher.run(true)
	d.w.Calm()
	d.w.Empty()
	could := map[string]int{} // for how many minutes each node could have left
	for settled := 0; settled < 2; {
		d.eachJob(func(id, _ string) { d.signal(id, jobs.SignalResume, nil) })
		time.Sleep(time.Minute)
		settled++
		var drained []string
		for _, h := range d.keeperNow().Lease.Holders {
			drained = append(drained, h.Node)
		}
		waiting := d.w.Waiting(drained...)
		d.eachJob(func(id, node string) {
			_, leaves := waiting[node]
			switch phase := d.drainStatus(node).Phase; {
			case id != jobs.DrainNode.ID(node):
			case phase == workflows.PhaseReturn && leaves: // for as long as it is drained others wait for it
				d.w.Untaint(node)
				d.w.Cordon(node, false)
			case !leaves && (phase == workflows.PhaseEvict || phase == workflows.PhaseReturn):
				d.signal(id, jobs.SignalDone, nil) // whoever uncordoned it in the middle of its drain says that it is done
			}
		})
		maps.DeleteFunc(could, func(node string, _ int) bool { why, is := waiting[node]; return !is || why != "" })
		for node, why := range waiting {
			if why != "" {
				continue
			}
			settled = 0
			if could[node]++; could[node] > patience {
				return []string{fmt.Sprintf("%s could leave, and does not: %+v, %+v", node, d.keeperNow(), d.jobOf(node))}
			}
		}
	}
	d.Tell("and all others stay")
	d.w.Stay()
	left := func() (out []string) {
		d.eachJob(func(id, _ string) {
			if d.lives(id) {
				out = append(out, id+" runs")
			}
		})
		return append(out, d.w.Leftovers()...)
	}
	for range 30 {
		d.eachJob(func(id, _ string) { d.signal(id, jobs.SignalAbort, nil) })
		if d.w.Await(time.Minute, func() bool { return len(left()) == 0 }) {
			return d.retire()
		}
	}
	return []string{fmt.Sprintf("left: %q, keeper: %+v", left(), d.keeperNow())}
}

func (d *longhornDisorder) keeperNow() (status workflows.KeeperStatus) {
	d.query(workflows.KeeperID(longhorn.Key), &status)
	return status
}

func (d *longhornDisorder) jobOf(node string) any {
	if d.runs(jobs.ScaleDownNode.ID(node)) {
		return d.scaleDownStatus(node)
	}
	return d.drainStatus(node)
}

// retire hands the installation back to Longhorn, and deletes the policy.
func (d *longhornDisorder) retire() []string {
	if !d.schedule.Retires {
		return nil
	}
	d.w.OneWriter(false)
	d.w.DeletePolicy()
	if !d.w.Await(15*time.Minute, func() bool { return !d.w.PolicyExists() }) {
		return []string{fmt.Sprintf("the policy does not go: %q, keeper: %+v", d.w.Status().Message, d.keeperNow())}
	}
	time.Sleep(5 * time.Second)
	return d.w.Leftovers()
}
