package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func (f *osdSet) status() v1alpha1.CephOSDStatus {
	f.t.Helper()
	cr := &v1alpha1.CephOSD{}
	require.NoError(f.t, server.Get(f.t.Context(), client.ObjectKey{Namespace: f.ns, Name: f.ref.Name}, cr))
	return cr.Status
}

// events are those of the CephOSD.
func (f *osdSet) events() []corev1.Event {
	f.t.Helper()
	var list corev1.EventList
	require.NoError(f.t, server.List(f.t.Context(), &list, client.InNamespace(f.ns),
		client.MatchingFields{"involvedObject.name": f.ref.Name}))
	for _, e := range list.Items {
		assert.Equal(f.t, v1alpha1.Kind, e.InvolvedObject.Kind)
		assert.Equal(f.t, f.set().UID, e.InvolvedObject.UID, "kubectl describe finds events by it")
	}
	return list.Items
}

func (f *osdSet) reports(r activities.OSDSetReport) {
	f.t.Helper()
	r.OSDSet, r.WorkflowID, r.Generation, r.Template = f.ref, "update-osds/"+f.ns+"/osds", f.set().Generation, f.set().Hash
	require.NoError(f.t, f.Report(f.t.Context(), r))
}

// condition is the status of a condition, as of the present spec.
func (f *osdSet) condition(kind string) metav1.ConditionStatus {
	f.t.Helper()
	c := meta.FindStatusCondition(f.status().Conditions, kind)
	require.NotNil(f.t, c, kind)
	assert.Equal(f.t, f.set().Generation, c.ObservedGeneration, kind)
	return c.Status
}

func counts(c rollout.Counts) activities.OSDSetCounts { return activities.OSDSetCounts{Counts: c} }

// A rollout as its CephOSD tells it: at work, halted, and done.
func TestReport(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "report", oneOSD, "a")
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at2 := at.Add(time.Minute)
	working := activities.OSDSetReport{
		Phase: "AwaitingOSDs", Message: "osd.3 to serve", Since: at, Counted: true,
		Counts: activities.OSDSetCounts{
			Counts: rollout.Counts{Total: 6, UpToDate: 2, OutOfDate: 3, Unready: 1}, Invalid: 1,
			Terminating: 2, Superfluous: 3,
		},
		Batch: &activities.OSDSetBatch{
			Domain: storage.FailureDomain{Type: "zone", Name: "x"}, OSDs: []string{"a:/dev/sdb"},
			Since: at,
		},
		Foreign: []string{"other: it is theirs"},
	}
	f.reports(working)
	s := f.status()
	assert.Equal(t, f.set().Generation, s.ObservedGeneration)
	assert.Equal(t, f.set().Hash, s.TemplateHash)
	assert.Equal(t, "update-osds/report/osds", s.Workflow)
	assert.Equal(t, "2/6", s.Progress)
	assert.Contains(t, s.Message, "osd.3 to serve")
	assert.Equal(t, v1alpha1.OSDCounts{
		Total: 6, UpToDate: 2, OutOfDate: 3, Unready: 1, NotReady: 1, Invalid: 1,
		Terminating: 2, Superfluous: 3,
	}, s.OSDs)
	require.NotNil(t, s.Batch)
	assert.Equal(t, []string{"a:/dev/sdb"}, s.Batch.OSDs)
	assert.Equal(t, "zone x", s.Batch.FailureDomain)
	assert.Equal(t, working.Foreign, s.Foreign)
	assert.Equal(t, metav1.ConditionTrue, f.condition(v1alpha1.ConditionValid))
	assert.Equal(t, metav1.ConditionTrue, f.condition(v1alpha1.ConditionProgressing))
	assert.Equal(t, metav1.ConditionFalse, f.condition(v1alpha1.ConditionUpToDate))
	assert.Equal(t, metav1.ConditionFalse, f.condition(v1alpha1.ConditionHalted))

	halted := working
	halted.Since, halted.Halted = at2, &activities.Halt{Reason: "osd.3 took longer than 10m to serve", Since: at2}
	f.reports(halted)
	s = f.status()
	assert.Equal(t, "Halted", s.Reason)
	assert.Contains(t, s.Message, "osd.3 took longer than 10m to serve")
	require.NotNil(t, s.Halted)
	assert.True(t, s.Halted.Since.Time.Equal(at2))
	assert.Equal(t, metav1.ConditionTrue, f.condition(v1alpha1.ConditionHalted))
	assert.Equal(t, metav1.ConditionFalse, f.condition(v1alpha1.ConditionProgressing))
	warned := 0
	for _, e := range f.events() {
		if e.Type == corev1.EventTypeWarning {
			warned++
			assert.Contains(t, e.Message, "osd.3 took longer")
		}
	}
	assert.Equal(t, 1, warned)

	f.reports(activities.OSDSetReport{
		Phase: "Done", Since: at2.Add(time.Minute), Counted: true,
		Counts: counts(rollout.Counts{Total: 6, UpToDate: 6}),
	})
	s = f.status()
	assert.Equal(t, "6/6", s.Progress)
	assert.Nil(t, s.Batch)
	assert.Nil(t, s.Halted)
	assert.Empty(t, s.Foreign)
	assert.Equal(t, metav1.ConditionTrue, f.condition(v1alpha1.ConditionUpToDate))
	assert.Equal(t, metav1.ConditionFalse, f.condition(v1alpha1.ConditionHalted))
}

// Every field that makes no sense is named by an event, once, however often the report is made.
func TestReportOfRefusals(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "refusals", oneOSD, "a")
	r := activities.OSDSetReport{Phase: "Refused", Since: time.Now(), Refused: []input.Error{
		{Field: "spec.storage[0].osds[1].db", Value: "/dev/sdb", Allowed: "must have one use on a host"},
		{Field: "spec.policy", Value: "nobody", Allowed: "must be a MaintenancePolicy"},
	}}
	f.reports(r)
	s := f.status()
	assert.Equal(t, "Refused", s.Reason)
	assert.Equal(t, []v1alpha1.Refusal{
		{Field: "spec.storage[0].osds[1].db", Value: "/dev/sdb", Message: "must have one use on a host"},
		{Field: "spec.policy", Value: "nobody", Message: "must be a MaintenancePolicy"},
	}, s.Refused)
	assert.Equal(t, metav1.ConditionFalse, f.condition(v1alpha1.ConditionValid))
	for _, e := range r.Refused {
		assert.Equal(t, 1, f.eventsAbout(e.Field, corev1.EventTypeWarning), e.Field)
	}
	before := len(f.events())
	f.reports(r)
	f.reports(r)
	assert.Len(t, f.events(), before, "nothing new has happened")

	r.Refused = r.Refused[:1]
	f.reports(r)
	assert.Len(t, f.status().Refused, 1)
	assert.Equal(t, 1, f.eventsAbout("spec.storage[0].osds[1].db", corev1.EventTypeWarning), "it was said already")
}

// eventsAbout is how many events of a type say a word; repeated ones count as often as they were.
func (f *osdSet) eventsAbout(word, kind string) (n int) {
	f.t.Helper()
	for _, e := range f.events() {
		if e.Type == kind && strings.Contains(e.Message, word) {
			n += int(max(e.Count, 1))
		}
	}
	return n
}

// What is wrong with a part of the OSDs is in the status and told, and it keeps the others from nothing: they go on.
func TestReportOfWarnings(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "warnings", oneOSD, "a")
	r := activities.OSDSetReport{
		Phase: "AwaitingOSDs", Since: time.Now(), Counted: true,
		Counts: counts(rollout.Counts{Total: 2, UpToDate: 1, Unready: 1}),
		Warned: []input.Error{{Field: "spec.storage[0].hosts[1]", Value: "nobody", Allowed: "must be a node"}},
	}
	f.reports(r)
	assert.Equal(t, metav1.ConditionFalse, f.condition(v1alpha1.ConditionValid))
	assert.Equal(t, metav1.ConditionTrue, f.condition(v1alpha1.ConditionProgressing))
	assert.Equal(t, []v1alpha1.Refusal{{Field: "spec.storage[0].hosts[1]", Value: "nobody", Message: "must be a node"}},
		f.status().Refused)
	assert.Equal(t, 1, f.eventsAbout("spec.storage[0].hosts[1]", corev1.EventTypeWarning))
	f.reports(r)
	assert.Equal(t, 1, f.eventsAbout("spec.storage[0].hosts[1]", corev1.EventTypeWarning))
}

// What is not known must not look like nothing: the counts of the last look stay.
func TestReportWithoutCounts(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "uncounted", oneOSD, "a")
	f.reports(activities.OSDSetReport{
		Phase: "AwaitingOSDs", Since: time.Now(), Counted: true,
		Counts: counts(rollout.Counts{Total: 6, UpToDate: 2, OutOfDate: 4}),
	})
	f.reports(activities.OSDSetReport{
		Phase: "AwaitingStorage", Message: "no mon answers", Holds: activities.HoldStorage,
		Since: time.Now(),
	})
	s := f.status()
	assert.Equal(t, v1alpha1.OSDCounts{Total: 6, UpToDate: 2, OutOfDate: 4}, s.OSDs)
	assert.Equal(t, "2/6", s.Progress)
	assert.Contains(t, s.Message, "no mon answers")
	assert.Equal(t, metav1.ConditionUnknown, f.condition(v1alpha1.ConditionUpToDate))
	assert.Equal(t, metav1.ConditionFalse, f.condition(v1alpha1.ConditionProgressing), "it is held back")
}

// A CephOSD that is gone has no status, and that is no error.
func TestReportOfWhatIsGone(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "reported-gone", oneOSD, "a")
	f.ref.Name = "nobody"
	require.NoError(t, f.Report(t.Context(), activities.OSDSetReport{OSDSet: f.ref, Since: time.Now()}))
}
