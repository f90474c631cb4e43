package workflows_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/activity"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var simMons = flag.Int("sim.mons", 0, "how many schedules TestMonsInDisorder plays; 0: a share")

// monSchedule is all that is random about what happens to the mons of a CephMon.
type monSchedule struct {
	Mons, Zones int
	Seed        uint64
	Latency     int     // most milliseconds that a request takes
	Failures    float64 // how many of the activities' attempts fail
	Lost        float64 // how many requests get no answer
	Events      []event
}

// monKinds are what may happen, as often as they are listed.
var monKinds = strings.Split("migrate,migrate,migrate,migrate,one less,claims,claims,ssd,paths,count,count,zones,"+
	"zones,image,image,release,wrong release,wrong release,withheld,drain mon,drain mon,bad spec,good spec,kill,kill,"+
	"kill,kill newcomer,revive,node dies,"+
	"kubelet dies,kubelet dies,successor dies,successor is silent,delete node,forget node,nodes return,nodes return,"+
	"cordon,cordon,cordon all,uncordon,full,room,class dies,class lives,shy,not shy,abort,pause,resume,kill job,"+
	"cancel job,"+
	"continue,worker,worker,watcher,away,away,drain,done,kill keeper,rook,no rook,delete CephMon,spec and kill", ",")

var monSchedules = rapid.Custom(func(t *rapid.T) monSchedule {
	s := monSchedule{
		Mons: rapid.SampledFrom([]int{3, 3, 3, 3, 5, 4}).Draw(t, "mons"), Zones: rapid.IntRange(3, 5).Draw(t, "zones"),
		Seed:     rapid.Uint64().Draw(t, "seed"),
		Latency:  rapid.SampledFrom([]int{2, 20, 200, 1000}).Draw(t, "latency"),
		Failures: rapid.SampledFrom([]float64{0, 0, 0.05, 0.2}).Draw(t, "failures"),
		Lost:     rapid.SampledFrom([]float64{0, 0, 0.03, 0.1}).Draw(t, "lost"),
	}
	s.Events = append(s.Events, event{
		Kind: rapid.SampledFrom([]string{"claims", "zones", "kill", "count"}).Draw(t, "first"), Which: rapid.IntRange(0,
			35).Draw(t, "of"),
	}, event{Kind: "migrate"})
	for range rapid.IntRange(2, 14).Draw(t, "events") {
		after := rapid.SampledFrom([]int{0, 50, 300, 1000, 3000, 5000, 10000, 30000, 150000, 400000}).Draw(t, "after")
		s.Events = append(s.Events, event{
			After: time.Duration(after) * time.Millisecond,
			Kind:  rapid.SampledFrom(monKinds).Draw(t, "kind"), Which: rapid.IntRange(0, 35).Draw(t, "which"),
		})
	}
	return s
})

// TestMonsInDisorder: mons are moved, replaced, added and removed while mons, nodes, the worker, storage classes and
// the API server fail, and people change their minds. Nothing that lockkeeper does costs the quorum, nothing of it is
// left, and when everything works again the mons are as the spec says.
func TestMonsInDisorder(t *testing.T) {
	t.Parallel()
	var played, failed atomic.Int64
	began, many := time.Now(), schedulesToPlay(*simMons, 70)
	t.Run("schedules", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for n := int(played.Add(1)); n <= many; n = int(played.Add(1)) {
					seed := *simSeed + n - 1
					s := monSchedules.Example(seed)
					o := s.play(t)
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
					t.Errorf("schedule %d (make sim-mons N=1 SEED=%d)\n%s", seed, seed, s.tale(o))
				}
			})
		}
	})
	if *simReport {
		fmt.Printf("mon_schedules %d count\nfailed %d count\nschedules_per_s %.1f 1/s\n", many, failed.Load(),
			float64(many)/time.Since(began).Seconds())
	}
}

func (s monSchedule) tale(o outcome) string {
	var b strings.Builder
	for _, v := range append(o.violations, o.stuck...) {
		fmt.Fprintf(&b, "  ! %s\n", v)
	}
	fmt.Fprintf(&b,
		"  %d mons, %d zones, requests take up to %d ms, %.0f%% of attempts fail, %.0f%% of answers are lost\n",
		s.Mons, s.Zones, s.Latency, 100*s.Failures, 100*s.Lost)
	fmt.Fprintf(&b, "  %v\n  %s\n", s.Events, strings.Join(o.story, "\n  "))
	return b.String()
}

// play plays a schedule and tells what went wrong.
func (s monSchedule) play(t *testing.T) (o outcome) {
	defer schedule{Seed: s.Seed}.watchStandstill()()
	synctest.Test(t, func(t *testing.T) {
		c := &chance{r: rand.New(rand.NewPCG(s.Seed, 1))} //nolint:gosec // not a secret
		requests := &chances{seed: s.Seed}
		stage := newScene(t, sim.Options{Latency: func() time.Duration { return time.Millisecond }})
		stage.fault = func(_ int, info activity.Info) fault {
			switch {
			case info.Attempt > 3 || info.WorkflowExecution.ID != monsID || !c.is(s.Failures):
				return noFault
			case c.is(0.4):
				return notDone
			case c.is(0.6):
				return doneAlso
			default:
				return twice
			}
		}
		stage.run(func(stage *scene) {
			d := &monDisorder{
				scene: stage, revive: s.Seed%2 == 0, zones: max(s.Zones, s.Mons), answers: s.Lost+s.Failures == 0,
			}
			d.quiet.Store(true)
			d.w = stage.simulateMons(mons.Options{
				Mons: s.Mons, Zones: d.zones, PerZone: 2, Own: s.Seed%3 == 0, Draw: c.intN,
				Hosts: s.Seed%5 == 0, HostNetwork: s.Seed%7 == 0,
				Latency: func(op string) time.Duration {
					return time.Duration(1+requests.of(op).intN(s.Latency)) * time.Millisecond
				},
				Fail: func(_ context.Context, op string, change bool) mons.Failure { return s.lose(requests.of(op), change) },
				News: func(what string) { d.news(what) },
			})
			o.stuck = d.play(s.Events)
			d.w.Close()
			o.violations = d.w.Violations()
		})
		o.violations = append(o.violations, stage.Violations()...)
		o.story = stage.Story()
	})
	return o
}

// lose has a request fail, or its answer get lost.
func (s monSchedule) lose(c *chance, change bool) mons.Failure {
	switch {
	case !c.is(s.Lost), !change && !c.is(0.1):
		return mons.Failure{}
	case c.is(0.3):
		return mons.Failure{Err: errLost}
	}
	return mons.Failure{Err: errLost, Done: true}
}

// shorter leaves out events without which the schedule fails all the same.
func (s monSchedule) shorter(t *testing.T, o outcome) (monSchedule, outcome) {
	until := time.Now().Add(20 * time.Second)
	try := func(next monSchedule) bool {
		if time.Now().After(until) {
			return false
		}
		x := next.play(t)
		if !x.failed() || (len(x.violations) > 0) != (len(o.violations) > 0) {
			return false
		}
		s, o = next, x
		return true
	}
	calm := s
	calm.Failures, calm.Lost = 0, 0
	try(calm)
	for i := 0; i < len(s.Events); {
		next := s
		next.Events = append(append([]event{}, s.Events[:i]...), s.Events[i+1:]...)
		if !try(next) {
			i++
		}
	}
	return s, o
}

// simulateMons gives a scene simulated mons with lockkeeper's own adapters in front of them.
func (s *scene) simulateMons(opts mons.Options) *mons.World {
	opts.May, opts.Tell = s.mayAct, s.Tell
	opts.Lease = func() string { return s.Memory().Lease.MonHeld() }
	w := mons.New(opts)
	s.monSim = w
	return w
}

// mayAct is stopFrozen, and stops whoever was cancelled: the test environment waits for no activity that is, and tells
// it with a heartbeat only. A server begins nothing else as long as one that changes something is under way.
func (s *scene) mayAct(ctx context.Context) error {
	if activity.IsActivity(ctx) {
		if activity.RecordHeartbeat(ctx); ctx.Err() != nil {
			return ctx.Err()
		}
		if s.wasCancelled(activity.GetInfo(ctx)) {
			return context.Canceled
		}
	}
	return s.stopFrozen(ctx)
}

// wasCancelled: the job of an attempt has ended, or goes on with another one.
func (s *scene) wasCancelled(a activity.Info) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := a.WorkflowExecution
	_, ended := s.ended[e.ID+"@"+e.RunID]
	if e.ID != monsID {
		return ended
	}
	if a.StartedTime.After(s.monActs) {
		s.monActs = a.StartedTime
	}
	return ended || a.StartedTime.Before(s.monActs)
}

// monDisorder is what happens to mons, and how it is put in order again.
type monDisorder struct {
	*scene
	w                                          *mons.World
	noWorker, noWatcher, away, deleted, killed bool
	revive                                     bool // dead mons come back in the end
	zones                                      int  // that there are
	answers                                    bool // nothing of lockkeeper's gets no answer
	quiet                                      atomic.Bool
}

// news is the watcher, and the keeper's watch: they tell the job, or start it.
func (d *monDisorder) news(what string) {
	if d.quiet.Load() || d.isOver() {
		return
	}
	d.tellMigration(what)
	time.Sleep(10 * time.Second) // it may just have ended: a server's signal would have started it then
	if !d.quiet.Load() && !d.isOver() && !d.runs(monsID) {
		d.migrate(workflows.MigrateMonsInput{})
	}
}

func (d *monDisorder) tellMigration(what string) {
	if d.runs(monsID) {
		d.signal(monsID, workflows.SignalMonsChanged, what)
		return
	}
	d.migrate(workflows.MigrateMonsInput{})
}

// asks has a person ask for more.
func (d *monDisorder) asks(mode monplan.Mode) {
	if d.runs(monsID) {
		d.signal(monsID, workflows.SignalMigrate, mode)
		return
	}
	d.migrate(workflows.MigrateMonsInput{Migrate: true, OneLess: mode.OneLess})
}

func (d *monDisorder) play(events []event) (stuck []string) {
	d.settle()
	d.quiet.Store(false)
	for _, e := range events {
		time.Sleep(e.After)
		d.Tell("-- %s", e)
		d.happen(e)
	}
	d.Tell("now let it rest")
	return d.rest()
}

func (d *monDisorder) happen(e event) {
	w := d.w
	switch e.Kind {
	case "migrate":
		d.asks(monplan.Mode{})
	case "one less":
		w.OneLess()
		d.asks(monplan.Mode{OneLess: true})
	case "kill":
		w.Kill(e.Which)
	case "kill newcomer":
		w.Kill(len(w.Names()) - 1)
	case "revive":
		w.Revive()
	case "class dies", "class lives":
		w.Class(e.Which, e.Kind == "class dies")
	case "full":
		w.Full([]string{"x", "y", "z", "u", "v"}[e.Which%5], true)
	case "room":
		w.Room()
	case "shy", "not shy":
		w.Shy(e.Kind == "shy")
	case "rook", "no rook":
		w.Rook(e.Kind == "rook")
	case "away":
		d.away, d.answers = !d.away, false
		w.Away(d.away)
	case "drain":
		d.drain(workflows.DrainNodeInput{Node: d.Nodes()[e.Which%len(d.Nodes())], Policy: sim.Key.String()})
	case "done":
		for _, node := range d.Nodes() {
			d.tellDrain(node, jobs.SignalDone)
		}
	default:
		if !d.node(e) && !d.person(e) {
			d.machinery(e)
		}
	}
}

// node is what happens to nodes.
func (d *monDisorder) node(e event) bool {
	w := d.w
	switch e.Kind {
	case "node dies":
		w.NodeDies(e.Which)
	case "kubelet dies":
		w.KubeletDies(e.Which)
	case "successor dies", "successor is silent":
		w.SilenceNode(w.SuccessorNode(), e.Kind == "successor dies")
	case "delete node":
		w.DeleteNode(e.Which)
	case "forget node":
		w.ForgetNode(e.Which)
	case "drain mon":
		w.Drain(e.Which)
	case "nodes return":
		w.NodesReturn()
	case "cordon", "uncordon":
		w.Cordon(e.Which, e.Kind == "cordon")
	case "cordon all":
		w.CordonAll()
	default:
		return false
	}
	return true
}

// person changes the spec.
func (d *monDisorder) person(e event) bool {
	switch e.Kind {
	case "claims":
		d.w.Spec("claims", mons.Claims("disk"))
	case "ssd":
		d.w.Spec("claims of class ssd", mons.Claims("ssd"))
	case "paths":
		d.w.Spec("paths", func(s *v1alpha1.CephMonSpec) {
			mons.Claims("")(s)
			if e.Which%3 == 0 {
				s.DataDirHostPath = fmt.Sprint("/data-", e.Which%2)
			}
		})
	case "count":
		d.w.Spec("the count", func(s *v1alpha1.CephMonSpec) {
			s.Count = []int32{3, 5, 3, 4}[e.Which%4]
			if n := len(s.Zones); n > 0 && n < int(s.Count) {
				s.Zones = nil
			}
		})
	case "zones":
		all := [][]string{
			nil, {"x", "y", "z"}, {"z", "y", "x"}, {"x", "y", "z", "u"}, {"x", "y", "z", "u", "v"}, {"y", "z", "u"},
		}
		there := []string{"x", "y", "z", "u", "v"}[:d.zones]
		zones := slices.DeleteFunc(all[e.Which%len(all)], func(zone string) bool { return !slices.Contains(there, zone) })
		d.w.Spec("zones "+strings.Join(zones, ","), func(s *v1alpha1.CephMonSpec) {
			if len(zones) == 0 || len(zones) >= int(s.Count) {
				mons.InZones(zones...)(s)
			}
		})
	case "image":
		d.w.Spec("another image", func(s *v1alpha1.CephMonSpec) { s.PodTemplate.Image = fmt.Sprint("ceph:", 2+e.Which%3) })
	case "release", "wrong release":
		images := []string{"ceph:20.2.4"}
		if e.Kind == "wrong release" {
			images = []string{"ceph:16.2.15", "ceph:23.2.0"}
		}
		image := images[e.Which%len(images)]
		d.w.Spec("image "+image, func(s *v1alpha1.CephMonSpec) { s.PodTemplate.Image = image })
	case "withheld":
		d.w.Withhold(fmt.Sprint("ceph:", 2+e.Which%3), e.Which%2 == 0)
	case "bad spec", "good spec":
		d.goodSpec(e.Kind == "good spec")
	case "spec and kill": // and the next job finds a spec that it refuses
		d.endJob(true)
		d.goodSpec(false)
	case "delete CephMon":
		if e.Which%4 == 0 {
			d.deleted = true
			d.w.DeleteCephMon()
		}
	default:
		return false
	}
	return true
}

func (d *monDisorder) goodSpec(good bool) {
	d.w.Spec(fmt.Sprint("makes sense: ", good), func(s *v1alpha1.CephMonSpec) {
		if s.HealthTimeout.Duration = mons.HealthTimeout; !good {
			*s.HealthTimeout = mons.Forever
		}
	})
}

func (d *monDisorder) endJob(kill bool) {
	if !d.runs(monsID) || d.dead(monsID) {
		return
	}
	d.killed = d.killed || kill
	if kill {
		d.kill(monsID)
		return
	}
	d.cancel(monsID)
}

// machinery is what happens to lockkeeper and Temporal.
func (d *monDisorder) machinery(e event) {
	switch e.Kind {
	case "abort":
		d.signal(monsID, jobs.SignalAbort, nil)
	case "pause":
		d.signal(monsID, jobs.SignalPause, nil)
	case "resume":
		d.signal(monsID, jobs.SignalResume, nil)
	case "kill job", "cancel job":
		d.endJob(e.Kind == "kill job")
	case "continue":
		d.continueJob(monsID)
	case "worker":
		d.noWorker, d.answers = !d.noWorker, false
		d.crashWorker(d.noWorker)
	case "watcher":
		d.noWatcher = !d.noWatcher
		d.quiet.Store(d.noWatcher)
	case "kill keeper":
		if d.runs(workflows.KeeperID(sim.Key)) {
			d.Unguarded(2 * time.Minute)
			d.killKeeper()
		}
	default:
		panic("an event of no known kind: " + e.Kind)
	}
}

// rest mends what can be mended, has a person ask once more, and expects that all is as the spec says in the end.
func (d *monDisorder) rest() (stuck []string) {
	d.crashWorker(false)
	d.quiet.Store(false)
	d.w.Away(false)
	d.w.Rook(false)
	d.w.Shy(false)
	d.w.Class(0, false)
	d.w.Room()
	d.w.NodesReturn()
	if d.revive {
		d.w.Revive()
	}
	for image := 2; image <= 4; image++ {
		d.w.Withhold(fmt.Sprint("ceph:", image), false)
	}
	if !d.deleted {
		d.goodSpec(true)
	}
	for range 60 {
		for _, node := range d.Nodes() {
			d.signal(jobs.DrainNode.ID(node), jobs.SignalDone, nil)
		}
		d.signal(monsID, jobs.SignalResume, nil)
		if !d.deleted {
			d.w.FitImage() // a mon may have come with another one since
		}
		ended := d.until(5*time.Minute, func() bool { return d.over || d.running[monsID] == "" })
		time.Sleep(10 * time.Second) // pods end
		if ended && len(d.wrong()) == 0 {
			return nil
		}
		if !d.deleted {
			d.shrinksInSteps()
			d.asks(monplan.Mode{})
		}
	}
	return append(d.wrong(), fmt.Sprintf("the job: %t, %+v", d.runs(monsID), d.migrateStatus()))
}

// shrinksInSteps is a person who reads that a spec would leave less than a majority of the mons that there are.
func (d *monDisorder) shrinksInSteps() {
	least := len(d.w.Names())/2 + 1
	if c := d.w.CephMon(); c != nil && int(c.Spec.Count) < least {
		d.w.Spec("fewer mons, in several steps", func(s *v1alpha1.CephMonSpec) { s.Count = int32(least) }) //nolint:gosec // few
	}
}

// leftWithout is what should not be left without a CephMon. Of a newcomer that was about to be started when an answer
// was lost nobody knows whether it was: what it has stays.
func (d *monDisorder) leftWithout() []string {
	left := d.w.Leftovers()
	if d.answers {
		return left
	}
	return slices.DeleteFunc(left, func(what string) bool {
		return strings.HasPrefix(what, "claim ") || strings.HasPrefix(what, "Service ")
	})
}

// wrong is what is not as it should be at rest.
func (d *monDisorder) wrong() []string {
	if d.deleted {
		if d.killed { // nobody is left who knows of the step
			return nil
		}
		return d.leftWithout()
	}
	wrong := append(d.w.Leftovers(), d.w.Whole()...)
	if h := d.Memory().Lease.Holders; len(h) > 0 {
		wrong = append(wrong, fmt.Sprintf("the lease is held: %+v", h))
	}
	return wrong
}
