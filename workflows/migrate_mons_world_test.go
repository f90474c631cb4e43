package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephmon"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
)

// This file has MigrateMons move mons that are a monmap, a quorum and some Deployments in memory. It does what it is
// told, and judges it at that moment, by I5: never fewer in quorum than a majority of the monmap as it is after an act.

// monWorld stands in for the mons and what Kubernetes has of them. Time and keeper are the scene's.
type monWorld struct {
	scene *scene

	mu        sync.Mutex
	want      monplan.Want
	refused   []input.Error
	elsewhere string
	gone      bool               // the CephMon is deleted
	mons      map[string]*simMon // whoever was ever made
	monmap    []string
	endpoints []string
	nodes     []monplan.Node
	canary    string
	claims    map[string]bool
	never     bool                  // newcomers never come into quorum
	full      bool                  // the scheduler has no node for a canary
	refuse    func(act string) bool // acts to which the adapters say no; nil: none
	// What the CephMon's status has.
	status   *monplan.Work
	outSince map[string]time.Time
	nextID   int

	news   int       // of mons that died or came back
	looked int       // the news that the last look has seen
	acted  time.Time // when the last act was over
	acts   []string
	wrong  []string
}

type simMon struct {
	node, zone        string
	storage           monplan.Storage
	deployed, running bool
	ready             time.Time // when it comes into quorum
	proved            bool      // it has been there
	left              bool      // the monmap
	template          string
}

const joins = 3 * time.Second

func newMonWorld(s *scene, names string) *monWorld {
	w := &monWorld{
		scene: s, mons: map[string]*simMon{}, claims: map[string]bool{}, nextID: len(names),
		want: monplan.Want{
			Generation: 1, Count: len(names), Storage: map[string]monplan.Storage{"": {}}, Template: "t",
			HealthTimeout: 10 * time.Minute, JoinTimeout: 10 * time.Minute,
		},
	}
	for i, r := range names {
		name, zone := string(r), string(rune('x'+i%3))
		w.monmap, w.endpoints = append(w.monmap, name), append(w.endpoints, name)
		w.mons[name] = &simMon{node: "n-" + name, zone: zone, deployed: true, running: true, proved: true, template: "t"}
		w.nodes = append(w.nodes, monplan.Node{Name: "n-" + name, Zone: zone})
	}
	w.nodes = append(w.nodes, monplan.Node{Name: "spare-1", Zone: "x"}, monplan.Node{Name: "spare-2", Zone: "y"})
	s.mons = w
	return w
}

// change changes something of the world.
func (w *monWorld) change(what string, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scene.Tell("mons: %s", what)
	f()
	w.news++
}

// dies kills a mon, if the others are a majority: what becomes of a cluster that has lost it is not ours to say.
func (w *monWorld) dies(name string) (dead bool) {
	w.change("mon."+name+" dies", func() {
		if w.alive(name) && 2*(w.living()-1) > len(w.monmap) {
			w.mons[name].running, dead = false, true
		}
	})
	return dead
}

func (w *monWorld) returns(name string) {
	w.change("mon."+name+" is back", func() {
		if m := w.mons[name]; m.deployed && !m.left {
			m.running, m.ready = true, time.Now().Add(joins)
		}
	})
}

func (w *monWorld) alive(name string) bool {
	m := w.mons[name]
	return slices.Contains(w.monmap, name) && m.deployed && m.running && !time.Now().Before(m.ready)
}

func (w *monWorld) living() (n int) {
	for _, name := range w.monmap {
		if w.alive(name) {
			n++
		}
	}
	return n
}

func (w *monWorld) bad(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...)+": "+strings.Join(w.acts, ", "))
}

// look is what the adapters see. Who is in quorum has proved it.
func (w *monWorld) look(m activities.MonMemory) monplan.Seen {
	s := monplan.Seen{
		Now: time.Now(), Want: w.want, Mode: m.Mode, Endpoints: slices.Clone(w.endpoints), Failed: m.Failed,
		Ending: m.Ending, Elsewhere: w.elsewhere, NextID: max(m.NextID, w.nextID), Nodes: w.nodes, Work: w.work(m.Work),
	}
	if 2*w.living() <= len(w.monmap) {
		s.Unproved = "no answer"
	}
	for _, name := range w.monmap {
		mon := w.mons[name]
		mon.proved = mon.proved || w.alive(name) && s.Unproved == ""
		seen := monplan.Mon{
			Name: name, Alive: w.alive(name), Node: mon.node, Bound: !mon.storage.Claim, Storage: mon.storage,
			Template: mon.template,
		}
		if len(w.want.Zones) > 0 {
			seen.Zone = mon.zone
		}
		s.Mons = append(s.Mons, seen)
	}
	if w.canary != "" && (s.Work == nil || s.Work.Newcomer != w.canary) {
		s.Strays = []string{w.canary}
	}
	return s
}

func (w *monWorld) work(of *monplan.Work) *monplan.Work {
	if of == nil {
		return nil
	}
	work, newcomer, old := *of, w.mons[of.Newcomer], w.mons[of.Old]
	if work.Canary = w.canary != "" && w.canary == work.Newcomer; work.Canary {
		n, found := w.place(work)
		work.Scheduled, work.Node, work.Zone = found, n.Name, ""
		if len(w.want.Zones) > 0 {
			work.Zone = n.Zone
		}
		work.Claimed = found && (w.claims[work.Newcomer] || !w.want.Storage[work.Zone].Claim)
	}
	work.Running = newcomer != nil && newcomer.deployed
	work.Stopped = old == nil || !old.deployed
	work.Restarted = old != nil && old.template == w.want.Template
	work.Renewed = work.Restarted
	work.Traces = w.claims[work.Newcomer]
	return &work
}

// place is where the scheduler puts the canary.
func (w *monWorld) place(work monplan.Work) (monplan.Node, bool) {
	instead := work.Kind != monplan.Migrate && work.Kind != monplan.Add
	for _, n := range w.nodes {
		taken := slices.ContainsFunc(w.monmap, func(name string) bool {
			m, leaves := w.mons[name], name == work.Old
			return m.node == n.Name && (!leaves || !instead) || len(w.want.Zones) > 0 && m.zone == n.Zone && !leaves
		})
		if !w.full && !taken && n.Why == "" && (len(w.want.Zones) == 0 || slices.Contains(w.want.Zones, n.Zone)) {
			return n, true
		}
	}
	return monplan.Node{}, false
}

// Survey implements activities.Mons.
func (w *monWorld) Survey(
	ctx context.Context, _ activities.MonsRef, m activities.MonMemory,
) (activities.MonSurvey, error) {
	if err := w.may(ctx); err != nil {
		return activities.MonSurvey{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return activities.MonSurvey{}, nil
	}
	out := activities.MonSurvey{
		Found: true, Generation: w.want.Generation, Cluster: sim.Key,
	}
	if !m.Known { // a job that begins: it knows what the status says
		if m.OutSince == nil {
			m.OutSince = w.outSince
		}
		if s := w.status; s != nil && m.Work == nil {
			m.Work = &monplan.Work{
				Kind: s.Kind, Newcomer: s.Newcomer, Old: s.Old, Generation: s.Generation, Joined: s.Joined, Undo: s.Undo,
				Started: s.Started,
			}
			if d := w.mons[s.Newcomer]; s.Started.IsZero() && d != nil && d.deployed {
				m.Work.Started = time.Now()
			}
		}
		out.Work = m.Work
	}
	s := w.look(m)
	if out.OutSince = m.OutSince; s.Unproved == "" {
		out.OutSince = monplan.Timers(m.OutSince, s.Mons, s.Now)
	}
	for i := range s.Mons {
		s.Mons[i].OutSince = out.OutSince[s.Mons[i].Name]
	}
	out.Step, out.NextID = monplan.Next(s), s.NextID
	if len(w.refused) > 0 && s.Work == nil {
		out.Refused, out.Step = w.refused, monplan.Step{Verdict: monplan.Refuse, Why: w.refused[0].Error()}
	}
	out.Counts = activities.MonCounts{Mons: len(w.monmap), InQuorum: w.living(), Wanted: w.want.Count}
	w.status, w.outSince, w.looked = out.Step.Work, out.OutSince, w.news
	return out, nil
}

// may tells whether whoever asks still lives.
func (w *monWorld) may(ctx context.Context) error {
	return w.scene.mayAct(ctx)
}

// Do implements activities.Mons.
func (w *monWorld) Do(ctx context.Context, _ activities.MonsRef, step monplan.Step) (storage.Answer, error) {
	if err := w.may(ctx); err != nil {
		return storage.Answer{}, err
	}
	act := fmt.Sprintf("%s %s", step.Acts[0].Do, step.Acts[0].Mon)
	began := time.Now()
	time.Sleep(50 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.may(ctx); err != nil {
		return storage.Answer{}, err
	}
	if w.gone {
		return storage.Answer{}, fmt.Errorf("CephMon n/mons: %w", activities.ErrNotFound)
	}
	if step.Acts[0].Do != monplan.AwaitQuorum { // which changes nothing
		if w.acted.After(began) {
			w.bad("%s while another act is under way", act)
		}
		w.acted = time.Now()
	}
	if w.looked != w.news { // the adapters ask Ceph right before
		return storage.Answer{Reason: "a mon has died meanwhile, or is back"}, nil
	}
	if w.refuse != nil && w.refuse(act) {
		return storage.Answer{Reason: "not now, says the test"}, nil
	}
	if n := len(w.acts); n == 0 || w.acts[n-1] != act {
		w.scene.Tell("mons: %s", act)
		w.acts = append(w.acts, act)
	}
	agreed := 2*w.living() > len(w.monmap)
	w.act(step.Acts[0], step)
	if agreed && 2*w.living() <= len(w.monmap) {
		w.bad("after %s only %d of %d mons live", act, w.living(), len(w.monmap))
	}
	return storage.Answer{OK: true}, nil
}

func (w *monWorld) act(act monplan.Act, step monplan.Step) {
	m := w.mons[act.Mon]
	switch act.Do {
	case monplan.Schedule:
		if w.canary != "" && w.canary != act.Mon || m != nil {
			w.bad("a canary for mon.%s beside that of %q", act.Mon, w.canary)
		}
		w.canary = act.Mon
		if id, named := monplan.NumberOf(act.Mon); named {
			w.nextID = max(w.nextID, id+1)
		}
	case monplan.ClaimVolume:
		w.claims[act.Mon] = true
	case monplan.DropCanary:
		if w.canary == act.Mon {
			w.canary = ""
		}
	case monplan.Start:
		w.start(act.Mon, step.Work)
	case monplan.SaveEndpoints:
		w.save(step.Work)
	case monplan.RemoveMon:
		w.remove(act.Mon, step)
	case monplan.StopMon:
		if slices.Contains(w.monmap, act.Mon) {
			w.bad("mon.%s is stopped while the monmap has it", act.Mon)
		}
		m.deployed = false
	case monplan.RestartMon:
		w.underLease(act.Mon)
		m.template, m.running, m.ready = w.want.Template, true, time.Now().Add(joins)
	case monplan.DropTraces:
		if m != nil && (m.deployed || m.proved) {
			w.bad("the claim of mon.%s is deleted, which has data", act.Mon)
		}
		delete(w.claims, act.Mon)
	case monplan.AwaitQuorum:
	}
}

func (w *monWorld) save(work *monplan.Work) {
	s := w.look(activities.MonMemory{})
	s.Work = work
	w.endpoints = s.EndpointsToSave()
	for _, name := range w.endpoints {
		if !w.mons[name].proved {
			w.bad("the endpoints name mon.%s, which was never in quorum", name)
		}
	}
}

func (w *monWorld) start(name string, work *monplan.Work) {
	if w.canary != "" {
		w.bad("mon.%s is started beside its canary", name)
	}
	if work.Started.IsZero() {
		w.bad("mon.%s is started, and that is written down nowhere", name)
	}
	if m := w.mons[name]; m != nil && m.left {
		w.bad("mon.%s is started again, and has left", name)
	}
	if !slices.Contains(w.monmap, name) {
		if !quorum.Has(len(w.monmap)+1, w.living()) {
			w.bad("if mon.%s dies while it joins, %d of %d live", name, w.living(), len(w.monmap)+1)
		}
		if len(w.monmap) > w.want.Count && len(w.monmap) > 5 {
			w.bad("mon.%s joins %d others", name, len(w.monmap))
		}
		if work.Old != "" && work.Kind != monplan.Migrate && slices.Contains(w.monmap, work.Old) {
			w.bad("mon.%s joins before mon.%s has left", name, work.Old)
		}
		w.monmap = append(w.monmap, name)
	}
	if w.mons[name] == nil {
		ready := time.Now().Add(joins)
		if w.never {
			ready = ready.Add(forever)
		}
		zone := ""
		for _, n := range w.nodes {
			if n.Name == work.Node {
				zone = n.Zone
			}
		}
		w.mons[name] = &simMon{
			node: work.Node, zone: zone, storage: w.want.Storage[work.Zone], ready: ready, template: w.want.Template,
		}
	}
	w.mons[name].deployed, w.mons[name].running = true, true
}

func (w *monWorld) remove(name string, step monplan.Step) {
	i := slices.Index(w.monmap, name)
	if i < 0 {
		return // Ceph calls that a success
	}
	lives := w.alive(name)
	w.monmap = slices.Delete(w.monmap, i, i+1)
	w.mons[name].running, w.mons[name].left = false, true // it exits by itself
	if !lives || name == step.Work.Newcomer {
		return
	}
	w.underLease(name)
	switch step.Work.Kind {
	case monplan.FailOver:
		w.bad("mon.%s is failed over, and lives", name)
	case monplan.Migrate:
		if !w.alive(step.Work.Newcomer) {
			w.bad("mon.%s leaves before mon.%s is in quorum", name, step.Work.Newcomer)
		}
	default:
	}
	if w.living() < len(w.monmap) {
		w.bad("mon.%s leaves although another one is out of quorum", name)
	}
}

func (w *monWorld) underLease(name string) {
	if held := w.scene.Memory().Lease.MonHeld(); held != name {
		w.bad("mon.%s goes, and the lease is held for %q", name, held)
	}
}

// Forget implements activities.Mons.
func (w *monWorld) Forget(ctx context.Context, _ activities.MonsRef, work monplan.Work) error {
	if err := w.may(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.canary = ""
	if w.mons[work.Newcomer] == nil {
		delete(w.claims, work.Newcomer)
	}
	return nil
}

// Plan implements activities.Mons.
func (w *monWorld) Plan(context.Context, activities.MonsRef, monplan.Mode) (activities.MonPlan, error) {
	return activities.MonPlan{}, errNoMons
}

// Of implements activities.Mons.
func (w *monWorld) Of(context.Context, storage.ClusterKey) ([]activities.MonsRef, error) {
	return nil, nil
}

// leftovers is what is left of steps that are over.
func (w *monWorld) leftovers() (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.canary != "" {
		left = append(left, "the canary of mon."+w.canary)
	}
	for name, m := range w.mons {
		if m.deployed && !slices.Contains(w.monmap, name) {
			left = append(left, "the Deployment of mon."+name)
		}
		if m.proved && m.storage.Claim && !w.claims[name] {
			left = append(left, "mon."+name+" without its claim")
		}
	}
	for name := range w.claims {
		if m := w.mons[name]; m == nil || !m.proved {
			left = append(left, "the claim of mon."+name+", which never was in quorum")
		}
	}
	slices.Sort(left)
	return left
}

// monsOf are the mons of a scene, if it has any.
type monsOf struct{ scene *scene }

var errNoMons = errors.New("the scene has no CephMon")

func (m monsOf) world() activities.Mons {
	switch {
	case m.scene.monSim != nil:
		return adapted{m.scene.monSim.Mons()}
	case m.scene.mons != nil:
		return m.scene.mons
	}
	return nil
}

func (m monsOf) Survey(
	ctx context.Context, ref activities.MonsRef, memory activities.MonMemory,
) (activities.MonSurvey, error) {
	if w := m.world(); w != nil {
		return w.Survey(ctx, ref, memory)
	}
	return activities.MonSurvey{}, errNoMons
}

func (m monsOf) Do(ctx context.Context, ref activities.MonsRef, step monplan.Step) (storage.Answer, error) {
	return m.world().Do(ctx, ref, step)
}

func (m monsOf) Forget(ctx context.Context, ref activities.MonsRef, work monplan.Work) error {
	return m.world().Forget(ctx, ref, work)
}

func (m monsOf) Plan(context.Context, activities.MonsRef, monplan.Mode) (activities.MonPlan, error) {
	return activities.MonPlan{}, errNoMons
}

func (m monsOf) Of(context.Context, storage.ClusterKey) ([]activities.MonsRef, error) {
	return nil, nil
}

// adapted are lockkeeper's own adapters in front of simulated mons, whose CephMon has one name.
type adapted struct{ *cephmon.Mons }

func (a adapted) Survey(
	ctx context.Context, _ activities.MonsRef, memory activities.MonMemory,
) (activities.MonSurvey, error) {
	return a.Mons.Survey(ctx, mons.Ref, memory)
}

func (a adapted) Do(ctx context.Context, _ activities.MonsRef, step monplan.Step) (storage.Answer, error) {
	return a.Mons.Do(ctx, mons.Ref, step)
}

func (a adapted) Forget(ctx context.Context, _ activities.MonsRef, work monplan.Work) error {
	return a.Mons.Forget(ctx, mons.Ref, work)
}
