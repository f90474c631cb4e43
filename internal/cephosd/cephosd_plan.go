package cephosd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is about devices that change their OSD: a DB that moves from one to another, or two that are exchanged. The
// rule is
//
//	An OSD may be in a batch only when every other pod that has one of its devices goes in the same batch.
//
// So nobody ever waits for what no one gives back, and none starts with a device that another one has. Whoever waits
// for others comes after them, and those that wait for each other go together, in a batch of their own, when nobody
// else is left.

// holding says who waits for whom.
type holding struct {
	pods    map[string][]held // by the key of an OSD: the pods of others that have one of its devices
	old     map[string]string // by the name of a pod that is to be replaced: the key of its OSD
	skipped map[string]string // by the name of a pod that is left as it is: the key of its OSD
}

type held struct{ pod, why string }

// holding is that of all pods; skipped tells which OSDs are left as they are, nil for none.
func (s *state) holding(skipped func(key string) bool) holding {
	h := holding{pods: map[string][]held{}, old: map[string]string{}, skipped: map[string]string{}}
	for key, holders := range s.Holders {
		for _, x := range holders {
			h.pods[key] = append(h.pods[key], held{x.Pod.Name, x.Why})
		}
	}
	for key, p := range s.old() {
		if skipped != nil && skipped(key) {
			h.skipped[p.Name] = key
		} else {
			h.old[p.Name] = key
		}
	}
	return h
}

// with is an OSD together with all whose pods have to go so that it can start, sorted; or why it cannot start whoever
// goes.
func (h holding) with(key string) (group []string, stuck string) {
	group = []string{key}
	for i := 0; i < len(group); i++ {
		for _, x := range h.pods[group[i]] {
			other, replaceable := h.old[x.pod]
			skipped := h.skipped[x.pod]
			switch {
			case skipped != "":
				return nil, x.why + ", and " + skipped + " was skipped until the template changes"
			case !replaceable:
				return nil, x.why
			case !slices.Contains(group, other):
				group = append(group, other)
			}
		}
	}
	slices.Sort(group)
	return group, ""
}

// first are those of a group that wait for nobody but each other: who has to go before all others.
func (h holding) first(group []string) (first []string) {
	for _, key := range group {
		if with, stuck := h.with(key); stuck == "" && (first == nil || len(with) < len(first)) {
			first = with
		}
	}
	return first
}

// whole leaves out those that wait for a pod which does not go with them.
func (h holding) whole(osds []rollout.OSD) []rollout.OSD {
	for {
		goes := map[string]bool{}
		for _, o := range osds {
			goes[o.Key] = true
		}
		before := len(osds)
		osds = slices.DeleteFunc(osds, func(o rollout.OSD) bool {
			return slices.ContainsFunc(h.pods[o.Key], func(x held) bool { return !goes[h.old[x.pod]] })
		})
		if len(osds) == before {
			return osds
		}
	}
}

// plan is what is next, and what is wrong with devices that change their OSD.
type plan struct {
	step    rollout.Step
	refused []*input.Error // OSDs that exchange devices and can never go together
	waiting []*input.Error // OSDs that wait for a device, and nothing that is replaced gives it back
}

const mostWaiting = 16

// plan decides what is next.
func (s *state) plan(in rollout.Input) (p plan) {
	if len(s.Holders) == 0 {
		return plan{step: rollout.Next(in)}
	}
	osds := map[string]rollout.OSD{}
	for _, o := range in.OSDs {
		osds[o.Key] = o
	}
	alone, urgent, last := s.groups(in, osds, &p)
	for _, group := range last {
		if wrong := s.inseparable(group, osds); wrong != nil {
			p.refused = append(p.refused, wrong)
		}
	}
	p.waiting = p.waiting[:min(len(p.waiting), mostWaiting)]
	p.step = rollout.Next(alone)
	switch do := p.step.Do; {
	case do == rollout.DoCreate || p.step.Broken:
	case len(urgent) > 0: // an OSD is down until they go, and to await it would be to wait for ever
		p.step = batchOf(in, urgent[0], osds)
	case do == rollout.DoNothing && len(last) > 0:
		p.step = batchOf(in, last[0], osds)
	case do == rollout.DoNothing && len(p.waiting) > 0:
		p.step.Why = p.waiting[0].Allowed
	}
	return p
}

// groups sorts out who waits for a device: alone is what is left to decide on without them; urgent are those for whom
// an OSD without a pod waits, and last those that go together when nobody else is left.
func (s *state) groups(
	in rollout.Input, osds map[string]rollout.OSD, p *plan,
) (alone rollout.Input, urgent, last [][]string) {
	left, missing := sets.New(in.Skip...), sets.New[string]()
	skipped := func(key string) bool { return left.Has(key) || left.Has(osds[key].Name) }
	h := s.holding(skipped)
	for _, o := range s.Missing {
		missing.Insert(o.Key())
	}
	alone = in
	alone.Skip = slices.Clone(in.Skip)
	for _, o := range in.OSDs {
		if len(h.pods[o.Key]) == 0 || skipped(o.Key) {
			continue
		}
		if o.State == rollout.OutOfDate && (o.Serves || o.Away == "") {
			alone.Skip = append(alone.Skip, o.Key)
		}
		group, stuck := h.with(o.Key)
		first := h.first(slices.DeleteFunc(slices.Clone(group), missing.Has))
		switch known := func(g []string) bool { return slices.Equal(g, first) }; {
		case stuck != "":
			p.waiting = append(p.waiting, input.Wrong(s.FieldOf(o.Host, strings.TrimPrefix(o.Key, o.Host+":")), o.Key,
				"cannot be started yet: "+stuck))
		case missing.Has(o.Key) && s.nodes.Away(o.Host) == "":
			urgent = append(urgent, first)
		case o.State == rollout.OutOfDate && len(first) > 1 && !slices.ContainsFunc(last, known):
			last = append(last, first)
		}
	}
	return alone, urgent, last
}

// batchOf is a step for OSDs that go because of a device, and in no other order.
func batchOf(in rollout.Input, group []string, osds map[string]rollout.OSD) rollout.Step {
	step := rollout.Step{Do: rollout.DoReplace, Broken: true, Canary: in.Canary}
	for _, key := range group {
		step.OSDs, step.Broken = append(step.OSDs, osds[key]), step.Broken && !osds[key].Up
	}
	if domain := step.OSDs[0].Domain; domain != "" {
		step.Domain = storage.FailureDomain{Type: in.DomainType, Name: domain}
	}
	step.Why = fmt.Sprintf("%s, since another OSD waits for its device", step.OSDs[0])
	if len(group) > 1 {
		step.Why = namesOf(step.OSDs) + " together, since each waits for a device of another"
	}
	return step
}

func namesOf(osds []rollout.OSD) string {
	names := make([]string, len(osds))
	for i, o := range osds {
		names[i] = o.String()
	}
	return strings.Join(names, ", ")
}

// most is how many OSDs may be in one batch of those that go for a device.
func (s *state) most() int {
	const most = 64
	limit := int(s.Spec.MaxParallel)
	if strings.EqualFold(string(s.Domain()), "osd") {
		limit = max(limit, 1)
	}
	return min(cmp.Or(limit, most), most)
}

// inseparable says why OSDs that wait for each other can never go together.
func (s *state) inseparable(group []string, osds map[string]rollout.OSD) *input.Error {
	why, first := "", osds[group[0]]
	if most := s.most(); len(group) > most {
		why = fmt.Sprintf("spec.updateDomain and spec.maxParallel let at most %d stop together", most)
	}
	for _, key := range group {
		if o := osds[key]; o.Domain != "" && first.Domain != "" && o.Domain != first.Domain {
			why = fmt.Sprintf("%s is in another failure domain than %s", o, first)
		}
	}
	if why == "" {
		return nil
	}
	device := s.taken(group[0])
	return input.Wrong(s.FieldOf(first.Host, device), device,
		fmt.Sprintf("must not be exchanged between OSDs that never stop together (%s): %s; give one of them another device "+
			"first", strings.Join(group, ", "), why))
}

// taken is the device of an OSD that another one's pod has.
func (s *state) taken(key string) string {
	for _, o := range s.desired {
		if o.Key() != key {
			continue
		}
		for _, x := range s.Holders[key] {
			is := s.Identified[x.Pod.Name]
			for _, device := range []string{o.Data, o.DB, o.WAL} {
				if device != "" && slices.Contains([]string{is.Data, is.DB, is.WAL}, device) {
					return device
				}
			}
		}
	}
	return ""
}
