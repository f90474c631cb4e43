package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Rollout is one rollout of a CephOSD, or one restart of OSDs: what Temporal knows of it, and what it says of itself.
type Rollout struct {
	Execution
	// Status is its own answer; nil with the reason in Silent when it gave none.
	Status *workflows.UpdateStatus `json:"status,omitempty"`
	// Result is how it ended, if it did so by itself.
	Result *RolloutResult `json:"result,omitempty"`
}

// Succeeded tells whether it ended as it should: every OSD is as its template says, or was skipped.
func (r Rollout) Succeeded() bool {
	return r.Result != nil && r.Result.Outcome == workflows.OutcomeDone
}

// Phase is what it does, or how it ended. Phases come again with every batch, so that they have no number.
func (r Rollout) Phase() string {
	switch {
	case r.State != Running && r.Result != nil:
		return r.Result.Outcome
	case r.State != Running:
		return r.State
	case r.Status == nil:
		return "unknown"
	}
	s := r.Status.Phase
	if r.Status.Halted != nil {
		s += ", halted"
	}
	if r.Status.Paused {
		s += ", paused"
	}
	return s
}

// Progress is how many of how many OSDs are as their template says: "3/12"; "" as long as it has not counted them.
func (r Rollout) Progress() string {
	switch {
	case r.State != Running && r.Result != nil:
		return fmt.Sprintf("%d replaced", r.Result.Replaced)
	case r.Status == nil || r.Status.Counts.Total == 0:
		return ""
	}
	return fmt.Sprintf("%d/%d", r.Status.Done, r.Status.Of)
}

// Batch is what is being replaced, "osd.0, osd.1 in zone zone-x"; "" when nothing is.
func (r Rollout) Batch() string {
	if r.State != Running || r.Status == nil || r.Status.Batch == nil {
		return ""
	}
	s := some(r.Status.Batch.OSDs, mostNames)
	if d := r.Status.Batch.Domain; !d.IsZero() {
		s += " in " + d.String()
	}
	return s
}

// WaitsFor says what keeps it from going on, with the OSDs that are not back; "" when nothing does.
func (r Rollout) WaitsFor() string {
	out := r.waitsFor()
	if away := r.NotBack(); len(away) > 0 {
		out = join(out, "not back: "+some(away, mostTroubles))
	}
	return out
}

// mostTroubles is how many OSDs with their troubles go into one line.
const mostTroubles = 3

// NotBack are the OSDs of the batch that do not serve yet, each with its reason, as the step that waits for them last
// said.
func (r Rollout) NotBack() (out []string) {
	if r.State != Running || r.Step == nil || r.Step.Arrival == nil {
		return nil
	}
	for _, w := range r.Step.Arrival.Waiting {
		out = append(out, fmt.Sprintf("%s (%s)", w.Key, cmp.Or(w.Why, "nobody knows why")))
	}
	return out
}

// stands tells whether it goes no further before somebody mends something. While it works it may be on the way out of a
// halt.
func (r Rollout) stands() bool {
	s := r.Status
	switch {
	case r.State != Running || s == nil:
		return false
	case s.Phase == workflows.PhaseSurvey || s.Phase == workflows.PhaseLease || s.Phase == workflows.PhaseReplace ||
		s.Phase == workflows.PhaseHeal:
		return false
	default:
		return s.Halted != nil || len(s.Refused) > 0
	}
}

// looksAs tells whether it has not looked at its OSDs again since another look at it.
func (r Rollout) looksAs(before Rollout) bool {
	return before.State == Running && before.RunID == r.RunID && before.Status != nil && before.stands() == r.stands() &&
		before.Status.Since.Equal(r.Status.Since)
}

// waysOut says what a person can do about a rollout that stands.
func (r Rollout) waysOut() []string {
	_, target, _ := jobs.Parse(r.WorkflowID)
	var ways []string
	halted := r.Status != nil && r.Status.Halted != nil
	unspared := halted && r.Status.Holds == activities.HoldStorage
	switch {
	case unspared:
		ways = append(ways, "- the storage cluster can spare them:  ceph osd ok-to-stop N, and ceph -s say what it lacks")
	case target.Name == "" || strings.HasPrefix(r.WorkflowID, jobs.RestartWaiting.Prefix):
	case halted:
		ways = append(ways, fmt.Sprintf(
			"- the template is mended; what is broken is replaced first:  kubectl -n %s edit cephosd %s",
			target.Namespace, target.Name))
	default:
		ways = append(ways, fmt.Sprintf("- the spec is mended:  kubectl -n %s edit cephosd %s",
			target.Namespace, target.Name))
	}
	if halted && !unspared {
		ways = append(ways, "- the cause is mended, so that they serve")
	}
	if halted {
		ways = append(ways, fmt.Sprintf("- somebody excuses one of them:  lockkeeper skip %s OSD", r.WorkflowID))
	}
	return append([]string{"nothing further goes down; it goes on by itself as soon as"}, ways...)
}

// awaitsApproval tells whether a person is asked to approve the canary.
func (r Rollout) awaitsApproval() bool {
	s := r.Status
	return r.State == Running && s != nil && s.Holds == activities.HoldApproval && !s.Canary.Approved
}

// asks names the approval that a person is asked for.
func (r Rollout) asks() string {
	switch {
	case !r.awaitsApproval():
		return ""
	case r.Status.OSDSet.Kind == activities.OSDSetWaiting:
		return "waits for " + r.waitsFor() // which has the command
	}
	return fmt.Sprintf("waits for %s: %s", r.waitsFor(), howToApprove(r.WorkflowID))
}

func (r Rollout) done() string { return "Done: " + r.described() }

func (r Rollout) follower() follower { return &rolloutFollower{} }

func howToApprove(id string) string {
	return fmt.Sprintf("if it is fine:  lockkeeper %s %s", jobs.SignalApprove, id)
}

// waitsFor says what keeps it from going on, in its own words.
func (r Rollout) waitsFor() string {
	var out string
	switch {
	case r.State != Running:
		return r.Failure
	case r.Status == nil:
		out = r.Silent
	case r.Status.Halted != nil:
		out = r.Status.Halted.Reason
	default:
		out = r.Status.WaitsFor
	}
	return join(out, r.triesAgain())
}

// waitsSince is since when it waits for what WaitsFor says.
func (r Rollout) waitsSince() time.Time {
	switch {
	case r.Status == nil:
		return r.Started
	case r.Status.Halted != nil:
		return r.Status.Halted.Since
	}
	return r.Status.Since
}

// heard tells whether it shows the effect of a signal. One that goes on in another run takes along what was said.
func (r Rollout) heard(_ Job, signal, osd string) bool {
	switch {
	case r.State != Running:
		return true
	case r.Status == nil:
		return false
	case signal == jobs.SignalApprove:
		return r.Status.Canary.Approved || r.Status.Canary.Judged || r.Status.Consent
	case signal == jobs.SignalSkip:
		return slices.Contains(r.Status.Skip, osd)
	default:
		return shows(r.Status.JobStatus, signal)
	}
}

// Describe is one sentence about a rollout.
func (r Rollout) Describe(now time.Time) string {
	if r.State != Running {
		s := fmt.Sprintf("%s ended %s: %s", r.WorkflowID, when(r.Ended, now), r.Phase())
		if r.Result != nil {
			s += ", " + r.described()
		}
		if r.Failure != "" {
			s += ": " + r.Failure
		}
		return s
	}
	parts := []string{fmt.Sprintf("%s runs since %s", r.WorkflowID, when(r.Started, now))}
	if r.Status == nil {
		return parts[0] + "; " + r.waitsFor()
	}
	parts = append(parts, "phase "+r.Phase())
	if p := r.Progress(); p != "" {
		parts = append(parts, p+" OSDs up to date")
	}
	if b := r.Batch(); b != "" {
		parts = append(parts, "replaces "+b)
	}
	s := strings.Join(parts, ", ")
	switch w := r.waitsFor(); {
	case w == "":
	case r.Status.Halted != nil:
		s += "; it halted " + when(r.Status.Halted.Since, now) + ": " + w
	default:
		s += ", waits for " + w
	}
	return s
}

// described is what a rollout that has ended did.
func (r Rollout) described() string {
	s := fmt.Sprintf("%s replaced in %s, after %s", osds(r.Result.Replaced), batches(r.Result.Batches),
		r.Result.Took.Round(time.Second))
	if n := len(r.Result.Skipped); n > 0 {
		s += ", skipped " + some(r.Result.Skipped, mostNames)
	}
	return s
}

// osds counts them: "1 OSD", "3 OSDs".
func osds(n int) string {
	if n == 1 {
		return "1 OSD"
	}
	return fmt.Sprintf("%d OSDs", n)
}

func batches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}
