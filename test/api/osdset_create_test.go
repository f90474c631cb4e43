package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// What the API server has of a pod that was made, down to what the original operator promised its users.
func TestPodsAreMade(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "made", `{storage: [{hosts: [$a, $b], osds: [{data: /dev/disk/by-slot/1, db: /dev/nvme0n1p1}, {data: /dev/disk/by-slot/2}]}], podTemplate: {
		metadata: {labels: {app: ceph-osd}, annotations: {example.org/scrape: "true"}},
		spec: {
			affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {
				nodeSelectorTerms: [{matchExpressions: [{key: disks, operator: Exists}]}]}}},
			initContainers: [{name: activate, image: ceph}],
			containers: [{name: osd, image: ceph, env: [{name: FROM, value: template}]}]}}}`, "a", "b")
	do, missing := f.next()
	require.Equal(t, rollout.DoCreate, do)
	require.Len(t, missing, 4)

	made, err := f.Create(t.Context(), f.ref, missing)
	require.NoError(t, err)
	assert.Equal(t, activities.Created{}, made)
	assert.Len(t, f.names(), 4)

	o := f.osd("a", "/dev/disk/by-slot/1")
	pod := f.pod(o)
	require.NotNil(t, pod)
	assert.Equal(t, "ceph-osd", pod.Labels["app"])
	assert.Equal(t, "CephOSD-osds", pod.Labels[podspec.OwnerLabel])
	for annotation, want := range map[string]string{
		podspec.HashAnnotation: f.set().Hash, podspec.HostAnnotation: f.host("a"),
		podspec.DataAnnotation: "/dev/disk/by-slot/1", podspec.DBAnnotation: "/dev/nvme0n1p1",
		podspec.StateAnnotation: string(podspec.Unready), "example.org/scrape": "true",
	} {
		assert.Equal(t, want, pod.Annotations[annotation], annotation)
	}
	assert.NotContains(t, pod.Annotations, podspec.WALAnnotation)
	assert.Empty(t, pod.OwnerReferences, "deleting the CephOSD must not delete its pods")
	assert.Equal(t, corev1.RestartPolicyAlways, pod.Spec.RestartPolicy)

	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	assert.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "disks", Operator: corev1.NodeSelectorOpExists},
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{f.host("a")}},
	}}}, terms)
	for _, c := range []corev1.Container{pod.Spec.InitContainers[0], pod.Spec.Containers[0]} {
		from := map[string]string{}
		for _, e := range c.Env {
			if e.ValueFrom != nil {
				from[e.Name] = e.ValueFrom.FieldRef.FieldPath
			}
		}
		assert.Equal(t, map[string]string{
			"OSD_DEVICE": "metadata.annotations['" + podspec.DataAnnotation + "']", "OSD_DB_DEVICE": "metadata.annotations['" +
				podspec.DBAnnotation + "']",
			"OSD_WAL_DEVICE": "metadata.annotations['" + podspec.WALAnnotation + "']",
		}, from, c.Name)
	}
	assert.Contains(t, pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "FROM", Value: "template"})

	// Done again, as an activity may be, it is no error, and makes nothing anew.
	before := f.pods()
	made, err = f.Create(t.Context(), f.ref, missing)
	require.NoError(t, err)
	assert.Equal(t, activities.Created{}, made)
	for name, pod := range before {
		f.same(pod)
		assert.Equal(t, pod.ResourceVersion, f.pods()[name].ResourceVersion)
	}
	assert.Len(t, f.names(), 4)
}

// Only what was asked for, only where it may be: not on a node that is being emptied or gone, nor beside a pod that
// ends.
func TestPodsAreNotMadeEverywhere(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "spared", `{storage: [{hosts: [$a, $b, $nobody], osds: [{data: /dev/sdb}]}]}`, "a", "b")
	a, b := f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb")
	f.cordon("b", true)
	f.creates(a, b, f.osd("nobody", "/dev/sdb"))
	assert.Equal(t, []string{podspec.PodName(a)}, f.names())

	f.cordon("b", false)
	f.creates() // of nobody
	assert.Equal(t, []string{podspec.PodName(a)}, f.names())
	f.creates(b)
	pod := f.pod(b)
	require.NotNil(t, pod)

	f.runs(pod)
	require.NoError(t, server.Delete(t.Context(), pod))
	f.terminating(pod)
	f.creates(b)
	assert.NotNil(t, f.pods()[pod.Name].DeletionTimestamp, "its process may still write")
	f.kill(pod)
	f.creates(b)
	assert.NotEqual(t, pod.UID, f.pod(b).UID)
}

// The CephOSD remembers the number of an OSD by its pods, and Ceph when it was up last.
func TestAPodIsMadeWithWhatIsKnown(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "known", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	f.creates(a)
	first := f.pod(a)
	assert.NotContains(t, first.Labels, podspec.IDLabel, "Ceph has never heard of it")
	f.starts(first)
	f.kill(first)

	f.creates(a)
	again := f.pod(a)
	assert.Equal(t, "0", again.Labels[podspec.IDLabel])
	assert.Equal(t, "zone-of-"+f.host("a"), again.Labels[podspec.FailureDomainLabel+"zone"])
	assert.Equal(t, f.host("a"), again.Labels[podspec.FailureDomainLabel+"host"])
	f.ready(again, corev1.ConditionTrue)
	do, _ := f.next()
	assert.Equal(t, rollout.DoAwait, do, "Ceph's map is from before it was made")
	f.starts(again)
	s := f.survey()
	assert.True(t, s.Next.OSDs[0].Serves)
}

// What the API server rejects is the template's fault: it is said with the field where people wrote it.
func TestRejectedPodsAreRefused(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "rejected",
		`{storage: [{hosts: [$a, $b], osds: [{data: /dev/sdb}]}], podTemplate: {spec: {containers: [{name: OSD_1, image: ceph}]}}}`, "a", "b")
	a, b := f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb")
	made := f.creates(a, b)
	require.NotNil(t, made.Refused)
	assert.Equal(t, "spec.podTemplate.spec.containers[0].name", made.Refused.Field)
	assert.Contains(t, made.Refused.Allowed, "lower")
	assert.Empty(t, made.Hindered)
	assert.Empty(t, f.names())

	f.image("ceph:17")
	assert.Equal(t, activities.Created{}, f.creates(a, b))
	assert.Len(t, f.names(), 2)
}

// A namespace may forbid what a template asks for; that names no field, but the template it is.
func TestForbiddenPodsAreRefused(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "forbidden",
		`{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}], podTemplate: {spec: {containers: [{name: osd, image: ceph, securityContext: {privileged: true}}]}}}`, "a")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.ns}}
	restricted := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`
	require.NoError(t, server.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(restricted))))
	a := f.osd("a", "/dev/sdb")
	// Whoever judges pods by their namespace may not have heard of the label yet.
	var made activities.Created
	f.eventually(func() bool {
		made = f.creates(a)
		if made.Refused == nil {
			f.kill(f.pod(a))
		}
		return made.Refused != nil
	}, "privileged pods are forbidden")
	assert.Contains(t, made.Refused.Field, "spec.podTemplate")
	assert.Contains(t, made.Refused.Allowed, "privileged")
	assert.Empty(t, f.names())

	judged, err := f.Rehearse(t.Context(), f.batch(a))
	require.NoError(t, err)
	require.NotNil(t, judged.Refused, "and a rehearsal says so before anything was stopped")
	assert.Contains(t, judged.Refused.Allowed, "privileged")
}

// A pod's name is taken by somebody else's, which stays as it is; the other OSDs get their pods.
func TestANameThatIsTakenHinders(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "taken", `{storage: [{hosts: [$a, $b], osds: [{data: /dev/sdb}]}]}`, "a", "b")
	a, b := f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb")
	theirs := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: podspec.PodName(a), Labels: map[string]string{"app": "theirs"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs"}}},
	}
	create(t, theirs)
	made := f.creates(a, b)
	assert.Nil(t, made.Refused)
	require.Len(t, made.Hindered, 1)
	assert.Equal(t, a.Key(), made.Hindered[0].Key)
	assert.Contains(t, made.Hindered[0].Why, podspec.PodName(a))
	assert.NotNil(t, f.pod(b))

	f.same(theirs)
	assert.Equal(t, theirs.ResourceVersion, f.pods()[theirs.Name].ResourceVersion)
	for _, r := range f.wire.said(http.MethodDelete) {
		assert.Contains(t, r.path, "/version-of-", "which is ours")
	}
	assert.Empty(t, f.wire.said(http.MethodPatch))
}

// Two CephOSDs that ask for the same device: the pod of the first serves, and the second says who hinders it.
func TestADeviceOfAnotherCephOSDHinders(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "rivals", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	first := f.has(a)
	rival := cephOSD(t, "rival", `{storage: [{hosts: [`+f.host("a")+`], osds: [{data: /dev/sdb}]}]}`)
	rival.SetNamespace(f.ns)
	create(t, rival)
	f.ref.Name = "rival"
	made := f.creates(a)
	require.Len(t, made.Hindered, 1)
	assert.Equal(t, a.Key(), made.Hindered[0].Key)
	f.same(first)
	assert.Equal(t, podspec.Owner("osds"), f.pod(a).Labels[podspec.OwnerLabel])
}
