package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// A host of the spec that is no node is told with its field, and keeps nobody else waiting for a pod.
func TestHostsThatAreNoNodes(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "no-node", `{storage: [{hosts: [$a, $gone], osds: [{data: /dev/sdb}]}]}`, "a")
	s := f.survey()
	require.Empty(t, s.Refused)
	require.Len(t, s.Warned, 1)
	assert.Equal(t, "spec.storage[0].hosts[1]", s.Warned[0].Field)
	assert.Equal(t, f.host("gone"), s.Warned[0].Value)
	assert.Equal(t, rollout.DoCreate, s.Next.Do)
	assert.Equal(t, keys(f.osd("a", "/dev/sdb")), keysOf(s.Next.OSDs))
	assert.Equal(t, 2, s.Counts.Total)
}

// Without a policy, or with several and no choice, nothing says how to reach Ceph; so nothing is touched.
func TestAOSDSetNeedsItsPolicy(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "policies", oneOSD, "a")
	a := f.osd("a", "/dev/sdb")
	pod := f.has(a)
	f.image("ceph:17")
	other := policy(t, "other", `{ceph: {}}`)
	other.SetNamespace(f.ns)
	create(t, other)
	refused := func() string {
		t.Helper()
		s := f.survey()
		require.Len(t, s.Refused, 1)
		assert.Equal(t, "spec.policy", s.Refused[0].Field)
		assert.Empty(t, s.Next.Do)
		assert.False(t, s.Counted)
		require.NoError(t, f.Replace(t.Context(), f.batch(a)))
		f.same(pod)
		return s.Refused[0].Allowed
	}
	assert.Contains(t, refused(), "other, storage")
	f.write(`{"spec":{"policy":"nobody"}}`)
	assert.Contains(t, refused(), "other, storage")
	f.write(`{"spec":{"policy":"storage"}}`)
	s := f.survey()
	assert.Empty(t, s.Refused)
	assert.Equal(t, storage.ClusterKey{Namespace: f.ns, Name: "storage"}, s.Cluster)

	f.write(`{"spec":{"policy":null}}`)
	require.NoError(t, server.Delete(t.Context(), other))
	assert.Empty(t, f.survey().Refused)
	storage := policy(t, "storage", `{ceph: {}}`)
	storage.SetNamespace(f.ns)
	require.NoError(t, server.Delete(t.Context(), storage))
	assert.Contains(t, refused(), "there is no MaintenancePolicy")
}

// Somebody put the owner label on a pod that has the name of an OSD's. It is not touched, and the rollout says whom it
// waits for.
func TestALabelledStrangerHinders(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "stranger", `{storage: [{hosts: [$a, $b], osds: [{data: /dev/sdb}]}]}`, "a", "b")
	a, b := f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb")
	f.has(b)
	stranger := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.ns, Name: podspec.PodName(a),
			Labels: map[string]string{podspec.OwnerLabel: podspec.Owner("osds")},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs"}}},
	}
	create(t, stranger)
	s := f.survey()
	assert.Len(t, s.Foreign, 1)
	assert.Equal(t, rollout.DoAwait, s.Next.Do)
	assert.Equal(t, keys(a), keysOf(s.Next.OSDs))
	assert.Contains(t, s.Next.Why, stranger.Name)
	f.creates(a)
	f.same(stranger)
	assert.Empty(t, f.wire.said(http.MethodDelete))
}

// All OSDs of a host go together when the spec says so, and those of other hosts are left alone meanwhile.
func TestAHostIsABatch(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "host-batch",
		`{updateDomain: Host, storage: [{hosts: [$a, $b], osds: [{data: /dev/sdb}, {data: /dev/sdc}]}]}`, "a", "b")
	var pods []*corev1.Pod
	for _, o := range f.desired() {
		pods = append(pods, f.has(o))
	}
	f.image("ceph:17")
	s := f.survey()
	first := []podspec.OSD{f.osd("a", "/dev/sdb"), f.osd("a", "/dev/sdc")}
	require.Equal(t, keys(first...), keysOf(s.Next.OSDs))
	f.replaces(first...)
	for _, o := range first {
		assert.Equal(t, "ceph:17", f.pod(o).Spec.Containers[0].Image)
	}
	f.same(pods[2])
	f.same(pods[3])
	do, who := f.next()
	assert.Equal(t, rollout.DoAwait, do)
	assert.Equal(t, keys(first...), who)
	f.starts(f.pod(first[0]))
	do, _ = f.next()
	assert.Equal(t, rollout.DoAwait, do, "all of them")
	assert.Equal(t, keys(f.osd("b", "/dev/sdb"), f.osd("b", "/dev/sdc")), f.rollsOut())
}

// A canary goes alone, whatever the update domain.
func TestACanaryGoesAlone(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "canary", `{updateDomain: Host, canary: {soak: 1m, approval: true}, storage: [{hosts: [$a], osds: [{data: /dev/sdb}, {data: /dev/sdc}]}]}`, "a")
	for _, o := range f.desired() {
		f.has(o)
	}
	f.image("ceph:17")
	s := f.survey()
	assert.True(t, s.Next.Canary)
	assert.Equal(t, keys(f.osd("a", "/dev/sdb")), keysOf(s.Next.OSDs))
	assert.True(t, s.Rules.Approval)
	assert.Equal(t, "1m0s", s.Rules.Soak.String())
	judged, err := f.Survey(t.Context(), activities.SurveyInput{OSDSet: f.ref, CanaryOf: s.Template})
	require.NoError(t, err)
	assert.False(t, judged.Next.Canary)
	assert.Len(t, judged.Next.OSDs, 2)
}
