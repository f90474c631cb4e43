package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// writeRollouts has one line for each.
func (s Status) writeRollouts(w io.Writer) {
	var rows [][]string
	for _, r := range s.Rollouts {
		rows = append(rows, []string{r.WorkflowID, r.Progress(), r.Phase(), when(r.waitsSince(), s.At), r.Batch(), r.WaitsFor()})
	}
	table(w, []string{"ROLLOUT", "UPDATED", "PHASE", "SINCE", "BATCH", "WAITS FOR"}, rows)
}

// writeRollout tells all there is to know of the one that was asked for.
func (s Status) writeRollout(w io.Writer) {
	r := s.Rollouts[0]
	fmt.Fprintln(w, r.Describe(s.At))
	if r.State != Running || r.Status == nil {
		return
	}
	st := r.Status
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	if st.Counts.Total > 0 {
		row("OSDs", "%s", describeCounts(st.Counts.Counts))
	}
	row("Replaced", "%s in %s", osds(st.Result.Replaced), batches(st.Result.Batches))
	if b := st.Batch; b != nil {
		row("Batch", "%s, since %s", r.Batch(), when(b.Since, s.At))
	}
	if h := st.Halted; h != nil {
		row("Halted", "since %s: %s", when(h.Since, s.At), h.Reason)
		row("", "nothing further goes down; it goes on by itself when that is mended, the template is another one, or the OSD is excused:")
		row("", "lockkeeper skip %s OSD", r.WorkflowID)
	}
	if c := st.Canary; c.OSD != "" {
		row("Canary", "%s", describeCanary(r))
	}
	if len(st.Skip) > 0 {
		row("Skipped", "%s", some(st.Skip, mostNames))
	}
	for _, e := range st.Refused {
		row("Refused", "%s", e.Error())
	}
	if !st.NextTimer.IsZero() {
		row("Next timer", "%s %s", when(st.NextTimer, s.At), st.NextTimerDoes)
	}
	_ = tw.Flush()
}

func describeCanary(r Rollout) string {
	c := r.Status.Canary
	switch {
	case c.Judged:
		return c.OSD + ", is fine"
	case c.Whole.IsZero():
		return c.OSD + ", does not serve yet"
	case c.Approved:
		return c.OSD + ", approved"
	default:
		return fmt.Sprintf("%s, serves since %s; `lockkeeper approve %s` if its approval is asked for", c.OSD, clock(c.Whole), r.WorkflowID)
	}
}

// describeCounts names only the states in which there are OSDs.
func describeCounts(c rollout.Counts) string {
	if c.Total == 0 {
		return "none"
	}
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{
		{c.UpToDate, "up to date"},
		{c.OutOfDate, "out of date"},
		{c.Ready, "ready"},
		{c.Unready, "not ready yet"},
		{c.Missing, "without a pod"},
		{c.Skipped, "skipped"},
		{c.Down, "down though up to date"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return fmt.Sprintf("%d: %s", c.Total, strings.Join(parts, ", "))
}
