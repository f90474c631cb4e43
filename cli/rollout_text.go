package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// writeRollouts has one line for each.
func (s Status) writeRollouts(w io.Writer) {
	var rows [][]string
	for _, r := range s.Rollouts {
		rows = append(rows, []string{
			r.WorkflowID, r.Progress(), r.Phase(), when(r.waitsSince(), s.At),
			r.Batch(), r.WaitsFor(),
		})
	}
	table(w, []string{"ROLLOUT", "UPDATED", "PHASE", "SINCE", "BATCH", "WAITS FOR"}, rows)
}

// writeRollout tells all there is to know of the one that was asked for.
func (s Status) writeRollout(w io.Writer) {
	if len(s.Rollouts) == 0 {
		fmt.Fprintf(w, "%s: %s\n", s.asked, s.unknown)
		return
	}
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
	if image := st.OSDSet.Image; image != "" {
		row("Image", "%s", image)
	}
	row("Replaced", "%s in %s", osds(st.Result.Replaced), batches(st.Result.Batches))
	if b := st.Batch; b != nil {
		row("Batch", "%s, since %s", r.Batch(), when(b.Since, s.At))
	}
	if h := st.Halted; h != nil {
		row("Halted", "since %s: %s", when(h.Since, s.At), h.Reason)
	}
	for i, away := range r.NotBack() {
		if i == mostNames {
			row("", "and %d more", len(r.NotBack())-i)
			break
		}
		row("Not back", "%s", away)
	}
	if c := st.Canary; c.OSD != "" {
		row("Canary", "%s", describeCanary(r))
	}
	if len(st.Skip) > 0 {
		row("Skipped", "%s", some(st.Skip, mostNames))
	}
	for _, e := range st.Warned {
		row("Note", "%s", e.Error())
	}
	for i, x := range st.Superfluous {
		if i == mostNames {
			row("", "and %d more", len(st.Superfluous)-i)
			break
		}
		row(leaves(st.OSDSet.Kind), "%s, which stays: %s", x.Key, x.Why)
	}
	for _, e := range st.Refused {
		row("Refused", "%s", e.Error())
	}
	if r.stands() {
		for i, way := range r.waysOut() {
			row([]string{"To do", ""}[min(i, 1)], "%s", way)
		}
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
		s := fmt.Sprintf("%s, serves since %s", c.OSD, clock(c.Whole))
		if c.Restarts > 0 {
			s += fmt.Sprintf(", after it restarted %d times while it was watched", c.Restarts)
		}
		if r.awaitsApproval() {
			s += "; " + howToApprove(r.WorkflowID)
		}
		return s
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

// leaves is what is said of those that are to go for good, and that somebody needs.
func leaves(kind activities.OSDSetKind) string {
	if kind == activities.OSDSetWaiting {
		return "Wanted gone"
	}
	return "Left the spec"
}
