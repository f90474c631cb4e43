package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// Prefixes that tell mons and CephMons from nodes on the command line, as kubectl writes kinds.
const (
	monPrefix     = "mon/"
	cephMonPrefix = "cephmon/"
)

// MonsExplanation answers "are these mons in quorum and as their CephMon says?", of all of them or of one; and if not:
// why, what is done about it, and what that waits for. Its field names are stable: scripts rely on them.
type MonsExplanation struct {
	At      time.Time `json:"at"`
	CephMon string    `json:"cephMon"`
	// Mon is the one that was asked about; "": all.
	Mon string `json:"mon,omitempty"`
	// Settled: what was asked about is in quorum and as the spec says, and no step concerns it.
	Settled bool `json:"settled"`
	// Why is why it is not; empty if and only if Settled.
	Why []string `json:"why"`
	// Status is what the job wrote down last.
	Status v1alpha1.CephMonStatus `json:"status"`
	// Outdated is why that may not be true any more.
	Outdated string `json:"outdated,omitempty"`
	// Job is the job that looks after the mons; nil: it never ran, or Unknown says why nobody knows.
	Job     *Migration `json:"job,omitempty"`
	Unknown string     `json:"unknown,omitempty"`
	// Next is how it goes on, or what a person can do.
	Next string `json:"next,omitempty"`
}

// ExplainsMon tells whether an argument of explain names a mon, and which: "a" of "mon/a" and of "mon/mon.a".
func ExplainsMon(arg string) (string, bool) {
	name, ok := strings.CutPrefix(arg, monPrefix)
	return strings.TrimPrefix(name, "mon."), ok
}

// ExplainsCephMon tells whether an argument of explain names a CephMon, and which.
func ExplainsCephMon(arg string) (string, bool) { return strings.CutPrefix(arg, cephMonPrefix) }

// ExplainCephMon tells of all mons of a CephMon, "namespace/name".
func (c *Command) ExplainCephMon(ctx context.Context, cephMon string) (MonsExplanation, error) {
	key, err := cephMonKey(cephMon)
	if err != nil {
		return MonsExplanation{}, err
	}
	m, err := c.Kubernetes.CephMon(ctx, key.Namespace, key.Name)
	if errors.Is(err, activities.ErrNotFound) {
		return MonsExplanation{}, wrong("CEPHMON", cephMon, "no such CephMon; `kubectl get cephmons -A` lists them")
	}
	if err != nil {
		return MonsExplanation{}, err
	}
	return c.explainMons(ctx, m, ""), nil
}

// ExplainMon tells of one mon, by its name in the monmap.
func (c *Command) ExplainMon(ctx context.Context, namespace, mon string) (MonsExplanation, error) {
	all, err := c.Kubernetes.CephMons(ctx, namespace)
	if err != nil {
		return MonsExplanation{}, fmt.Errorf("list the CephMons of namespace %s: %w", namespace, err)
	}
	for i := range all {
		if knows(&all[i].Status, mon) {
			return c.explainMons(ctx, &all[i], mon), nil
		}
	}
	return MonsExplanation{}, wrong("MON", monPrefix+mon,
		fmt.Sprintf("none of the %d CephMons in namespace %s knows of it; `kubectl get cephmons -A` lists all, and "+
			"--namespace names another one", len(all), namespace))
}

// knows tells whether a mon is in the monmap, comes, or has left something behind.
func knows(s *v1alpha1.CephMonStatus, mon string) bool {
	return slices.ContainsFunc(s.Mons, func(m v1alpha1.MonStatus) bool { return m.Name == mon }) ||
		s.Step != nil && (s.Step.Mon == mon || s.Step.Replaces == mon) ||
		slices.ContainsFunc(s.Left, func(l v1alpha1.MonStorageLeft) bool { return l.Mon == mon })
}

func (c *Command) explainMons(ctx context.Context, m *v1alpha1.CephMon, mon string) MonsExplanation {
	e := MonsExplanation{At: c.Now(), CephMon: m.Namespace + "/" + m.Name, Mon: mon, Why: []string{}, Status: m.Status}
	switch job, err := lookUp[Migration](ctx, c.Temporal, jobs.MigrateMons.ID(m.Namespace, m.Name)); {
	case err == nil:
		e.Job = &job
	case !errors.Is(err, ErrNoJob):
		e.Unknown = err.Error()
	}
	e.Outdated = e.outdated(m)
	if mon == "" {
		e.Why = append(e.Why, e.whyAll()...)
	} else {
		e.Why = append(e.Why, e.whyOne(m)...)
	}
	if e.Outdated != "" {
		e.Why = append(e.Why, "what is known may be old: "+e.Outdated)
	}
	e.Settled = len(e.Why) == 0
	e.Next = e.next(m)
	return e
}

func (e MonsExplanation) runs() bool { return e.Job != nil && e.Job.State == Running }

// outdated is why the status may not be true any more: a job that ended by itself left what is true until it is told
// otherwise, and one that runs keeps it up to date.
func (e MonsExplanation) outdated(m *v1alpha1.CephMon) string {
	s := m.Status
	switch {
	case s.AsOf == nil:
		return "no job has looked at these mons yet"
	case s.ObservedGeneration != m.Generation:
		return "no job has looked at them since the spec was changed"
	case e.runs() && e.Job.Status == nil:
		return "the job gives no answer: " + e.Job.Silent
	case s.Step != nil && !e.runs() && e.Unknown == "":
		return "a step is under way, and its job does not run"
	}
	return ""
}

// whyAll is what is left to do, as the job says it.
func (e MonsExplanation) whyAll() (why []string) {
	s := e.Status
	if s.Reason == monsUnproved {
		why = append(why, "nobody knows which of them live: "+s.Message)
	}
	for _, m := range s.Mons {
		if w := e.ofMon(m); w != "" {
			why = append(why, "mon."+m.Name+" "+w)
		}
	}
	if s.Step != nil {
		why = append(why, "a step is under way: "+stepName(*s.Step))
	}
	if len(why) == 0 && s.Reason != "" && s.Reason != monsSettled {
		why = append(why, s.Message)
	}
	return why
}

// Reasons of a CephMon's state that decide what is said here.
const (
	monsSettled   = "Settled"   // nothing is left to do
	monsDifferent = "Different" // mons wait for a person to have them moved
	monsUnproved  = "NoQuorum"  // nobody knows which mons live
)

func (e MonsExplanation) whyOne(m *v1alpha1.CephMon) (why []string) {
	s := e.Status
	if s.Reason == monsUnproved {
		why = append(why, "may live or not, nobody knows: "+s.Message)
	}
	at := slices.IndexFunc(s.Mons, func(one v1alpha1.MonStatus) bool { return one.Name == e.Mon })
	switch step := s.Step; {
	case at >= 0:
		if w := e.ofMon(s.Mons[at]); w != "" {
			why = append(why, w)
		}
		if out := s.Mons[at].OutSince; out != nil && m.Spec.HealthTimeout != nil && step == nil {
			why = append(why, "if it stays so it counts as dead "+when(out.Add(m.Spec.HealthTimeout.Duration), e.At))
		}
	case step != nil && step.Mon == e.Mon:
		why = append(why, "is not in the monmap yet")
	default:
		why = append(why, "has left the monmap")
	}
	if role := e.role(); role != "" {
		why = append(why, role)
	}
	if len(why) == 0 && strings.Contains(s.Message, "mon."+e.Mon+" is superfluous") {
		why = append(why, "is superfluous: the spec says fewer mons than there are")
	}
	return why
}

// ofMon is why one mon is not in quorum, or not as the spec says.
func (e MonsExplanation) ofMon(m v1alpha1.MonStatus) string {
	out := ""
	if !m.InQuorum && e.Status.Reason != monsUnproved {
		out = "is out of quorum"
		if m.OutSince != nil {
			out += " since " + when(m.OutSince.Time, e.At)
		}
	}
	if m.Different != "" {
		out = join(out, "is not as the spec says: "+m.Different)
	}
	return out
}

// role is what the step that is under way does with the mon that was asked about; "": nothing.
func (e MonsExplanation) role() string {
	s := e.Status.Step
	if s == nil || s.Mon != e.Mon && s.Replaces != e.Mon {
		return ""
	}
	var text string
	switch kind, comes := monplan.Kind(s.Kind), s.Mon == e.Mon; {
	case s.Undo != "":
		text = "the step is rolled back: " + s.Undo
	case kind == monplan.Restart:
		text = "gets a new pod, in place"
	case kind == monplan.TidyUp:
		text = "a step about this mon ended in the middle: what it left behind is put right"
	case kind == monplan.Remove:
		text = "leaves, and no mon takes its place"
	case kind == monplan.Add:
		text = "is made, since a mon is missing"
	case kind == monplan.Migrate && comes:
		text = "takes the place of mon." + s.Replaces + ", which leaves when this one is in quorum"
	case kind == monplan.Migrate:
		text = "leaves when mon." + s.Mon + ", which takes its place, is in quorum"
	case comes:
		text = "takes the place of mon." + s.Replaces + ", which leaves before"
	default:
		text = "leaves before mon." + s.Mon + " takes its place"
	}
	return text
}

// stepName is "Migrate mon.d for mon.a".
func stepName(s v1alpha1.MonStep) string {
	text := s.Kind + " mon." + s.Mon
	if s.Replaces != "" {
		text += " for mon." + s.Replaces
	}
	if s.Undo != "" {
		text += ", rolled back: " + s.Undo
	}
	return text
}

// next is how it goes on.
func (e MonsExplanation) next(m *v1alpha1.CephMon) string {
	id := jobs.MigrateMons.ID(m.Namespace, m.Name)
	switch s := e.Status; {
	case e.Settled:
		return ""
	case e.runs() && e.Job.Status == nil:
		return "a worker has to run: `lockkeeper doctor` tells what is missing"
	case e.runs():
		return "the job goes on by itself: `lockkeeper status " + id + "`, `lockkeeper history " + id + "`"
	case e.Unknown != "":
		return "Temporal has to answer; until then the mons stay as they are"
	case e.Outdated != "":
		return "the watcher starts the job within a minute: is `lockkeeper watch` running? `lockkeeper doctor` tells"
	case s.Reason == monsDifferent:
		return "`lockkeeper migrate-mons " + e.CephMon + " --plan` says what would be moved where; without --plan it moves " +
			"them"
	case e.leftOnly():
		return "`lockkeeper clean-mons " + e.CephMon + "` lists what mons have left behind"
	}
	return "docs/runbooks/move-mons.md says what to do; `lockkeeper migrate-mons " + e.CephMon + "` tries once more"
}

// leftOnly: the mon that was asked about has left, and all others are as they should be.
func (e MonsExplanation) leftOnly() bool { return e.Mon != "" && e.Status.Reason == monsSettled }

// Write puts an explanation into words: the answer first.
func (e MonsExplanation) Write(w io.Writer) {
	answer := "No."
	if e.Settled {
		answer = "Yes."
	}
	if e.Mon == "" {
		fmt.Fprintf(w, "Are the mons of CephMon %s in quorum and as it says? %s\n\n", e.CephMon, answer)
	} else {
		fmt.Fprintf(w, "Is mon.%s in quorum and as CephMon %s says? %s\n\n", e.Mon, e.CephMon, answer)
	}
	e.writeMons(w)
	e.writeState(w)
}

// writeMons tells of the mons that were asked about.
func (e MonsExplanation) writeMons(w io.Writer) {
	var rows [][]string
	for _, m := range e.Status.Mons {
		if e.Mon != "" && m.Name != e.Mon {
			continue
		}
		quorum, spec := "in quorum", "yes"
		switch {
		case e.Status.Reason == monsUnproved:
			quorum = "unknown"
		case !m.InQuorum:
			quorum = "out"
		}
		if m.Different != "" {
			spec = "no"
		}
		rows = append(rows, []string{"mon." + m.Name, m.Node, m.Zone, m.Storage, quorum, spec})
	}
	table(w, []string{"MON", "NODE", "ZONE", "STORAGE", "QUORUM", "AS SPEC"}, rows)
	for _, l := range e.Status.Left {
		if l.Mon == e.Mon {
			fmt.Fprintf(w, "mon.%s has left %s behind.\n", l.Mon, leftWhere(l))
		}
	}
	for _, why := range e.Why {
		fmt.Fprintf(w, "- %s\n", why)
	}
}

func leftWhere(l v1alpha1.MonStorageLeft) string {
	if l.Claim != "" {
		return "PersistentVolumeClaim " + l.Claim
	}
	return l.Path + " on " + l.Node
}

// writeState tells what is done about it, and what that waits for.
func (e MonsExplanation) writeState(w io.Writer) {
	s := e.Status
	fmt.Fprintln(w)
	if s.Reason != "" {
		state := s.Reason
		if s.Since != nil {
			state += ", since " + when(s.Since.Time, e.At)
		}
		if s.Message != "" {
			state += ": " + s.Message
		}
		fmt.Fprintf(w, "CephMon %s: %s.\n", e.CephMon, state)
	}
	if step := s.Step; step != nil {
		text := stepName(*step)
		if step.Since != nil {
			text += ", since " + when(step.Since.Time, e.At)
		}
		fmt.Fprintf(w, "Step under way: %s; next: %s.\n", text, orDash(step.Phase))
	}
	switch {
	case e.Unknown != "":
		fmt.Fprintf(w, "What its job does is not known: %s.\n", e.Unknown)
	case e.runs():
		fmt.Fprintf(w, "Job: %s.\n", e.Job.Describe(e.At))
	}
	if s.Reason != monsUnproved {
		for _, zone := range s.FatalZones {
			fmt.Fprintf(w, "Without zone %s there would be no quorum.\n", zone)
		}
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(w, "Warning: %s.\n", warning)
	}
	if e.Next != "" {
		fmt.Fprintf(w, "→ %s\n", e.Next)
	}
}
