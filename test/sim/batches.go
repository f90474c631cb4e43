package sim

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	lockkeeper "github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/windows"
)

// This file holds what a CephOSD's spec says of when a batch may begin.

// edits is when something about the CephOSD that a rollout has to mind was last changed by a person.
type edits struct {
	at                               time.Time // anything
	paused                           time.Time // zero while it is not
	windows, parallel, pause, canary time.Time
	template                         time.Time
	// how often which OSDs there are, or their devices, had changed, by generation
	devices map[int64]int
}

// note takes down what has changed.
func (e *edits) note(before, now *v1alpha1.CephOSDSpec, generation int64) {
	e.at = time.Now()
	changed := func(at *time.Time, before, now any) {
		if !equality.Semantic.DeepEqual(before, now) {
			*at = e.at
		}
	}
	switch {
	case !now.Paused:
		e.paused = time.Time{}
	case e.paused.IsZero():
		e.paused = e.at
	}
	changed(&e.windows, before.Windows, now.Windows)
	changed(&e.parallel, before.MaxParallel, now.MaxParallel)
	changed(&e.pause, before.PauseBetween, now.PauseBetween)
	changed(&e.canary, before.Canary, now.Canary)
	changed(&e.template, before.PodTemplate, now.PodTemplate)
	e.devices[generation] = e.devices[generation-1]
	if !equality.Semantic.DeepEqual(before.Storage, now.Storage) {
		e.devices[generation]++
	}
}

// anew is a CephOSD that was just created with this spec.
func (e *edits) anew(now *v1alpha1.CephOSDSpec) {
	at := time.Now()
	*e = edits{at: at, windows: at, parallel: at, pause: at, canary: at, template: at, devices: map[int64]int{}}
	if now.Paused {
		e.paused = at
	}
}

// batches is what is known of those in which OSDs that served were stopped.
type batches struct {
	begun map[string]bool      // by the token of their lease
	last  map[string]time.Time // when an OSD was stopped, by run
	seen  map[string]bool      // templates that were rolled out once
	// canary is the first OSD that a batch stopped for the present template, and first when it ran with that. A pod that
	// was made anew because a drain took it is no canary, although it has the present template, too.
	canary string
	first  time.Time
	// approved is when a person last said that a canary is fine.
	approved time.Time
}

// slack is how long it may take from a look at the CephOSD until what was decided then is carried out: some requests,
// one after the other, and some of them again.
func (w *World) slack() time.Duration { return 10*time.Second + 3*w.opts.Reaction }

// judgeBatch: no batch of OSDs that serve begins while the CephOSD is paused, no maintenance window is open, the batch
// before was a moment ago, or the canary has not been judged; and none is larger than it may be. One that has begun
// goes on. OSDs that had only just come up were broken when that was decided.
func (w *World) judgeBatch(o *osd, claim *lockkeeper.LeaseClaim) {
	w.batches.canary = cmp.Or(w.batches.canary, o.name())
	if time.Since(o.since) < w.slack() || time.Now().Before(w.unguarded) {
		return
	}
	run := claim.WorkflowID + " " + claim.RunID
	before := w.batches.last[run]
	w.batches.last[run] = time.Now()
	batch := fmt.Sprint(run, claim.Token)
	if w.batches.begun[batch] {
		return
	}
	w.batches.begun[batch] = true
	then := time.Now().Add(-w.slack())
	if w.cr == nil {
		if w.edits.at.Before(then) {
			w.violate("a batch begins with %s, and there is no CephOSD", o.name())
		}
		return
	}
	spec := &w.set().Spec
	switch pause := spec.PauseBetween; {
	case !w.edits.paused.IsZero() && w.edits.paused.Before(then):
		w.violate("a batch begins with %s, and the CephOSD is paused", o.name())
	case w.edits.windows.Before(then) && w.shutSince(then):
		w.violate("a batch begins with %s, and no maintenance window is open", o.name())
	case w.edits.parallel.Before(then) && spec.MaxParallel > 0 && len(claim.Daemons) > int(spec.MaxParallel):
		w.violate("a batch begins with %s, and is larger than %d: %v", o.name(), spec.MaxParallel, claim.Daemons)
	case w.edits.pause.Before(then) && pause != nil && !before.IsZero() && time.Since(before) < pause.Duration:
		w.violate("a batch begins with %s %s after the one before", o.name(), time.Since(before))
	}
	w.judgeCanary(o, claim, spec.Canary)
}

// judgeCanary: the first OSD of a template goes alone, has to serve for a while, and somebody may have to approve it.
// That is judged of a template that is new, and was set when the canary was wanted already.
func (w *World) judgeCanary(o *osd, claim *lockkeeper.LeaseClaim, canary *v1alpha1.Canary) {
	if canary == nil || !w.opts.JudgeCanary || w.edits.template.Before(w.edits.canary) ||
		time.Since(w.edits.template) < w.slack() || w.batches.seen[w.set().Hash] {
		return
	}
	switch first := w.batches.first; {
	case first.IsZero() && len(claim.Daemons) > 1:
		w.violate("a rollout begins with %v, and not with a canary", claim.Daemons)
	case first.IsZero(), o.name() == w.batches.canary:
	case canary.Soak != nil && time.Since(first) < canary.Soak.Duration:
		w.violate("a batch begins with %s %s after the canary", o.name(), time.Since(first))
	case canary.Approval && w.batches.approved.Before(w.edits.template):
		w.violate("a batch begins with %s, and nobody has approved the canary", o.name())
	}
}

// ran notes that the process of a pod has begun.
func (w *World) ran(p *pod) {
	if w.cr != nil && p.ours && w.batches.first.IsZero() && p.of.daemon() == w.batches.canary &&
		p.made.Annotations[podspec.HashAnnotation] == w.set().Hash {
		w.batches.first = time.Now()
	}
}

// Excuses notes that a person ended the rollout, or excused an OSD, from now on: another canary may go at once.
func (w *World) Excuses() { w.happens(w.excused) }

func (w *World) excused() {
	if w.cr != nil {
		w.batches.seen[w.set().Hash] = true
	}
}

// Approves notes that a person says of the canary that it is fine.
func (w *World) Approves() { w.happens(func() { w.batches.approved = time.Now() }) }

// shutSince tells whether no window has been open since then.
func (w *World) shutSince(then time.Time) bool {
	all, wrong := w.set().Windows()
	if wrong != nil {
		return false
	}
	open, change := windows.Open(all, then)
	return !open && (change.IsZero() || change.After(time.Now()))
}
