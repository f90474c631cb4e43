package cephosd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
)

// Reasons, as they appear in status, conditions and events, beside those for which a rollout holds back
// (activities.Hold…).
const (
	reasonHalted   = "Halted"
	reasonRefused  = "Refused"
	reasonUpToDate = "UpToDate"
	reasonRolling  = "RollingOut"
	reasonStopped  = "Stopped" // it has ended before all was up to date: a person aborted it, say
	// Of conditions only.
	reasonHosts     = "HostsUnknown" // hosts are no nodes: the rest of the spec is fine
	reasonValid     = "Valid"
	reasonNotHalted = "NotHalted"
)

// Limits of lists in the status, as the CRD has them.
const (
	mostRefused = 64
	mostSkipped = 4096
)

// ours are the conditions of a CephOSD. The original operator left others, which nobody would ever change again.
var ours = []string{
	cephv1alpha1.ConditionValid, cephv1alpha1.ConditionUpToDate, cephv1alpha1.ConditionProgressing,
	cephv1alpha1.ConditionHalted,
}

// statusOf is the status that a report describes; cause is why it has halted, if it has.
func statusOf(r activities.OSDSetReport, cause suspect, had cephv1alpha1.CephOSDStatus) cephv1alpha1.CephOSDStatus {
	s := cephv1alpha1.CephOSDStatus{
		ObservedGeneration: r.Generation, TemplateHash: r.Template, Workflow: r.WorkflowID, Foreign: r.Foreign,
		Skipped: r.Skipped[:min(len(r.Skipped), mostSkipped)],
	}
	switch {
	case r.Counted:
		s.OSDs, s.Progress = countsOf(r.Counts), progress(r.Counts)
		for _, o := range r.Waiting[:min(len(r.Waiting), mostSuperfluous)] {
			s.Superfluous = append(s.Superfluous, cephv1alpha1.SuperfluousOSD{OSD: o.Key, Why: clip(o.Why)})
		}
	case had.TemplateHash == r.Template:
		// The best that is known. Of another template it would be untrue.
		s.OSDs, s.Progress, s.Superfluous = had.OSDs, had.Progress, had.Superfluous
	}
	for _, e := range slices.Concat(r.Refused, r.Warned) {
		s.Refused = append(s.Refused, cephv1alpha1.Refusal{Field: e.Field, Value: e.Value, Message: e.Allowed})
	}
	s.Refused = s.Refused[:min(len(s.Refused), mostRefused)]
	if b := r.Batch; b != nil {
		s.Batch = &cephv1alpha1.BatchStatus{
			FailureDomain: b.Domain.String(), OSDs: b.OSDs, Phase: r.Phase,
			Since: second(b.Since),
		}
	}
	if h := r.Halted; h != nil {
		s.Halted = &cephv1alpha1.HaltedStatus{Reason: join(h.Reason, cause.String()), Since: second(h.Since)}
	}
	s.Reason, s.Message = stateOf(r, s, cause)
	since := second(r.Since)
	if s.Since = had.Since; s.Reason != had.Reason || had.Since == nil {
		s.Since = &since
	}
	s.Conditions = conditionsOf(r, s, had.Conditions)
	return s
}

// stateOf is the one word for how it is, and the sentence. What keeps everything else from going on comes first.
func stateOf(r activities.OSDSetReport, s cephv1alpha1.CephOSDStatus, cause suspect) (reason, message string) {
	switch {
	case s.Halted != nil && r.Outcome != "":
		return reasonHalted, join(s.Halted.Reason, ended(r))
	case s.Halted != nil:
		return reasonHalted, join(s.Halted.Reason,
			"mend the template or the cause, and it goes on by itself; or excuse the OSD: "+cause.excuse(r.WorkflowID))
	case len(r.Refused) > 0:
		return reasonRefused, refusals(s.Refused)
	case r.Holds != "" && r.Outcome == "":
		return r.Holds, phrase(r)
	case settled(r):
		return reasonUpToDate, leftovers(r)
	case r.Outcome != "":
		return reasonStopped, ended(r)
	}
	return reasonRolling, phrase(r)
}

// settled tells whether the rollout has brought everything where it belongs, its last batch included.
func settled(r activities.OSDSetReport) bool {
	return r.Counted && r.Counts.Settled() && r.Batch == nil && len(r.Refused) == 0 && r.Halted == nil
}

// goesOn tells for which reasons a rollout goes on by itself. A lease does: it would be strange if every batch began
// with no progress, and whoever is in the queue has his turn. A storage cluster that does not answer may need a person.
func goesOn(reason string) bool {
	switch reason {
	case reasonRolling, activities.HoldLease, activities.HoldPause, activities.HoldSoak:
		return true
	}
	return false
}

func conditionsOf(
	r activities.OSDSetReport, s cephv1alpha1.CephOSDStatus, had []metav1.Condition,
) (out []metav1.Condition) {
	for _, c := range had {
		if slices.Contains(ours, c.Type) {
			out = append(out, c)
		}
	}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		if message == "" {
			message = s.Progress + " OSDs are up to date"
		}
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: r.Generation,
		})
	}
	switch {
	case len(r.Refused) > 0:
		set(cephv1alpha1.ConditionValid, metav1.ConditionFalse, reasonRefused, refusals(s.Refused))
	case len(r.Warned) > 0:
		set(cephv1alpha1.ConditionValid, metav1.ConditionFalse, reasonHosts,
			refusals(s.Refused)+"; all other OSDs are looked after")
	default:
		set(cephv1alpha1.ConditionValid, metav1.ConditionTrue, reasonValid, "the spec makes sense")
	}
	switch {
	case settled(r):
		set(cephv1alpha1.ConditionUpToDate, metav1.ConditionTrue, reasonUpToDate, "")
	case !r.Counted:
		set(cephv1alpha1.ConditionUpToDate, metav1.ConditionUnknown, s.Reason,
			join("which OSDs are up to date is not known now", s.Message))
	default:
		set(cephv1alpha1.ConditionUpToDate, metav1.ConditionFalse, s.Reason, "")
	}
	set(cephv1alpha1.ConditionProgressing, statusIf(goesOn(s.Reason)), s.Reason, s.Message)
	if s.Halted != nil {
		set(cephv1alpha1.ConditionHalted, metav1.ConditionTrue, reasonHalted, s.Message)
	} else {
		set(cephv1alpha1.ConditionHalted, metav1.ConditionFalse, reasonNotHalted, "no batch has failed")
	}
	return out
}

func statusIf(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func countsOf(n activities.OSDSetCounts) cephv1alpha1.OSDCounts {
	return cephv1alpha1.OSDCounts{
		Total: int32(n.Total), UpToDate: int32(n.UpToDate), OutOfDate: int32(n.OutOfDate), Ready: int32(n.Ready),
		Unready: int32(n.Unready), Missing: int32(n.Missing), Skipped: int32(n.Skipped), NotReady: int32(n.Down + n.Unready),
		Invalid: int32(n.Invalid), Terminating: int32(n.Terminating), Superfluous: int32(n.Superfluous),
	}
}

func progress(n activities.OSDSetCounts) string {
	done, of := n.Progress()
	return fmt.Sprintf("%d/%d", done, of)
}

// phrase says what a rollout does or waits for.
func phrase(r activities.OSDSetReport) string {
	if r.Message == "" {
		return r.Phase
	}
	return input.Clip("waits for "+r.Message, 500) // which may end with a command to copy
}

// ended says that nobody works on it any more, and how to begin anew.
func ended(r activities.OSDSetReport) string {
	return fmt.Sprintf("the rollout ended: %s. The next change begins it anew, and so does lockkeeper update-osds %s/%s",
		r.Outcome, r.OSDSet.Namespace, r.OSDSet.Name)
}

// refusals is the first, and how many there are.
func refusals(all []cephv1alpha1.Refusal) string {
	s := refusal(all[0])
	if more := len(all) - 1; more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

func refusal(e cephv1alpha1.Refusal) string {
	return fmt.Sprintf("%s: %q: %s", e.Field, e.Value, e.Message)
}

// leftovers are what is not as the spec says although all is done.
func leftovers(r activities.OSDSetReport) string {
	var all []string
	if r.Counts.Skipped > 0 {
		all = append(all, "skipped until the template changes: "+some(r.Skipped))
	}
	if len(r.Waiting) > 0 {
		all = append(all, fmt.Sprintf("%s is no longer in the spec, and stays: %s", r.Waiting[0].Key, r.Waiting[0].Why))
	}
	return clip(strings.Join(all, "; "))
}

// some are the first of them.
func some(names []string) string {
	const most = 4
	s := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// join puts two sentences together, if there are two.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// second is a time as the API server keeps it, so that what is the same looks the same.
func second(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }
