package mons

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// This file judges what lockkeeper does, at the moment in which it does it.

func (w *World) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(w.violations, text) {
		w.tell("!! %s", text)
		w.violations = append(w.violations, text)
	}
}

// Violations are what must never have been.
func (w *World) Violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}

func (w *World) last() []string { return w.acts[max(0, len(w.acts)-3):] }

// known: nobody has died or come back since the mons said last who of them lives. Otherwise what was done rested on
// what was right a moment before.
func (w *World) known() bool { return !w.news.After(w.told) }

func monOf(deployment string) (mon string, canary bool) {
	mon, canary = strings.CutSuffix(strings.TrimPrefix(deployment, monspec.ResourceName("")), "-canary")
	return mon, canary
}

// judgeDeployment judges a canary or a mon that is made.
func (w *World) judgeDeployment(d *appsv1.Deployment) {
	name, canary := monOf(d.Name)
	if w.removed[name] {
		w.violate("the name %s is given again, which has left", name)
	}
	id, _ := monplan.NumberOf(name)
	for other := range w.given {
		if n, _ := monplan.NumberOf(other); n > id {
			w.violate("the name %s is given after %s", name, other)
		}
	}
	for _, other := range sorted(w.deployments) {
		mon, isCanary := monOf(other)
		_, joined := w.member(mon)
		if isCanary || !joined {
			w.violate("%s is made beside %s: two at once", d.Name, other)
		}
	}
	w.given[name]++
	if canary { // with which a step begins
		if w.cephMon != nil {
			w.counted = int(w.cephMon.Spec.Count)
		}
		return
	}
	if spec := &d.Spec.Template.Spec; claimOf(spec) == "" && spec.NodeSelector[corev1.LabelHostname] == "" {
		w.violate("mon.%s has its store on a path, and may run on any node", name)
	}
	if _, there := w.member(name); there {
		return
	}
	if living := w.alives(); w.known() && len(living) < majority(len(w.monmap)+1) {
		w.violate("if mon.%s dies while it joins, %d of %d live", name, len(living), len(w.monmap)+1)
	}
}

// judgeRemoval judges a mon that leaves the monmap. The mons carry out what they were asked for before they elected.
func (w *World) judgeRemoval(name string, asked when) {
	lives, n := w.alive(name), len(w.monmap)-1
	living := slices.DeleteFunc(w.alives(), func(other string) bool { return other == name })
	if late := w.reckless && (!asked.known || w.news.After(asked.at)); len(living) < majority(n) && !late {
		w.violate("mon.%s leaves, and %d of %d live", name, len(living), n)
	}
	w.judgeSuccessor(name)
	known := 0
	for _, other := range living {
		if strings.Contains(","+w.endpoints.Data["data"], ","+other+"=") {
			known++
		}
	}
	if known < majority(n) && w.known() {
		w.violate("mon.%s leaves, and the endpoints name %d of %d others that live", name, known, n)
	}
	if node := w.evicted[name]; w.draining[node] && w.cephMon != nil && !w.alone &&
		n < min(int(w.cephMon.Spec.Count), w.counted) {
		w.violate("mon.%s leaves as if it were dead, and a drain has its node %s", name, node)
	}
	if !lives || !w.proved[name] || !asked.known || !w.known() || w.news.After(asked.at) {
		return
	}
	if w.opts.Lease != nil && w.opts.Lease() != name && !w.newest(name) {
		w.violate("mon.%s leaves, which lives, and the lease is held for %q", name, w.opts.Lease())
	}
	if len(living) < n {
		w.violate("mon.%s leaves, which lives, although another one is out of quorum", name)
	}
	// A count that was raised since the step began is for the next one.
	if w.cephMon != nil && n < min(int(w.cephMon.Spec.Count), w.counted) && !w.alone && !w.newest(name) {
		w.violate("mon.%s leaves before its successor is in quorum: %d of %d are left", name, n, w.cephMon.Spec.Count)
	}
}

// heardOf is how long who looks may not have seen what has happened to a node.
const heardOf = 20 * time.Second

// judgeSuccessor judges whether what a mon leaves for is ready, where fewer are left than the spec says: a node that
// works, with a place for its successor. One that has added itself once more has a successor already.
func (w *World) judgeSuccessor(name string) {
	if w.cephMon == nil || len(w.monmap)-1 >= min(int(w.cephMon.Spec.Count), w.counted) || w.newest(name) ||
		w.removed[name] || time.Since(w.upset) < heardOf {
		return
	}
	for _, p := range w.pods {
		node := p.Spec.NodeName
		if p.mon() == "" && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && w.nodes[node] != nil &&
			w.unready(node) < heardOf {
			return
		}
	}
	w.violate("mon.%s leaves, and its successor has no node that works", name)
}

// newest: nobody was named after it, so that it may be a newcomer which is taken back.
func (w *World) newest(name string) bool {
	id, _ := monplan.NumberOf(name)
	for other := range w.given {
		if n, _ := monplan.NumberOf(other); n > id {
			return false
		}
	}
	return true
}

// judgeStop judges a Deployment that is deleted. A newcomer may have joined after the proof that it had not: nobody can
// ask Ceph and Kubernetes at the same moment. So the quorum has to bear that it does not live.
func (w *World) judgeStop(d *appsv1.Deployment) {
	name, canary := monOf(d.Name)
	m, there := w.member(name)
	if !there || canary {
		return
	}
	rest := 0
	for _, o := range w.monmap {
		if o.name != name && w.alive(o.name) {
			rest++
		}
	}
	if w.proved[name] || time.Since(m.since) > stopTakes || 2*rest <= len(w.monmap) {
		w.violate("mon.%s is stopped while the monmap has it", name)
	}
}

// stopTakes is how long it takes from the proof that a mon has left, or has not joined, until it is stopped: some three
// requests.
const stopTakes = 3 * time.Second

// judgeRestart judges a Deployment that is changed, whose pod then ends.
func (w *World) judgeRestart(d *appsv1.Deployment) {
	name, canary := monOf(d.Name)
	_, there := w.member(name)
	if canary || !there || !w.known() {
		return
	}
	for _, p := range w.pods { // which still serves, but not for long
		if d := w.deployments[p.of]; p.mon() != "" && p.mon() != name && d != nil && d.Generation != p.spec &&
			w.alive(name) && !w.deadNodes[p.Spec.NodeName] {
			w.violate("mon.%s is restarted while mon.%s is", name, p.mon())
		}
	}
	living := slices.DeleteFunc(w.alives(), func(other string) bool { return other == name })
	if len(living) < majority(len(w.monmap)) {
		w.violate("mon.%s is restarted, and meanwhile %d of %d live", name, len(living), len(w.monmap))
	}
	if len(living) < len(w.monmap)-1 {
		w.violate("mon.%s is restarted although another one is out of quorum", name)
	}
	if w.opts.Lease != nil && w.opts.Lease() != name {
		w.violate("mon.%s is restarted, and the lease is held for %q", name, w.opts.Lease())
	}
}

func (w *World) judgeService(name string) {
	mon, _ := monOf(name)
	if _, there := w.member(mon); there {
		w.violate("the Service of mon.%s is deleted while the monmap has it", mon)
	}
}

// judgeClaim judges a claim that is deleted.
func (w *World) judgeClaim(c *corev1.PersistentVolumeClaim) {
	mon, _ := monOf(c.Name)
	if w.seen[mon] {
		w.violate("the claim of mon.%s is deleted, which was seen in quorum", mon)
	}
	if w.deployments[c.Name] != nil {
		w.violate("the claim of mon.%s is deleted, which has a Deployment", mon)
	}
}

// judgeEndpoints judges what everybody finds the mons by.
func (w *World) judgeEndpoints() {
	text := w.endpoints.Data["data"]
	for _, entry := range strings.Split(text, ",") {
		name, address, _ := strings.Cut(entry, "=")
		m, there := w.member(name)
		switch {
		case !there:
			if w.known() {
				w.violate("the endpoints name mon.%s, which the monmap does not have: %s", name, text)
			}
		case address != m.ip+":6789":
			w.violate("the endpoints name mon.%s at %s, and the monmap at %s", name, address, m.ip)
		case !w.proved[name]:
			w.violate("the endpoints name mon.%s, which was never in quorum", name)
		}
	}
	w.judgeMapping()
}

// judgeAddress judges the address of a mon that joins. One that has left and adds itself once more has its own.
func (w *World) judgeAddress(p *pod) {
	name, ip := p.mon(), w.address(p)
	if since, left := w.left[ip]; left && !w.removed[name] && time.Since(since) < monplan.AddressRests-time.Minute {
		w.violate("mon.%s has the address %s, which another one has left %s ago", name, ip, time.Since(since))
	}
	for _, m := range w.monmap {
		if m.ip == ip {
			w.violate("mon.%s has the address %s of mon.%s", name, ip, m.name)
		}
	}
}

// judgeMapping judges where the mons run, as Rook would read it.
func (w *World) judgeMapping() {
	var mapping struct {
		Node map[string]struct{ Name, Hostname string }
	}
	if err := json.Unmarshal([]byte(w.endpoints.Data["mapping"]), &mapping); err != nil {
		w.violate("the mapping of mons to nodes: %v", err)
	}
	for mon, n := range mapping.Node {
		if node := w.nodes[n.Name]; node != nil && node.Labels[corev1.LabelHostname] != n.Hostname {
			w.violate("mon.%s is on node %s with hostname %s, says the mapping", mon, n.Name, n.Hostname)
		}
	}
}

// Leftovers is what is left of steps that are over; none when all is well and nothing is under way.
func (w *World) Leftovers() (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	// Without its CephMon nobody can ask any more whether a mon has left, and what it had stays.
	unasked := func(mon string) bool { return w.cephMon == nil && w.removed[mon] && w.proved[mon] }
	for _, name := range sorted(w.deployments) {
		mon, canary := monOf(name)
		if _, there := w.member(mon); canary || !there && !unasked(mon) {
			add("Deployment %s", name)
		}
	}
	for _, name := range sorted(w.services) {
		mon, _ := monOf(name)
		if _, there := w.member(mon); !there && !unasked(mon) {
			add("Service %s", name)
		}
	}
	for _, name := range sorted(w.claims) {
		mon, _ := monOf(name)
		if _, there := w.member(mon); !there && !w.proved[mon] {
			add("claim %s", name)
		}
	}
	for _, m := range w.monmap {
		if w.deployments[monspec.ResourceName(m.name)] == nil {
			add("mon.%s in the monmap without a Deployment", m.name)
		}
	}
	if w.cephMon == nil {
		return left
	}
	if w.cephMon.Status.Step != nil {
		add("a step in the status: %+v", *w.cephMon.Status.Step)
	}
	for _, name := range sorted(w.gone) {
		if w.seen[name] && !w.listed(name) {
			add("the store of mon.%s, %s, which the status does not list: %+v", name, w.gone[name], w.cephMon.Status.Left)
		}
	}
	return left
}

// listed: the status tells where the store of a mon is that has left.
func (w *World) listed(name string) bool {
	for _, l := range w.cephMon.Status.Left {
		if l.Mon == name {
			return true
		}
	}
	return false
}

// Whole is what the mons are not yet, of what the spec says; none: they are.
func (w *World) Whole() (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	names, spec := w.names(), w.cephMon.Spec
	if len(names) != int(spec.Count) {
		add("%d mons, and the spec says %d", len(names), spec.Count)
	}
	if living := w.alives(); len(living) < len(names) {
		add("only %v of %v live", living, names)
	}
	listed := []string{}
	for _, entry := range strings.Split(w.endpoints.Data["data"], ",") {
		name, _, _ := strings.Cut(entry, "=")
		listed = append(listed, name)
	}
	if slices.Sort(listed); !slices.Equal(listed, names) {
		add("the endpoints name %v, and the monmap %v", listed, names)
	}
	used := map[string]string{}
	for _, p := range w.pods {
		mon := p.mon()
		if mon == "" {
			continue
		}
		zone := w.zoneOf(p)
		wants := spec.VolumeClaimTemplate != nil || slices.ContainsFunc(spec.Zones,
			func(z v1alpha1.MonZone) bool { return z.Name == zone && z.VolumeClaimTemplate != nil })
		if claim := claimOf(&p.Spec) != ""; claim != wants {
			add("mon.%s in zone %s has a claim: %t", mon, zone, claim)
		}
		if p.Spec.Containers[0].Image != spec.PodTemplate.Image && !w.asAdopted(mon, p) {
			add("mon.%s has image %s", mon, p.Spec.Containers[0].Image)
		}
		if len(spec.Zones) > 0 && used[zone] != "" {
			add("mon.%s and mon.%s are in zone %s", mon, used[zone], zone)
		}
		used[zone] = mon
	}
	slices.Sort(wrong)
	return wrong
}

// asAdopted: lockkeeper did not make the mon's pod, and has not seen the spec with another image since it knows it.
func (w *World) asAdopted(mon string, p *pod) bool {
	now, err := monspec.Of(w.cephMon).TemplateHash()
	return err == nil && p.Annotations[monspec.TemplateAnnotation] == "" && !slices.ContainsFunc(w.cephMon.Status.Mons,
		func(m v1alpha1.MonStatus) bool { return m.Name == mon && m.Adopted != "" && m.Adopted != now })
}

// zoneOf is the zone for which a mon was made, or that of its node.
func (w *World) zoneOf(p *pod) string {
	if d := w.deployments[p.of]; d != nil && d.Annotations[monspec.ZoneAnnotation] != "" {
		return d.Annotations[monspec.ZoneAnnotation]
	}
	if n := w.nodes[p.Spec.NodeName]; n != nil {
		return n.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

// LostSince is since when the mons have no majority; zero: they have one.
func (w *World) LostSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}
