package api

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

const oneOSD = `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`

// Of two pods of an OSD the one that serves stays, whoever is older or has the better name.
func TestDuplicatesAreDiscarded(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "duplicates", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	idle := f.has(a)
	healthy := f.has(a, f.ofTheOriginal("x7f3q"))
	f.ready(idle, corev1.ConditionFalse)
	s := f.survey()
	assert.Equal(t, []string{idle.Name}, s.Discard)
	assert.Equal(t, 1, s.Counts.Invalid)
	assert.Equal(t, 1, s.Counts.UpToDate)

	require.NoError(t, f.Discard(t.Context(), f.ref, []string{idle.Name, healthy.Name, "nobody"}))
	assert.Equal(t, []string{healthy.Name}, f.names())
	f.same(healthy)
	assert.Contains(t, f.wire.said(http.MethodDelete)[0].body, string(idle.UID))
	require.NoError(t, f.Discard(t.Context(), f.ref, []string{idle.Name}), "done again it is no error")
}

// What was a duplicate when it was looked at may be all that serves by now.
func TestADuplicateThatServesByNowStays(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "turned", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	first := f.has(a)
	second := f.has(a, f.ofTheOriginal("x7f3q"))
	f.ready(second, corev1.ConditionFalse)
	require.Equal(t, []string{second.Name}, f.survey().Discard)
	f.ready(first, corev1.ConditionFalse)
	f.ready(second, corev1.ConditionTrue)
	require.NoError(t, f.Discard(t.Context(), f.ref, []string{second.Name}))
	f.same(first)
	f.same(second)
}

// Nobody discards what is not a CephOSD's, even when asked by name.
func TestForeignPodsStay(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "foreign", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	ours := f.has(a)
	bare := f.has(a, podNamed("bare"), notAnnotated(podspec.HashAnnotation, podspec.HostAnnotation, podspec.DataAnnotation,
		podspec.StateAnnotation, podspec.ReleasedAnnotation))
	yes := true
	controlled := f.has(a, podNamed("controlled"), func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "theirs", UID: "1",
			Controller: &yes,
		}}
	})
	s := f.survey()
	require.Len(t, s.Foreign, 2)
	assert.Contains(t, s.Foreign[0]+s.Foreign[1], "ReplicaSet theirs")
	all := []string{bare.Name, controlled.Name}
	require.NoError(t, f.Discard(t.Context(), f.ref, all))
	require.NoError(t, f.Remove(t.Context(), f.ref, all))
	require.NoError(t, f.Note(t.Context(), f.ref))
	for _, p := range []*corev1.Pod{bare, controlled} {
		f.same(p)
		for _, r := range f.wire.said(http.MethodPatch) {
			assert.NotContains(t, r.path, "/pods/"+p.Name)
		}
	}
	f.same(ours)
}

// A pod that lost an annotation still runs an OSD. It goes only like one that is out of date, that is with a lease, and
// nobody starts beside it.
func TestDamagedPodsAreNotDiscarded(t *testing.T) {
	for name, lost := range map[string][]string{
		"template": {podspec.HashAnnotation}, "host": {podspec.HostAnnotation}, "data": {podspec.DataAnnotation},
		"host-and-template": {podspec.HostAnnotation, podspec.HashAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOSDSet(t, "damaged-"+name, oneOSD, "a")
			a := f.osd("a", "/dev/sdb")
			pod := f.has(a, notAnnotated(lost...))
			s := f.survey()
			assert.Empty(t, s.Discard)
			assert.Empty(t, s.Removable)
			assert.NotEqual(t, rollout.DoCreate, s.Next.Do)
			assert.Equal(t, 1, s.Counts.Total, "it is one OSD, whatever it says")
			assert.Equal(t, keys(a), keysOf(s.Next.OSDs))
			require.NoError(t, f.Discard(t.Context(), f.ref, []string{pod.Name}))
			require.NoError(t, f.Remove(t.Context(), f.ref, []string{pod.Name}))
			f.creates(a)
			f.same(pod)
			assert.Len(t, f.names(), 1)
		})
	}
}

// The same for a pod whose name tells nobody which OSD it is: it may have any device of its host.
func TestNobodyStartsBesideADamagedPod(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "damaged-nameless", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	pod := f.has(a, f.ofTheOriginal("x7f3q"), notAnnotated(podspec.DataAnnotation))
	f.runs(pod)
	s := f.survey()
	assert.Empty(t, s.Discard)
	f.creates(a)
	assert.Equal(t, []string{pod.Name}, f.names())
	require.NoError(t, f.Discard(t.Context(), f.ref, []string{pod.Name}))
	f.same(pod)
}

// An OSD that left the spec keeps its pod until nobody needs its data.
func TestRemove(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "remove", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}, {data: /dev/sdc}]}]}`, "a")
	stays, leaves := f.osd("a", "/dev/sdb"), f.osd("a", "/dev/sdc")
	kept, pod := f.has(stays), f.has(leaves)
	f.ceph.needs(leaves, "3 PGs have their last copy on osd.1")
	f.write(`{"spec":{"storage":[{"hosts":["$a"],"osds":[{"data":"/dev/sdb"}]}]}}`)

	s := f.survey()
	assert.Empty(t, s.Removable)
	require.Len(t, s.Superfluous, 1)
	assert.Equal(t, leaves.Key(), s.Superfluous[0].Key)
	assert.Contains(t, s.Superfluous[0].Why, "3 PGs have their last copy on osd.1")
	assert.Contains(t, s.Superfluous[0].Why, "ceph osd out 1")
	assert.Equal(t, 1, s.Counts.Superfluous)
	require.NoError(t, f.Remove(t.Context(), f.ref, []string{pod.Name}))
	f.same(pod)

	f.ceph.needs(leaves, "")
	assert.Equal(t, []string{pod.Name}, f.survey().Removable)
	f.ceph.needs(leaves, "it came back")
	require.NoError(t, f.Remove(t.Context(), f.ref, []string{pod.Name}))
	f.same(pod) // Ceph is asked again, right before

	f.ceph.needs(leaves, "")
	require.NoError(t, f.Remove(t.Context(), f.ref, []string{pod.Name, kept.Name}))
	assert.Equal(t, []string{kept.Name}, f.names())
	f.same(kept)
}

// A person's word is enough, and Ceph is not asked.
func TestRemoveByAPersonsWord(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "forced", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}, {data: /dev/sdc}]}]}`, "a")
	leaves := f.osd("a", "/dev/sdc")
	f.has(f.osd("a", "/dev/sdb"))
	pod := f.has(leaves)
	f.ceph.needs(leaves, "somebody needs it")
	f.write(`{"spec":{"storage":[{"hosts":["$a"],"osds":[{"data":"/dev/sdb"}]}]}}`)
	f.annotate(pod, podspec.RemoveAnnotation, `"true"`)
	assert.Equal(t, []string{pod.Name}, f.survey().Removable)
	require.NoError(t, f.Remove(t.Context(), f.ref, []string{pod.Name}))
	assert.NotContains(t, f.names(), pod.Name)
	assert.Empty(t, f.ceph.asked)
}

// Which OSD a pod is has to be known before anybody can say that it may go.
func TestAnUnknownOSDIsNotRemoved(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "unknown", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}, {data: /dev/sdc}]}]}`, "a")
	leaves := f.osd("a", "/dev/sdc")
	f.has(f.osd("a", "/dev/sdb"))
	pod := f.set().Render(leaves, podspec.Knowledge{})
	create(t, pod)
	f.write(`{"spec":{"storage":[{"hosts":["$a"],"osds":[{"data":"/dev/sdb"}]}]}}`)
	s := f.survey()
	assert.Empty(t, s.Removable)
	require.Len(t, s.Superfluous, 1)
	assert.Contains(t, s.Superfluous[0].Why, podspec.RemoveAnnotation)
	require.NoError(t, f.Remove(t.Context(), f.ref, []string{pod.Name}))
	f.same(pod)
}

// A rehearsal asks the API server about the successors and leaves nothing, whether there is a pod of that name or not.
func TestRehearse(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "rehearse", `{storage: [{hosts: [$a, $b], osds: [{data: /dev/sdb}]}]}`, "a", "b")
	a, b := f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb")
	pod, original := f.has(a), f.has(b, f.ofTheOriginal("x7f3q"))
	f.image("ceph:17")
	before := f.pods()
	for _, o := range []podspec.OSD{a, b} {
		judged, err := f.Rehearse(t.Context(), f.batch(o))
		require.NoError(t, err)
		assert.Empty(t, judged)
	}
	f.write(`{"spec":{"podTemplate":{"spec":{"containers":[{"name":"osd","image":"ceph:17","ports":[{"containerPort":70000}]}]}}}}`)
	for _, o := range []podspec.OSD{a, b} {
		judged, err := f.Rehearse(t.Context(), f.batch(o))
		require.NoError(t, err)
		require.NotNil(t, judged.Refused)
		assert.Equal(t, "spec.podTemplate.spec.containers[0].ports[0].containerPort", judged.Refused.Field)
		assert.Contains(t, judged.Refused.Allowed, "between 1 and 65535")
	}
	assert.Equal(t, before, f.pods())
	f.same(pod)
	f.same(original)
	for _, r := range f.wire.said(http.MethodPost) {
		if !strings.Contains(r.body, podspec.VersionLabel) { // which has nothing of an OSD's
			assert.Contains(t, r.query, "dryRun=All")
		}
	}
}

// The original operator made every pod the CephOSD's own, so that deleting the CephOSD deletes all OSDs. There is no
// garbage collector here; what it goes by are the owner references.
func TestAdoptedPodsAreDisowned(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "disowned", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	pod := f.has(a, f.ofTheOriginal("x7f3q"))
	require.Len(t, f.pods()[pod.Name].OwnerReferences, 1)
	assert.Positive(t, f.survey().Unnoted)
	f.ceph.silent = "no mon answers"
	require.NoError(t, f.Note(t.Context(), f.ref))
	assert.Empty(t, f.pods()[pod.Name].OwnerReferences, "it cannot wait for Ceph: the CephOSD may be deleted any time")
	f.ceph.silent = ""
	require.NoError(t, f.Note(t.Context(), f.ref))
	f.same(pod)
	now := f.pods()[pod.Name]
	assert.Equal(t, "0", now.Labels[podspec.IDLabel])
	assert.Equal(t, f.set().Hash, now.Annotations[podspec.HashAnnotation], "all that it had it still has")
	assert.Zero(t, f.survey().Unnoted)
	wrote := len(f.wire.said(http.MethodPatch))
	require.NoError(t, f.Note(t.Context(), f.ref))
	assert.Len(t, f.wire.said(http.MethodPatch), wrote, "there is nothing to say twice")

	cr := cephOSD(t, "osds", "{}")
	cr.SetNamespace(f.ns)
	require.NoError(t, server.Delete(t.Context(), cr))
	f.same(pod)
}

// What is known of a pod is written on that pod, and not on another one that has its name by now.
func TestNoteSparesANamesake(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "noted", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a)
	fresh := f.set().Render(a, podspec.Knowledge{})
	var once sync.Once
	f.wire.hook(func(r request) {
		if r.method == http.MethodPatch {
			once.Do(func() {
				assert.NoError(t, server.Delete(t.Context(), old, client.GracePeriodSeconds(0)))
				assert.NoError(t, server.Create(t.Context(), fresh))
			})
		}
	})
	require.NoError(t, f.Note(t.Context(), f.ref))
	require.Len(t, f.wire.said(http.MethodPatch), 1)
	f.same(fresh)
	assert.Equal(t, fresh.ResourceVersion, f.pod(a).ResourceVersion)
}

// Whoever asks for deletion gets owner references, and whoever changes their mind loses them.
func TestOwnersFollowTheDeletionPolicy(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "owned", `{deletionPolicy: Delete, storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	f.creates(a)
	pod := f.pod(a)
	require.Len(t, pod.OwnerReferences, 1)
	assert.Equal(t, f.set().UID, pod.OwnerReferences[0].UID)
	assert.Equal(t, v1alpha1.Kind, pod.OwnerReferences[0].Kind)

	f.write(`{"spec":{"deletionPolicy":"Retain"}}`)
	require.NoError(t, f.Note(t.Context(), f.ref))
	assert.Empty(t, f.pod(a).OwnerReferences)
	f.write(`{"spec":{"deletionPolicy":"Delete"}}`)
	require.NoError(t, f.Note(t.Context(), f.ref))
	assert.Len(t, f.pod(a).OwnerReferences, 1)
	f.same(pod)
}

// A new pod is released when Kubernetes and Ceph both say that its OSD serves, and not before.
func TestConfirm(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "confirm", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	f.creates(a)
	state := func() string { return f.pod(a).Annotations[podspec.StateAnnotation] }
	confirm := func() {
		t.Helper()
		require.NoError(t, f.Note(t.Context(), f.ref))
		require.NoError(t, f.Confirm(t.Context(), f.awaiting(a)))
	}
	confirm()
	assert.Equal(t, "unready", state(), "not ready, not up")
	f.starts(f.pod(a))
	f.ceph.stops(f.pod(a))
	confirm()
	assert.NotEqual(t, "up-to-date", state(), "ready, not up")
	assert.NotContains(t, f.pod(a).Annotations, podspec.ReleasedAnnotation)
	f.starts(f.pod(a))
	f.ready(f.pod(a), corev1.ConditionFalse)
	confirm()
	assert.NotEqual(t, "up-to-date", state(), "up, not ready")
	f.ready(f.pod(a), corev1.ConditionTrue)
	confirm()
	assert.Equal(t, "up-to-date", state())
	assert.Contains(t, f.pod(a).Annotations, podspec.ReleasedAnnotation)
	assert.Equal(t, "0", f.pod(a).Labels[podspec.IDLabel])
	do, _ := f.next()
	assert.Equal(t, rollout.DoNothing, do)
}

// The documented words by which a person lets the rollout go on without a pod: no state, or up-to-date. They hold until
// that pod is ready, and nothing that lockkeeper writes takes them back.
func TestOverride(t *testing.T) {
	for name, word := range map[string]string{"removed": "null", "up-to-date": `"up-to-date"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOSDSet(t, "override-"+name, `{storage: [{hosts: [$a, $b], osds: [{data: /dev/sdb}]}]}`, "a", "b")
			a, b := f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb")
			f.has(a)
			f.has(b)
			f.image("ceph:17")
			f.replaces(a)
			pod := f.pod(a)
			f.crashes(pod)
			do, who := f.next()
			require.Equal(t, rollout.DoAwait, do)
			require.Equal(t, keys(a), who)

			f.annotate(pod, podspec.StateAnnotation, word)
			do, who = f.next()
			assert.Equal(t, rollout.DoReplace, do)
			assert.Equal(t, keys(b), who)
			require.NoError(t, f.Note(t.Context(), f.ref))
			do, _ = f.next()
			assert.Equal(t, rollout.DoReplace, do, "it holds")
			assert.Zero(t, f.survey().Counts.Down)

			f.starts(pod)
			require.NoError(t, f.Note(t.Context(), f.ref))
			require.NoError(t, f.Confirm(t.Context(), f.awaiting(a)))
			f.crashes(pod)
			do, who = f.next()
			assert.Equal(t, rollout.DoAwait, do, "what happens after it was ready is new")
			assert.Equal(t, keys(a), who)
		})
	}
}

// Without an answer from Ceph nothing is known, and nothing is done but to say so.
func TestNothingIsDoneWhileCephIsSilent(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "silent", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}, {data: /dev/sdc}]}]}`, "a")
	b, c := f.osd("a", "/dev/sdb"), f.osd("a", "/dev/sdc")
	pod := f.has(b)
	f.image("ceph:17")
	f.ceph.silent = "no mon answers"
	s, err := f.Survey(t.Context(), activities.SurveyInput{OSDSet: f.ref})
	require.NoError(t, err)
	assert.Equal(t, "no mon answers", s.Unavailable)
	assert.False(t, s.Counted)
	assert.Empty(t, s.Next.Do)
	require.ErrorContains(t, f.Replace(t.Context(), f.batch(b)), "no mon answers")
	_, err = f.Create(t.Context(), f.ref, keys(c))
	require.ErrorContains(t, err, "no mon answers")
	f.same(pod)
	assert.Len(t, f.names(), 1)
}
