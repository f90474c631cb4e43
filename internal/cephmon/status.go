package cephmon

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

// This file writes the status of a CephMon. Names that were given, timers and the step under way are in it before what
// they describe is done: a job that was terminated leaves them to the next one.

// Reasons of a CephMon's state.
const (
	reasonSettled   = "Settled"   // nothing is left to do
	reasonDifferent = "Different" // mons are not as the spec says, or superfluous, and nobody asked to move them
	reasonWorking   = "Working"   // a step is under way
	reasonWaiting   = "Waiting"
	reasonRefused   = "Refused"  // a person has to change something
	reasonUnproved  = "NoQuorum" // no commit was answered: nobody knows which mons live
)

// report writes the status unless it says the same already.
func (m *Mons) report(ctx context.Context, w *world, seen *monplan.Seen, s activities.MonSurvey) error {
	before := w.cephMon.Status
	after := w.status(seen, s)
	now := metav1.Now()
	after.Since, after.AsOf = before.Since, before.AsOf
	if after.Reason != before.Reason || after.Since == nil {
		after.Since = &now
	}
	if after.Step != nil {
		after.Step.Since = &now
		if before.Step != nil && before.Step.Kind == after.Step.Kind && before.Step.Mon == after.Step.Mon {
			after.Step.Since = before.Step.Since
		}
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	after.AsOf = &now
	c := w.cephMon.DeepCopy()
	c.Status = after
	err := m.api.Status().Update(ctx, c)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (w *world) status(seen *monplan.Seen, s activities.MonSurvey) v1alpha1.CephMonStatus {
	out := *w.cephMon.Status.DeepCopy()
	out.ObservedGeneration, out.Warnings = w.cephMon.Generation, s.Warnings
	out.Reason, out.Message = w.state(seen, s)
	out.Step = w.step(s)
	if seen == nil {
		return out
	}
	out.MaxMonID = maxID(out.MaxMonID, *seen, s)
	if seen.Unproved != "" {
		return out // what was seen last is the best that is known
	}
	out.Quorum = fmt.Sprintf("%d/%d", s.Counts.InQuorum, s.Counts.Mons)
	out.AsSpec = fmt.Sprintf("%d/%d", s.Counts.AsSpec, s.Counts.Wanted)
	out.Mons = w.monStatuses(*seen)
	out.EmptyZones = nil
	for _, zone := range seen.Want.Zones {
		if !slices.ContainsFunc(seen.Mons, func(m monplan.Mon) bool { return m.MadeFor == zone || m.Zone == zone }) {
			out.EmptyZones = append(out.EmptyZones, zone)
		}
	}
	out.FatalZones = seen.FatalZones()
	out.Left = w.left(out.Left, *seen, s)
	out.LeftAddresses = leftAddresses(*seen)
	return out
}

func (w *world) state(seen *monplan.Seen, s activities.MonSurvey) (reason, message string) {
	switch {
	case len(s.Refused) > 0:
		return reasonRefused, s.Refused[0].Error()
	case seen != nil && seen.Unproved != "":
		return reasonUnproved, s.Step.Why + "; " + w.bringBack()
	}
	switch s.Step.Verdict {
	case monplan.Done:
		if s.Step.Why != "" {
			return reasonDifferent, s.Step.Why
		}
		return reasonSettled, ""
	case monplan.Refuse:
		return reasonRefused, s.Step.Why
	case monplan.Wait:
		return reasonWaiting, s.Step.Why
	default:
		return reasonWorking, joined(w.why(s), s.Step.Risk)
	}
}

// joined has what is not empty in one line.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// bringBack is what a person must do while no commit is answered: nobody can say who lives then, and only Kubernetes
// still tells which mons have no pod that runs.
func (w *world) bringBack() string {
	mons := w.endpointNames()
	var down []string
	for _, mon := range mons {
		if p := w.pod(w.isMon(mon)); p == nil || !running(p) {
			down = append(down, "mon."+mon)
		}
	}
	text := fmt.Sprintf("%d of the %d mons have to answer, and until then no mon is changed", quorum.Majority(len(mons)),
		len(mons))
	if len(down) > 0 {
		text += fmt.Sprintf(": no pod runs of %s", strings.Join(down, ", "))
	}
	return text + ". Bring them back; if their stores are lost, rebuild the quorum from a survivor's store by Ceph's " +
		"documentation"
}

// why is why a step is done, and while it waits for a node, why Kubernetes has none. The job does not hear of the
// latter: the scheduler's words change, and each change would be one more look in its history.
func (w *world) why(s activities.MonSurvey) string {
	if len(s.Step.Acts) == 0 || s.Step.Work == nil {
		return s.Step.Why
	}
	if do := s.Step.Acts[0].Do; do != monplan.Schedule && do != monplan.ClaimVolume {
		return s.Step.Why
	}
	return joined(s.Step.Why, w.pending(s.Step.Work.Newcomer))
}

// pending is why the canary of a newcomer does not run, in Kubernetes' own words; "": it runs, or nothing is known.
// While a volume is made the scheduler says nothing, or what it said before.
func (w *world) pending(newcomer string) string {
	pod := w.pod(isCanary(newcomer))
	if pod == nil || running(pod) {
		return ""
	}
	claim := w.claim(monspec.ResourceName(newcomer))
	switch {
	case claim == nil && slices.ContainsFunc(pod.Spec.Volumes, isClaim):
		return "" // both begin anew
	case claim != nil && claim.Status.Phase != corev1.ClaimBound && claim.Annotations[volume.AnnSelectedNode] != "":
		class, node := ptr.Deref(claim.Spec.StorageClassName, ""), claim.Annotations[volume.AnnSelectedNode]
		return fmt.Sprintf("claim %s of class %s waits for its volume on %s; what its storage says is in `kubectl -n %s "+
			"describe pvc %s`", claim.Name, class, node, claim.Namespace, claim.Name)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "no node for its canary: " + strings.TrimRight(c.Message, ".")
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if wait := c.State.Waiting; wait != nil && wait.Message != "" {
			return fmt.Sprintf("its canary does not start: %s: %s", wait.Reason, wait.Message)
		}
	}
	return ""
}

func isClaim(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }

func (w *world) step(s activities.MonSurvey) *v1alpha1.MonStep {
	work := s.Step.Work
	if work == nil {
		return nil
	}
	out := &v1alpha1.MonStep{
		Kind: string(work.Kind), Mon: work.Newcomer, Replaces: work.Old, Generation: work.Generation, Joined: work.Joined,
		Undo: work.Undo, Message: w.why(s),
	}
	if work.Newcomer == "" {
		out.Mon, out.Replaces = work.Old, ""
	}
	if len(s.Step.Acts) > 0 {
		out.Phase = string(s.Step.Acts[0].Do)
	}
	if !work.Started.IsZero() {
		out.Started = stamp(work.Started)
	}
	return out
}

// stamp is a time as the API server keeps it, so that what was written and what would be can be compared.
func stamp(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.Truncate(time.Second).Local()}
}

// maxID counts the name of a step that is about to begin as given: it is written down before anything has it.
func maxID(before *int32, seen monplan.Seen, s activities.MonSurvey) *int32 {
	last := int32(seen.NextID - 1)
	if s.Step.Work != nil {
		if id, named := monplan.NumberOf(s.Step.Work.Newcomer); named {
			last = max(last, int32(id))
		}
	}
	if before != nil {
		last = max(last, *before)
	}
	if last < 0 {
		return nil
	}
	return &last
}

func (w *world) monStatuses(seen monplan.Seen) (out []v1alpha1.MonStatus) {
	different := differences(seen)
	for _, mon := range seen.Mons {
		m := v1alpha1.MonStatus{
			Name: mon.Name, Node: w.lastNode(mon.Name), Zone: mon.Zone, Storage: w.storageText(mon),
			Address: w.addresses[mon.Name], InQuorum: mon.Alive,
			AsSpec: different[mon.Name] == "", Different: different[mon.Name],
		}
		if !mon.OutSince.IsZero() {
			m.OutSince = stamp(mon.OutSince)
		}
		d := w.deployment(w.isMon(mon.Name))
		if d != nil && d.Annotations[monspec.ZoneAnnotation] == "" && mon.MadeFor != "" {
			m.Home = w.set.Label() + "=" + mon.MadeFor
		}
		if d != nil && d.Spec.Template.Annotations[monspec.TemplateAnnotation] == "" {
			m.Adopted = mon.Template
		}
		out = append(out, m)
	}
	return out
}

// left is the storage of mons that have gone: claims that no mon has, and paths of which this was noted when their mon
// left.
func (w *world) left(
	before []v1alpha1.MonStorageLeft, seen monplan.Seen, s activities.MonSurvey,
) (out []v1alpha1.MonStorageLeft) {
	coming := func(l v1alpha1.MonStorageLeft) bool {
		work := s.Step.Work
		if work != nil && work.Undo != "" && l.Path != "" {
			return false // it is taken back; its claim is deleted with it, and what is on its node stays
		}
		return work != nil && work.Newcomer == l.Mon
	}
	gone := func(l v1alpha1.MonStorageLeft) bool {
		return !coming(l) && !slices.ContainsFunc(seen.Mons, func(m monplan.Mon) bool { return m.Name == l.Mon })
	}
	// One without a Deployment has added itself to the monmap as it ended. It leaves again, and then nothing tells where
	// its store is.
	ends := func(l v1alpha1.MonStorageLeft) bool {
		return !coming(l) && l.Path != "" && w.deployment(w.isMon(l.Mon)) == nil
	}
	for _, l := range before {
		if (gone(l) || ends(l)) && (l.Claim == "" || w.claim(l.Claim) != nil) {
			out = append(out, l)
		}
	}
	add := func(l v1alpha1.MonStorageLeft) {
		known := slices.ContainsFunc(out, func(o v1alpha1.MonStorageLeft) bool {
			return o.Mon == l.Mon && o.Claim == l.Claim && o.Path == l.Path
		})
		if !known && gone(l) && (l.Claim != "" || l.Path != "") {
			l.Since = stamp(seen.Now)
			out = append(out, l)
		}
	}
	for i := range w.deployments {
		d := &w.deployments[i]
		if mon := d.Spec.Template.Labels[kube.MonLabel]; w.isMon(mon)(d.Spec.Template.Labels) {
			l := w.storeOf(mon)
			if l.Claim == "" {
				l.Node = w.lastNode(mon)
			}
			add(l)
		}
	}
	for i := range w.claims {
		if c := &w.claims[i]; c.Labels[monspec.CephMonLabel] == w.set.Name && c.DeletionTimestamp == nil {
			add(v1alpha1.MonStorageLeft{Mon: c.Labels[kube.MonLabel], Claim: c.Name})
		}
	}
	return out
}
