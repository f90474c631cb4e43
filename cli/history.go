package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// History is what was decided in a job, on which facts, and when. Its field names are stable: scripts rely on them.
type History struct {
	Job     string    `json:"job"`
	RunID   string    `json:"runID,omitempty"` // of a job
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // zero: it runs
	// Earlier are the runs of the same job before this one, newest first.
	Earlier []RunInfo       `json:"earlier,omitempty"`
	Entries []history.Entry `json:"entries"`
	// KeeperUnknown says why nothing of the keeper is told.
	KeeperUnknown string `json:"keeperUnknown,omitempty"`
}

// RunInfo is one run of a workflow.
type RunInfo struct {
	RunID   string    `json:"runID"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // zero: it runs
}

// within tells whether the run has a moment between two others.
func (r RunInfo) within(from, to time.Time) bool {
	return !r.Started.After(to) && (r.Ended.IsZero() || !r.Ended.Before(from))
}

// HistoryOptions say what of a history is wanted.
type HistoryOptions struct {
	RunID string        // of a job; "": the last one
	Since time.Duration // of a keeper; 0: as far back as Temporal remembers
}

// History reads the record of a job, named as people name them (jobID), with what its keeper did meanwhile, or that of
// "keeper/NAMESPACE/POLICY". It asks Temporal only.
func (c *Command) History(ctx context.Context, job string, o HistoryOptions) (History, error) {
	id, err := jobID(job)
	if err != nil {
		return History{}, &ExitError{ExitUsage, err}
	}
	runs, err := c.Temporal.Runs(ctx, id)
	if err != nil && !errors.Is(err, ErrNoJob) {
		return History{}, err
	}
	if len(runs) == 0 {
		return History{}, fmt.Errorf("%s: %w is recorded; Temporal forgets what has ended after its retention period", id,
			ErrNoJob)
	}
	if !strings.HasPrefix(id, jobs.Keeper.Prefix) {
		return c.jobHistory(ctx, id, runs, o.RunID)
	}
	h := History{Job: id, Started: runs[len(runs)-1].Started, Ended: runs[0].Ended}
	if o.Since > 0 && h.Started.Before(c.Now().Add(-o.Since)) {
		h.Started = c.Now().Add(-o.Since)
	}
	h.Entries, err = c.entries(ctx, id, runs, h.Started, c.Now())
	return h, err
}

func (c *Command) jobHistory(ctx context.Context, id string, runs []RunInfo, runID string) (History, error) {
	at := 0
	if runID != "" {
		if at = slices.IndexFunc(runs, func(r RunInfo) bool { return r.RunID == runID }); at < 0 {
			return History{}, wrong("--run", runID, "no such run of "+id+"; leave it out for the last one")
		}
	}
	run := runs[at]
	h := History{Job: id, RunID: run.RunID, Started: run.Started, Ended: run.Ended, Earlier: runs[at+1:]}
	record, err := c.Temporal.Record(ctx, id, run.RunID)
	if err != nil {
		return History{}, err
	}
	h.Entries = history.Read(record)
	for _, cluster := range history.Clusters(record) {
		keeper, err := c.keeperEntries(ctx, cluster, h)
		if err != nil {
			h.KeeperUnknown = err.Error()
			return h, nil //nolint:nilerr // the job's own record is an answer, too
		}
		h.Entries = history.Merge(h.Entries, keeper)
	}
	return h, nil
}

// keeperEntries are what the keeper did while a job ran.
func (c *Command) keeperEntries(ctx context.Context, cluster storage.ClusterKey, h History) ([]history.Entry, error) {
	id := workflows.KeeperID(cluster)
	runs, err := c.Temporal.Runs(ctx, id)
	if err != nil && !errors.Is(err, ErrNoJob) {
		return nil, err
	}
	to := h.Ended
	if to.IsZero() {
		to = c.Now()
	}
	return c.entries(ctx, id, runs, h.Started, to)
}

// entries reads those of the runs that have something between two moments: a keeper goes on in one run after the other.
func (c *Command) entries(ctx context.Context, id string, runs []RunInfo, from, to time.Time) ([]history.Entry, error) {
	out := []history.Entry{}
	for _, run := range slices.Backward(runs) {
		if !run.within(from, to) {
			continue
		}
		record, err := c.Temporal.Record(ctx, id, run.RunID)
		if err != nil {
			return nil, err
		}
		for _, e := range history.Read(record) {
			if !e.At.Before(from) && !e.At.After(to) {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// Write puts a history into words: one line for each decision, its facts under it.
func (h History) Write(w io.Writer) {
	end := "it runs"
	if !h.Ended.IsZero() {
		end = "took " + h.Ended.Sub(h.Started).Round(time.Millisecond).String()
	}
	fmt.Fprintf(w, "%s, from %s: %s\n", h.Job, h.Started.Local().Format("2006-01-02 15:04:05"), end)
	fmt.Fprintln(w)
	if len(h.Entries) == 0 {
		fmt.Fprintln(w, "Nothing was decided in that time.")
	}
	day := h.Started.Local().YearDay()
	for _, e := range h.Entries {
		at := e.At.Local()
		if at.YearDay() != day {
			day = at.YearDay()
			fmt.Fprintf(w, "\n%s\n", at.Format("2006-01-02"))
		}
		who, _, _ := strings.Cut(e.Workflow, "/")
		who, _, _ = strings.Cut(who, "-") // update-osds
		fmt.Fprintf(w, "%s %10s  %-6s  %s\n", at.Format("15:04:05.000"), elapsed(e.At.Sub(h.Started)), who, e.What)
		for _, f := range e.Facts {
			fmt.Fprintf(w, "%35s%s\n", "", f)
		}
	}
	if h.KeeperUnknown != "" {
		fmt.Fprintf(w, "\nWhat the keeper did is not known: %s\n", h.KeeperUnknown)
	}
	for i, r := range h.Earlier {
		if i == 0 {
			fmt.Fprintln(w, "\nBefore that:")
		}
		if i == mostEarlier {
			fmt.Fprintf(w, "  and %d more\n", len(h.Earlier)-i)
			break
		}
		fmt.Fprintf(w, "  %s  --run %s\n", r.Started.Local().Format("2006-01-02 15:04:05"), r.RunID)
	}
}

// mostEarlier is how many earlier runs are named.
const mostEarlier = 5

func elapsed(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("+%.3fs", d.Seconds())
	}
	return "+" + d.Round(time.Second).String()
}
