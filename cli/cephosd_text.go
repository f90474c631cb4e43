package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// writeCephOSD tells what a CephOSD's status says, where its rollout does not say it better itself.
func (s Status) writeCephOSD(w io.Writer) {
	o := s.CephOSD
	if o == nil || len(s.Rollouts) > 0 && s.Rollouts[0].Status != nil {
		return
	}
	if o.ObservedGeneration == 0 {
		fmt.Fprintf(w, "CephOSD %s/%s: no rollout has ever reported on it: do `lockkeeper watch` and lockkeeper-worker run?\n", o.Namespace, o.Name)
		return
	}
	fmt.Fprintf(w, "CephOSD %s/%s, as its rollout last reported\n", o.Namespace, o.Name)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	n := o.OSDs
	row("OSDs", "%s", describeCounts(rollout.Counts{
		Total: int(n.Total), UpToDate: int(n.UpToDate), OutOfDate: int(n.OutOfDate), Ready: int(n.Ready),
		Unready: int(n.Unready), Missing: int(n.Missing),
	}))
	row("State", "%s", join(o.Reason, o.Message))
	if o.Generation != o.ObservedGeneration {
		row("Behind", "its generation is %d, and that was reported of %d", o.Generation, o.ObservedGeneration)
	}
	if b := o.Batch; b != nil {
		row("Batch", "%s in %s, since %s", some(b.OSDs, mostNames), b.FailureDomain, when(b.Since.Time, s.At))
	}
	if h := o.Halted; h != nil {
		row("Halted", "since %s: %s", when(h.Since.Time, s.At), h.Reason)
	}
	for _, r := range o.Refused {
		row("Refused", "%s: %q: %s", r.Field, r.Value, r.Message)
	}
	_ = tw.Flush()
}
