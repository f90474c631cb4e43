package monplan_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// world is a dumb model of a Ceph cluster in a Kubernetes cluster. It does what it is told and remembers what must
// never have happened.
type world struct {
	now       time.Time
	want      monplan.Want
	mode      monplan.Mode
	elsewhere string
	nodes     []node
	mons      map[string]*mon // whoever was ever made
	monmap    []string
	endpoints []string
	nextID    int
	canary    string // whose; "": there is none
	traces    map[string]bool
	// What the job has written down.
	work   *monplan.Work
	timers map[string]time.Time
	failed []string

	wrong []string // what must not have happened
	done  []string // acts, for the story
}

type node struct {
	name, zone string
	gone       bool
}

type mon struct {
	name, node, madeFor string
	storage             monplan.Storage
	fixed               *monplan.Fixed
	template            string
	deployed, running   bool
	late                bool // it joins the monmap, and lives only some looks later
	proved              bool // it was seen in quorum
	drain               string
}

func (w *world) node(name string) *node {
	for i := range w.nodes {
		if w.nodes[i].name == name {
			return &w.nodes[i]
		}
	}
	return &node{gone: true}
}

func (w *world) alive(name string) bool {
	m := w.mons[name]
	return slices.Contains(w.monmap, name) && m.deployed && m.running && !m.late && !w.node(m.node).gone && m.drain == ""
}

func (w *world) living() (n int) {
	for _, name := range w.monmap {
		if w.alive(name) {
			n++
		}
	}
	return n
}

func (w *world) agrees() bool { return 2*w.living() > len(w.monmap) }

// look is what the adapters see. The monitors keep no time while nobody looks.
func (w *world) look() monplan.Seen {
	s := monplan.Seen{
		Now: w.now, Want: w.want, Mode: w.mode, Elsewhere: w.elsewhere, NextID: w.nextID,
		Endpoints: slices.Clone(w.endpoints), Failed: w.failed,
	}
	if !w.agrees() {
		s.Unproved = "no answer"
	}
	for _, name := range w.monmap {
		m := w.mons[name]
		m.proved = m.proved || w.alive(name) && s.Unproved == ""
		n := w.node(m.node)
		s.Mons = append(s.Mons, monplan.Mon{
			Name: name, Alive: w.alive(name), Node: m.node, NodeGone: n.gone, Bound: !m.storage.Claim,
			Zone: n.zone, MadeFor: m.madeFor, Storage: m.storage, Fixed: m.fixed, Template: m.template, Drain: m.drain,
		})
	}
	if s.Unproved == "" {
		w.timers = monplan.Timers(w.timers, s.Mons, w.now)
	}
	for i, m := range s.Mons {
		s.Mons[i].OutSince = w.timers[m.Name]
	}
	for _, n := range w.nodes {
		why := ""
		if n.gone {
			why = "is gone"
		}
		s.Nodes = append(s.Nodes, monplan.Node{Name: n.name, Zone: n.zone, Why: why})
	}
	if w.work != nil {
		work := *w.work
		newcomer, made := w.mons[work.Newcomer]
		old := w.mons[work.Old]
		work.Canary = w.canary == work.Newcomer && w.canary != ""
		work.Scheduled = work.Scheduled && (!work.Canary || !w.node(work.Node).gone)
		work.Running = made && newcomer.deployed
		work.Stopped = old == nil || !old.deployed
		work.Restarted = old != nil && old.template == w.want.Template
		work.Renewed = work.Restarted
		work.Traces = w.traces[work.Newcomer]
		s.Work = &work
	}
	if w.canary != "" && (w.work == nil || w.work.Newcomer != w.canary) {
		s.Strays = []string{w.canary}
	}
	return s
}

// do carries out one act. crash: the job dies after the act, and knows nothing of it that is not in the cluster.
func (w *world) do(step monplan.Step, crash bool) {
	if w.work == nil || w.work.Newcomer != step.Work.Newcomer {
		if id, _ := monplan.NumberOf(step.Work.Newcomer); step.Work.Newcomer != "" {
			if id < w.nextID {
				w.never("the name %s is given twice", step.Work.Newcomer)
			}
			w.nextID = id + 1
		}
	}
	noted := step.Noted(w.now)
	act := step.Acts[0]
	w.work = &noted
	w.done = append(w.done, fmt.Sprintf("%s %s %s", noted.Kind, act.Do, act.Mon))
	w.act(act, step)
	if crash {
		w.done = append(w.done, "crash")
	}
}

func (w *world) act(act monplan.Act, step monplan.Step) {
	switch work := w.work; act.Do {
	case monplan.Schedule:
		if w.canary != "" && w.canary != act.Mon {
			w.never("two canaries, %s and %s", w.canary, act.Mon)
		}
		w.canary = act.Mon
		if n, found := w.placeFor(*work); found {
			work.Scheduled, work.Node = true, n.name
			if len(w.want.Zones) > 0 {
				work.Zone = n.zone
			}
		}
	case monplan.ClaimVolume:
		work.Claimed = true
		w.traces[act.Mon] = true
	case monplan.DropCanary:
		if w.canary == act.Mon {
			w.canary = ""
		}
	case monplan.Start:
		w.start(act.Mon)
	case monplan.AwaitQuorum:
		if m := w.mons[act.Mon]; m.running {
			m.late = false
		}
	case monplan.SaveEndpoints:
		w.endpoints = w.look().EndpointsToSave()
		for _, name := range w.endpoints {
			if name == work.Newcomer && !w.alive(name) && !w.mons[name].proved {
				w.never("the endpoints name %s, which was never in quorum", name)
			}
		}
	case monplan.RemoveMon:
		w.remove(act.Mon, step)
	case monplan.StopMon:
		if slices.Contains(w.monmap, act.Mon) {
			w.never("mon.%s is stopped while the monmap has it", act.Mon)
		}
		w.mons[act.Mon].deployed = false
	case monplan.RestartMon:
		if m := w.mons[act.Mon]; w.alive(act.Mon) && 2*(w.living()-1) <= len(w.monmap) {
			w.never("without mon.%s, which is restarted, there is no quorum", m.name)
		}
		w.mons[act.Mon].template = w.want.Template
		w.mons[act.Mon].running = true
	case monplan.DropTraces:
		if m := w.mons[act.Mon]; m != nil && (m.deployed || m.proved) {
			w.never("the claim of mon.%s is deleted, which runs or was in quorum", act.Mon)
		}
		delete(w.traces, act.Mon)
	}
}

// start makes the newcomer join. Whether it dies at once is not ours to say: that must do no harm.
func (w *world) start(name string) {
	if w.canary != "" {
		w.never("mon.%s is started beside its canary", name)
	}
	if !slices.Contains(w.monmap, name) {
		if 2*w.living() <= len(w.monmap)+1 {
			w.never("if mon.%s dies while it joins, %d of %d live", name, w.living(), len(w.monmap)+1)
		}
		if len(w.monmap) > max(w.want.Count, 5) {
			w.never("a mon joins %d others", len(w.monmap))
		}
		w.monmap = append(w.monmap, name)
	}
	if w.mons[name] == nil {
		w.mons[name] = &mon{
			name: name, node: w.work.Node, madeFor: w.work.Zone, storage: w.want.Storage[w.work.Zone], late: true,
			template: w.want.Template, fixed: &monplan.Fixed{HostNetwork: w.want.HostNetwork, DataDir: w.want.DataDir},
		}
	}
	w.mons[name].deployed, w.mons[name].running = true, true
}

func (w *world) remove(name string, step monplan.Step) {
	lives, before := w.alive(name), w.living()
	i := slices.Index(w.monmap, name)
	if i < 0 {
		return
	}
	w.monmap = slices.Delete(w.monmap, i, i+1)
	if 2*w.living() <= len(w.monmap) {
		w.never("mon.%s leaves, and %d of %d live", name, w.living(), len(w.monmap))
	}
	if !lives || name == step.Work.Newcomer {
		return
	}
	w.mons[name].running = false // it exits by itself
	switch step.Work.Kind {
	case monplan.FailOver:
		w.never("mon.%s is failed over, and lives", name)
	case monplan.Migrate:
		if !w.alive(step.Work.Newcomer) {
			w.never("mon.%s leaves before mon.%s is in quorum", name, step.Work.Newcomer)
		}
	}
	if step.Takes != name {
		w.never("mon.%s leaves, and no lease covers it", name)
	}
	if before-1 < len(w.monmap) {
		w.never("mon.%s leaves although another one is out of quorum", name)
	}
}

// placeFor is the first node on which the scheduler could put the canary.
func (w *world) placeFor(work monplan.Work) (node, bool) {
	s := w.look()
	for _, n := range w.nodes {
		used := false
		for _, name := range w.monmap {
			used = used || w.mons[name].node == n.name && (name != work.Old || work.Kind == monplan.Migrate)
		}
		inZone := len(w.want.Zones) == 0 || slices.Contains(s.FreeZones(work.Old), n.zone)
		if !n.gone && inZone && (!used || w.want.MultiplePerNode) {
			return n, true
		}
	}
	return node{}, false
}

func (w *world) never(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// story is what the world was like, for a person.
func (w *world) story() string {
	text := fmt.Sprintf("monmap %v, count %d, zones %v, mode %+v\n", w.monmap, w.want.Count, w.want.Zones, w.mode)
	for _, name := range slices.Sorted(maps.Keys(w.mons)) {
		m := w.mons[name]
		text += fmt.Sprintf("  mon.%s on %s: %+v\n", name, m.node, *m)
	}
	for _, line := range w.done {
		text += "  " + line + "\n"
	}
	return text
}
