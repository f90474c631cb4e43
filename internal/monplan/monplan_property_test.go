package monplan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

var hostPath, claim = monplan.Storage{}, monplan.Storage{Claim: true, Class: "disk"}

// drawWorld is a cluster with mons that are as nobody wants them, or as somebody does.
func drawWorld(t *rapid.T) *world {
	w := &world{
		now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), mons: map[string]*mon{}, traces: map[string]bool{},
		timers: map[string]time.Time{},
		want: monplan.Want{
			Generation: 1, Count: rapid.SampledFrom([]int{1, 2, 3, 3, 3, 4, 5}).Draw(t, "count"), Template: "v1",
			HealthTimeout: 10 * time.Minute, JoinTimeout: 10 * time.Minute, Storage: map[string]monplan.Storage{},
			MultiplePerNode: rapid.Bool().Draw(t, "multiple"), DataDir: "/data",
		},
		mode: monplan.Mode{Migrate: rapid.Bool().Draw(t, "migrate"), OneLess: rapid.Bool().Draw(t, "one less")},
	}
	zones := []string{"x", "y", "z", "u", "v"}
	for i := range rapid.IntRange(3, 7).Draw(t, "nodes") {
		w.nodes = append(w.nodes, node{name: fmt.Sprintf("node-%d", i), zone: zones[i%rapid.IntRange(1, 5).Draw(t, "mod")]})
	}
	storage := rapid.SampledFrom([]monplan.Storage{hostPath, claim})
	if rapid.Bool().Draw(t, "zones") {
		w.want.Zones = zones[:max(w.want.Count, rapid.IntRange(1, 5).Draw(t, "listed"))]
	}
	for _, zone := range append([]string{""}, w.want.Zones...) {
		w.want.Storage[zone] = storage.Draw(t, "storage")
	}
	for i := range rapid.SampledFrom([]int{1, 2, 3, 3, 3, 5}).Draw(t, "mons") {
		m := &mon{
			name: monplan.NameOf(i), node: w.nodes[i%len(w.nodes)].name, storage: storage.Draw(t, "has"),
			template: rapid.SampledFrom([]string{"", "v0", "v1"}).Draw(t, "template"), deployed: true, running: true,
			fixed: rapid.SampledFrom([]*monplan.Fixed{nil, nil, {DataDir: "/data"}, {DataDir: "/old"}}).Draw(t, "fixed"),
		}
		w.mons[m.name], w.monmap = m, append(w.monmap, m.name)
	}
	w.nextID, w.endpoints = len(w.monmap), slices.Clone(w.monmap)
	return w
}

// happens is what nobody asked for. It leaves a majority, or brings mons back: what becomes of a cluster that loses its
// majority is not ours to say.
func (w *world) happens(t *rapid.T) {
	name := rapid.SampledFrom(w.monmap).Draw(t, "mon")
	m := w.mons[name]
	before := *m
	n := w.node(m.node)
	nodeBefore := *n
	what := rapid.SampledFrom([]string{
		"dies", "returns", "node gone", "node back", "relabelled", "drained", "drain over", "spec", "elsewhere", "later",
		"much later", "slow", "canary made late",
	}).Draw(t, "what")
	switch what {
	case "dies":
		m.running = false
	case "returns":
		m.running = true
	case "slow":
		m.late = slices.Contains(w.monmap, name) && !w.alive(name)
	case "canary made late": // by a worker that was thought to be dead
		if w.canary == "" {
			w.canary, w.nextID = monplan.NameOf(w.nextID), w.nextID+1
		}
	case "node gone":
		n.gone = true
	case "node back":
		n.gone = false
	case "relabelled":
		n.zone = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "zone")
	case "drained":
		m.drain = "drain/" + m.node
	case "drain over":
		m.drain = ""
	case "spec":
		w.want.Generation++
		w.want.Template = rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "template")
	case "elsewhere":
		w.elsewhere = rapid.SampledFrom([]string{"", "", "CephCluster rook-ceph"}).Draw(t, "by")
	case "later":
		w.now = w.now.Add(time.Minute)
	case "much later":
		w.now = w.now.Add(11 * time.Minute)
	}
	w.done = append(w.done, "- "+what+" "+name)
	if !w.agrees() {
		*m, *n = before, nodeBefore
		w.done = append(w.done, "  not so")
	}
}

// turn looks, and does what is next.
func (w *world) turn(t *rapid.T, crash bool) monplan.Step {
	s := w.look()
	step := monplan.Next(s)
	if step.Verdict != monplan.Move {
		if known := []monplan.Verdict{monplan.Done, monplan.Wait, monplan.Refuse}; !slices.Contains(known, step.Verdict) ||
			step.Why == "" && step.Verdict != monplan.Done {
			t.Fatalf("%+v says nothing\n%s", step, w.story())
		}
		if step.Work == nil {
			w.work = nil
		}
		return step
	}
	if w.work != nil && w.work.Newcomer != step.Work.Newcomer {
		w.leaves(t)
	}
	if step.Work.Undo != "" && step.Work.Kind == monplan.Migrate && !step.Work.Started.IsZero() {
		w.failed = append(w.failed, step.Work.Old)
	}
	w.do(step, crash)
	if len(w.wrong) > 0 {
		t.Fatalf("%v\n%s", w.wrong, w.story())
	}
	return step
}

// leaves looks for what a step has left behind that is over.
func (w *world) leaves(t *rapid.T) {
	if w.canary != "" {
		t.Fatalf("the canary of mon.%s is left\n%s", w.canary, w.story())
	}
	for name, m := range w.mons {
		if m.deployed && !slices.Contains(w.monmap, name) {
			t.Fatalf("the Deployment of mon.%s is left\n%s", name, w.story())
		}
	}
	for name := range w.traces {
		if w.mons[name] == nil {
			t.Fatalf("the claim of mon.%s is left, which never was\n%s", name, w.story())
		}
	}
}

// Whatever happens at whatever moment, as long as it alone leaves a majority: there is one after each act, and would be
// if the newcomer died at once; no living mon goes before its time, none without a lease, and no name is given twice.
// When nothing happens any more, the steps end, and leave nothing behind.
func TestMonsKeepTheirQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range rapid.IntRange(0, 40).Draw(t, "turns") {
			if rapid.IntRange(0, 2).Draw(t, "event") == 0 {
				w.happens(t)
			}
			w.turn(t, rapid.Bool().Draw(t, "crash"))
			w.now = w.now.Add(time.Second)
			if !w.agrees() {
				t.Fatalf("no quorum\n%s", w.story())
			}
		}
		w.done = append(w.done, "- from now on all is well")
		for _, m := range w.mons {
			m.running, m.drain = true, ""
		}
		w.settle(t)
	})
}

// settle goes on until nothing is left to do.
func (w *world) settle(t *rapid.T) {
	for range 400 {
		for _, m := range w.mons {
			m.late = false
		}
		switch step := w.turn(t, false); {
		case step.Verdict == monplan.Wait && !step.Until.IsZero():
			w.now = step.Until
		case step.Verdict == monplan.Wait && step.Work != nil:
			w.now = w.now.Add(time.Minute)
		case step.Verdict == monplan.Move && step.Acts[0].Do == monplan.Schedule && !w.work.Scheduled:
			if w.work.Old != "" && !slices.Contains(w.monmap, w.work.Old) {
				t.Fatalf("there is no place for mon.%s, and mon.%s has left\n%s", w.work.Newcomer, w.work.Old, w.story())
			}
			return // it waits for a node, for ever
		case step.Verdict == monplan.Move && step.Acts[0].Do == monplan.AwaitQuorum:
			w.now = w.now.Add(time.Minute)
		case step.Verdict == monplan.Move:
			w.now = w.now.Add(time.Second)
		default:
			w.leaves(t)
			w.settled(t, step)
			return
		}
	}
	t.Fatalf("no end\n%s", w.story())
}

// settled: where nothing stood in the way, the mons are as the spec says.
func (w *world) settled(t *rapid.T, step monplan.Step) {
	s := w.look()
	if step.Verdict != monplan.Done || !w.mode.Migrate {
		return
	}
	if len(w.monmap) != w.want.Count || len(s.Different()) > 0 {
		t.Fatalf("done, but %d of %d mons, and different: %v\n%s", len(w.monmap), w.want.Count, s.Different(), w.story())
	}
}

// What people are told before they start has an end, and promises nothing that would not be done.
func TestEveryCourseEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		steps := monplan.Course(w.look())
		last := steps[len(steps)-1]
		if last.Verdict == monplan.Move || strings.Contains(last.Why, "error of lockkeeper") {
			t.Fatalf("%d steps, the last one %+v\n%s", len(steps), last, w.story())
		}
		if first := monplan.Next(w.look()); first.Verdict != steps[0].Verdict {
			t.Fatalf("%+v is told, and %+v would be done", steps[0], first)
		}
	})
}

// A node whose labels change under its mon, whatever the spec says of zones: no mon is failed over, and none is moved
// that lockkeeper has made for a zone.
func TestLabelsMoveNoMon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.mode.Migrate = false
		for range 20 {
			n := &w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")]
			n.zone = rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "zone")
			w.now = w.now.Add(11 * time.Minute)
			step := monplan.Next(w.look())
			if w := step.Work; w != nil && w.Kind != monplan.Add && w.Kind != monplan.Restart {
				t.Fatalf("%+v", step)
			}
		}
	})
}
