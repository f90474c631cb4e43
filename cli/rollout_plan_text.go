package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// Write puts a plan into words.
func (p RolloutPlan) Write(w io.Writer) {
	fmt.Fprintf(w, "Plan for %s. Nothing is changed.\n\n", p.Job)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("Of", "%s", p.Of)
	row("Policy", "%s", orDash(p.Policy))
	row("Failure domain", "%s", orDash(p.FailureDomainType))
	parallel := "as many at once as Ceph can spare in one failure domain"
	switch {
	case p.MaxParallel > 0:
		parallel = fmt.Sprintf("at most %d at once", p.MaxParallel)
	case strings.EqualFold(p.UpdateDomain, "OSD"):
		parallel = "one at a time"
	}
	row("Update domain", "%s, %s", p.UpdateDomain, parallel)
	row("OSDs", "%s", describeCounts(p.Counts))
	if p.Now != nil {
		row("May drain", "%s: %s", p.Now.MayDrain, p.Now.Message)
		for _, h := range p.Now.Holders {
			row("Lease", "%s", h)
		}
	}
	if p.Now != nil && p.Now.Waits != "" {
		row("Each batch waits", "%s", p.Now.Waits)
	}
	for _, o := range p.OutOfDate {
		row("Out of date", "%s: %s", some(o.OSDs, mostNames), o.Why)
	}
	for i, w := range p.Windows {
		opens, closes := "open", "for ever"
		if w.Opens.After(p.At) {
			opens = when(w.Opens, p.At)
		}
		if !w.Closes.IsZero() {
			closes = "until " + when(w.Closes, p.At)
		}
		row([]string{"Windows", ""}[min(i, 1)], "%s, %s", opens, closes)
	}
	for _, h := range p.HeldBack {
		row("Held back by", "%s", h)
	}
	for _, note := range p.Warned {
		row("Note", "%s", note)
	}
	if len(p.Superfluous) > 0 {
		row(p.leaving(), "%s; each stays until Ceph says that its data is safe without it",
			some(p.Superfluous, mostNames))
	}
	if len(p.Discarded) > 0 {
		row("Discards", "%s; they take nothing from anybody", some(p.Discarded, mostNames))
	}
	for _, f := range p.Foreign {
		row("Not ours", "%s", f)
	}
	if p.Running != nil {
		row("Running", "%s", p.Running.Describe(p.At))
	}
	_ = tw.Flush()
	fmt.Fprintln(w)
	p.writeSteps(w)
	for _, u := range p.Unknown {
		fmt.Fprintf(w, "Could not find out %s\n", u)
	}
}

func (p RolloutPlan) writeSteps(w io.Writer) {
	if len(p.Refused) > 0 {
		fmt.Fprintln(w, "Nothing would be touched, because this makes no sense:")
		for _, r := range p.Refused {
			fmt.Fprintf(w, "- %s\n", r)
		}
		return
	}
	if len(p.Steps) == 0 {
		fmt.Fprintln(w, p.nothing())
		return
	}
	replaced := 0
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, s := range p.Steps {
		var names []string
		for _, o := range s.OSDs {
			names = append(names, o.String())
		}
		where := "-"
		if s.Do == rollout.DoReplace {
			replaced++
			if where = "not known"; !s.Domain.IsZero() {
				where = s.Domain.String()
			}
		}
		fmt.Fprintf(tw, "%d.\t%s\t%s\t%s\t%s\n", i+1, doing[s.Do], some(names, mostNames), where, p.why(s))
	}
	_ = tw.Flush()
	if replaced == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s. Before each: the lease of its failure domain, noout on its OSDs, and Ceph's word that it can "+
		"spare them; those that it\ncannot spare at that moment have a batch of their own.", batches(replaced))
	fmt.Fprintf(w, " After each: its OSDs ready and up within %s, all PGs clean",
		duration.HumanDuration(p.ProgressDeadline.Duration))
	if p.PauseBetween.Duration > 0 {
		fmt.Fprintf(w, ", a pause of %s", duration.HumanDuration(p.PauseBetween.Duration))
	}
	fmt.Fprintln(w, ".")
}

// waiting tells whether it is about pods that somebody wants gone.
func (p RolloutPlan) waiting() bool {
	kind, _, _ := jobs.Parse(p.Job)
	return kind == jobs.RestartWaiting
}

func (p RolloutPlan) leaving() string {
	if p.waiting() {
		return "Goes for good"
	}
	return "Left the spec"
}

func (p RolloutPlan) nothing() string {
	if p.waiting() {
		return "Nothing is to be done: nobody wants a pod gone that could be let go."
	}
	return "Nothing is to be done: every OSD is as its template says."
}

func (p RolloutPlan) why(s rollout.Step) string {
	why := s.Why
	if s.Canary && p.CanarySoak.Duration > 0 {
		why += "; it has to serve for " + duration.HumanDuration(p.CanarySoak.Duration)
	}
	if s.Canary && p.Approval {
		why += fmt.Sprintf("; then `lockkeeper %s %s` is waited for", jobs.SignalApprove, p.Job)
	}
	return why
}

var doing = map[rollout.Do]string{rollout.DoCreate: "create", rollout.DoReplace: "replace", rollout.DoAwait: "wait for"}
