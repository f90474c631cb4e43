package api

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

const threeOSDs = `{storage: [{hosts: [$a, $b, $c], osds: [{data: /dev/sdb, db: /dev/nvme0n1p1, wal: /dev/nvme1n1p1}]}]}`

// threeHosts is an OSD on each of three hosts, in a failure domain each, all up to date.
func threeHosts(t *testing.T, ns string) (f *osdSet, osds []podspec.OSD, pods []*corev1.Pod) {
	t.Helper()
	f = newOSDSet(t, ns, threeOSDs, "a", "b", "c")
	for _, h := range []string{"a", "b", "c"} {
		o := f.osd(h, "/dev/sdb")
		osds, pods = append(osds, o), append(pods, f.has(o))
	}
	do, _ := f.next()
	require.Equal(t, rollout.DoNothing, do)
	return f, osds, pods
}

// TestBugsOfTheOriginal is what the operator that made the first CephOSDs does wrong, one by one, and that lockkeeper
// does not.
func TestBugsOfTheOriginal(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a-changed-db-or-wal-never-rolls-out":            aChangedDBRollsOut,
		"two-daemons-on-one-device":                      oneDaemonOnADevice,
		"a-deleted-pod-comes-back-as-up-to-date":         aDeletedPodIsAwaited,
		"a-fix-takes-down-healthy-hosts-first":           aFixMendsFirst,
		"a-crashed-up-to-date-osd-does-not-gate":         aCrashedOSDGates,
		"a-foreign-pod-fails-the-pass":                   aForeignPodFailsNothing,
		"of-duplicates-the-healthy-one-may-go":           theHealthyOneStays,
		"removal-does-not-look-at-the-data":              removalAsksCeph,
		"the-documented-override-does-not-work":          theOverrideWorks,
		"no-test-of-updates-halts-and-duplicates":        anUpdateFromEndToEnd,
		"names-of-pods-may-be-none":                      everyNameIsValid,
		"the-affinity-of-the-template-is-lost":           affinitiesAreKept,
		"deleting-the-custom-resource-deletes-every-osd": aDeletedCephOSDDeletesNothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// The template's hash does not know the devices.
func aChangedDBRollsOut(t *testing.T) {
	f, osds, pods := threeHosts(t, "bug-db")
	hash := f.set().Hash
	for _, change := range []struct{ patch, annotation, want string }{
		{`{"spec":{"storage":[{"hosts":["$a","$b","$c"],"osds":[{"data":"/dev/sdb","db":"/dev/nvme0n1p2","wal":"/dev/nvme1n1p1"}]}]}}`, podspec.DBAnnotation, "/dev/nvme0n1p2"},
		{`{"spec":{"storage":[{"hosts":["$a","$b","$c"],"osds":[{"data":"/dev/sdb","db":"/dev/nvme0n1p2","wal":"/dev/nvme1n1p2"}]}]}}`, podspec.WALAnnotation, "/dev/nvme1n1p2"},
		{
			`{"spec":{"storage":[{"hosts":["$a","$b","$c"],"osds":[{"data":"/dev/sdb","db":"/dev/nvme0n1p2"}]}]}}`,
			podspec.WALAnnotation, "",
		},
	} {
		f.write(change.patch)
		require.Equal(t, hash, f.set().Hash)
		assert.Equal(t, 3, f.survey().Counts.OutOfDate)
		assert.Equal(t, []string{osds[0].Key(), osds[1].Key(), osds[2].Key()}, f.rollsOut())
		for i, o := range osds {
			now := f.pod(o)
			assert.NotEqual(t, pods[i].UID, now.UID)
			assert.Equal(t, change.want, now.Annotations[change.annotation])
			pods[i] = now
		}
	}
}

// rollsOut does what is to be done, one after the other, as the workflow does, on a cluster where everything goes well,
// until nothing is left. It tells in which order OSDs went down.
func (f *osdSet) rollsOut() (order []string) {
	f.t.Helper()
	serve := func() {
		for _, pod := range f.pods() {
			if pod.DeletionTimestamp == nil && pod.Annotations[podspec.StateAnnotation] == string(podspec.Unready) {
				f.starts(pod)
			}
		}
	}
	for range 100 {
		s := f.survey()
		require.Empty(f.t, s.Refused)
		require.NoError(f.t, f.Discard(f.t.Context(), f.ref, s.Discard))
		in := activities.Replacement{OSDSet: f.ref, Cluster: s.Cluster, Template: s.Template, OSDs: s.Next.OSDs}
		await := activities.AwaitInput{OSDSet: f.ref, Cluster: s.Cluster, Template: s.Template, Keys: keysOf(s.Next.OSDs)}
		switch s.Next.Do {
		case rollout.DoNothing:
			return order
		case rollout.DoCreate:
			made, err := f.Create(f.t.Context(), f.ref, await.Keys)
			require.NoError(f.t, err)
			require.Equal(f.t, activities.Created{}, made)
		case rollout.DoReplace:
			judged, err := f.Rehearse(f.t.Context(), in)
			require.NoError(f.t, err)
			require.Empty(f.t, judged)
			spared, answer, err := f.Spare(f.t.Context(), in)
			require.NoError(f.t, err)
			require.True(f.t, answer.OK, answer.Reason)
			in.OSDs = spared
			require.NoError(f.t, f.Replace(f.t.Context(), in))
			order = append(order, keysOf(spared)...)
			serve()
		case rollout.DoAwait:
			serve()
			arrival, err := f.Await(f.t.Context(), await, func(activities.Arrival) {})
			require.NoError(f.t, err)
			require.Equal(f.t, activities.Arrival{}, arrival)
			require.NoError(f.t, f.Confirm(f.t.Context(), await))
		}
	}
	f.t.Fatal("the rollout does not end")
	return nil
}

// It creates the replacement while the old pod terminates. Theirs have random names, so that the API server lets it.
func oneDaemonOnADevice(t *testing.T) {
	f := newOSDSet(t, "bug-two-daemons", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a, f.ofTheOriginal("x7f3q"))
	f.runs(old)
	f.image("ceph:17")
	ended := f.replacing(a)
	f.terminating(old)
	do, _ := f.next()
	assert.Equal(t, rollout.DoAwait, do, "and no other worker makes it either")
	f.creates(a)
	f.looksAgain()
	assert.Equal(t, []string{old.Name}, f.names())
	f.kill(old)
	require.NoError(t, ended())
	assert.Equal(t, []string{podspec.PodName(a)}, f.names())
}

// A pod that does not get ready is deleted, by a person, a drain or the node's end; the halt must not be forgotten by
// that.
func aDeletedPodIsAwaited(t *testing.T) {
	f, osds, pods := threeHosts(t, "bug-forgotten-halt")
	f.image("ceph:17")
	f.replaces(osds[0])
	f.crashes(f.pod(osds[0]))
	for range 2 {
		do, who := f.next()
		require.Equal(t, rollout.DoAwait, do)
		require.Equal(t, keys(osds[0]), who)
		f.kill(f.pod(osds[0]))
		do, _ = f.next()
		require.Equal(t, rollout.DoCreate, do)
		f.creates(osds[0])
		require.NoError(t, f.Note(t.Context(), f.ref))
		f.crashes(f.pod(osds[0]))
		assert.Equal(t, "unready", f.pod(osds[0]).Annotations[podspec.StateAnnotation])
	}
	f.same(pods[1])
	f.same(pods[2])
}

// A fixed template begins with what is broken already, wherever that is in the alphabet.
func aFixMendsFirst(t *testing.T) {
	f, osds, pods := threeHosts(t, "bug-fix")
	f.image("ceph:broken")
	f.replaces(osds[2])
	f.crashes(f.pod(osds[2]))
	f.image("ceph:fixed")
	s := f.survey()
	require.Equal(t, rollout.DoReplace, s.Next.Do)
	assert.True(t, s.Next.Broken)
	assert.Equal(t, keys(osds[2]), keysOf(s.Next.OSDs))
	assert.Equal(t, keys(osds[2], osds[0], osds[1]), f.rollsOut())
	assert.NotEqual(t, pods[0].UID, f.pod(osds[0]).UID)
}

// An OSD that was updated, released, and crashes then: nothing further may go down.
func aCrashedOSDGates(t *testing.T) {
	for name, happens := range map[string]func(f *osdSet, pod *corev1.Pod){
		"in-kubernetes": func(f *osdSet, pod *corev1.Pod) { f.ready(pod, corev1.ConditionFalse) },
		"in-ceph":       func(f *osdSet, pod *corev1.Pod) { f.ceph.stops(pod) },
		"in-both":       func(f *osdSet, pod *corev1.Pod) { f.crashes(pod) },
	} {
		t.Run(name, func(t *testing.T) {
			f, osds, _ := threeHosts(t, "bug-crashed-"+name)
			f.image("ceph:17")
			f.replaces(osds[0])
			f.starts(f.pod(osds[0]))
			require.NoError(t, f.Confirm(t.Context(), f.awaiting(osds[0])))
			do, who := f.next()
			require.Equal(t, rollout.DoReplace, do)
			require.Equal(t, keys(osds[1]), who)

			happens(f, f.pod(osds[0]))
			do, who = f.next()
			assert.Equal(t, rollout.DoAwait, do)
			assert.Equal(t, keys(osds[0]), who)
			assert.Equal(t, 1, f.survey().Counts.Down)
		})
	}
}

// A pod with the owner label that somebody else made has none of the annotations, and is nobody's business.
func aForeignPodFailsNothing(t *testing.T) {
	f, osds, _ := threeHosts(t, "bug-foreign")
	yes := true
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.ns, Name: "aaa", Labels: map[string]string{podspec.OwnerLabel: podspec.Owner("osds")},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "theirs", UID: "1",
				Controller: &yes,
			}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs"}}},
	}
	create(t, foreign)
	f.image("ceph:17")
	assert.Len(t, f.survey().Foreign, 1)
	assert.Equal(t, keys(osds...), f.rollsOut())
	f.same(foreign)
	assert.Equal(t, foreign.ResourceVersion, f.pods()["aaa"].ResourceVersion)
}

// It keeps whichever comes first in its list.
func theHealthyOneStays(t *testing.T) {
	for name, healthy := range map[string]int{"the-first": 0, "the-second": 1} {
		t.Run(name, func(t *testing.T) {
			f := newOSDSet(t, "bug-duplicate-"+name, oneOSD, "a")
			a := f.osd("a", "/dev/sdb")
			pods := []*corev1.Pod{f.has(a, f.ofTheOriginal("aaaaa")), f.has(a, f.ofTheOriginal("zzzzz"))}
			f.ready(pods[1-healthy], corev1.ConditionFalse)
			s := f.survey()
			assert.Equal(t, []string{pods[1-healthy].Name}, s.Discard)
			require.NoError(t, f.Discard(t.Context(), f.ref, s.Discard))
			assert.Equal(t, []string{pods[healthy].Name}, f.names())
			f.same(pods[healthy])
		})
	}
}

// It deletes the pod as soon as the spec does not name the OSD.
func removalAsksCeph(t *testing.T) {
	f, osds, pods := threeHosts(t, "bug-removal")
	f.ceph.needs(osds[2], "5 PGs need osd.2")
	f.write(`{"spec":{"storage":[{"hosts":["$a","$b"],"osds":[{"data":"/dev/sdb","db":"/dev/nvme0n1p1","wal":"/dev/nvme1n1p1"}]}]}}`)
	assert.Empty(t, f.rollsOut())
	s := f.survey()
	assert.Empty(t, s.Removable)
	require.Len(t, s.Superfluous, 1)
	assert.Contains(t, s.Superfluous[0].Why, "5 PGs need osd.2")
	require.NoError(t, f.Remove(t.Context(), f.ref, []string{pods[2].Name}))
	f.same(pods[2])
	assert.Contains(t, f.ceph.asked, 2)

	f.ceph.needs(osds[2], "")
	require.NoError(t, f.Remove(t.Context(), f.ref, f.survey().Removable))
	assert.NotContains(t, f.names(), pods[2].Name)
	f.same(pods[0])
	f.same(pods[1])
}

// "The administrator can delete the annotation or set it to up-to-date": it looks for another annotation than it
// writes.
func theOverrideWorks(t *testing.T) {
	f, osds, _ := threeHosts(t, "bug-override")
	f.image("ceph:17")
	f.replaces(osds[0])
	f.crashes(f.pod(osds[0]))
	do, _ := f.next()
	require.Equal(t, rollout.DoAwait, do)
	f.annotate(f.pod(osds[0]), podspec.StateAnnotation, `"up-to-date"`)
	assert.Equal(t, keys(osds[1], osds[2]), f.rollsOut())
	assert.Zero(t, f.survey().Counts.Down, "a person answers for the first")
}

// All that it has no test for, in one life of a set: from nothing, through an update that halts, its fix, and a
// duplicate.
func anUpdateFromEndToEnd(t *testing.T) {
	f := newOSDSet(t, "bug-untested", threeOSDs, "a", "b", "c")
	assert.Empty(t, f.rollsOut(), "nothing goes down where nothing is")
	require.Len(t, f.names(), 3)
	s := f.survey()
	assert.True(t, s.Counts.Settled())
	osds := []podspec.OSD{f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb"), f.osd("c", "/dev/sdb")}

	f.image("ceph:broken")
	f.replaces(osds[0])
	f.crashes(f.pod(osds[0]))
	ctx, stop := context.WithCancel(t.Context())
	_, err := f.Await(ctx, f.awaiting(osds[0]), func(a activities.Arrival) {
		defer stop()
		if assert.Len(t, a.Waiting, 1) {
			assert.Equal(t, osds[0].Key(), a.Waiting[0].Key)
		}
	})
	require.Error(t, err, "it waits for as long as it may")
	healthy := f.pods()
	do, _ := f.next()
	assert.Equal(t, rollout.DoAwait, do)

	f.image("ceph:17")
	f.same(healthy[podspec.PodName(osds[1])])
	assert.Equal(t, keys(osds...), f.rollsOut())
	for _, o := range osds {
		assert.Equal(t, "ceph:17", f.pod(o).Spec.Containers[0].Image)
		assert.Equal(t, "up-to-date", f.pod(o).Annotations[podspec.StateAnnotation])
	}

	serving := f.pod(osds[1])
	duplicate := f.has(osds[1], f.ofTheOriginal("x7f3q"))
	f.ready(duplicate, corev1.ConditionFalse)
	f.ceph.starts(serving)
	assert.Empty(t, f.rollsOut())
	f.same(serving)
	assert.Len(t, f.names(), 3)
	assert.True(t, f.survey().Counts.Settled())
}

// Upper case and underscores slip into its names, which the API server then rejects for ever.
func everyNameIsValid(t *testing.T) {
	f := newOSDSet(t, "bug-names",
		`{storage: [{hosts: [$a], osds: [{data: "/dev/disk/by-id/nvme-SAMSUNG_MZQL2_S64G:1.0"}, {data: /dev/mapper/VG_ceph-osd_1}, {data: /}, {data: "/dev/ßäü"}]}]}`, "a")
	assert.Empty(t, f.rollsOut())
	assert.Len(t, f.names(), 4)
}

// It replaces the node affinity that the template asks for by its own.
func affinitiesAreKept(t *testing.T) {
	f := newOSDSet(t, "bug-affinity", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}], podTemplate: {spec: {containers: [{name: osd, image: ceph}], affinity: {nodeAffinity: {
		requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
			{matchExpressions: [{key: disks, operator: Exists}]}, {matchExpressions: [{key: more-disks, operator: Exists}]}]},
		preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: fast, operator: Exists}]}}]}}}}}`, "a")
	a := f.osd("a", "/dev/sdb")
	f.creates(a)
	node := f.pod(a).Spec.Affinity.NodeAffinity
	assert.Len(t, node.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	terms := node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Len(t, terms, 2)
	for _, term := range terms {
		assert.Len(t, term.MatchExpressions, 2)
		assert.Contains(t, term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key:      corev1.LabelHostname,
			Operator: corev1.NodeSelectorOpIn, Values: []string{f.host("a")},
		})
	}
}

// Its custom resource owns every pod.
func aDeletedCephOSDDeletesNothing(t *testing.T) {
	f, osds, _ := threeHosts(t, "bug-owner")
	adopted := f.pod(osds[0])
	f.kill(adopted)
	adopted = f.has(osds[0], f.ofTheOriginal("x7f3q"))
	require.NoError(t, f.Note(t.Context(), f.ref))
	cr := cephOSD(t, "osds", "{}")
	cr.SetNamespace(f.ns)
	require.NoError(t, server.Delete(t.Context(), cr, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	f.eventually(func() bool {
		s, err := f.Survey(t.Context(), activities.SurveyInput{OSDSet: f.ref})
		return err == nil && (!s.Found || s.Deleting)
	}, "the CephOSD goes")
	for _, pod := range f.pods() {
		assert.Empty(t, pod.OwnerReferences, "the garbage collector would delete it")
	}
	f.same(adopted)
	assert.Len(t, f.names(), 3)
	assert.Empty(t, f.wire.said(http.MethodDelete))
}
