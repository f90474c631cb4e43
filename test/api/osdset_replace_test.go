package api

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// A replacement deletes the very pod that was judged, and makes its successor, of the present template.
func TestReplace(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "replace", `{storage: [{hosts: [$a, $b], osds: [{data: /dev/sdb}]}]}`, "a", "b")
	a, b := f.osd("a", "/dev/sdb"), f.osd("b", "/dev/sdb")
	old, other := f.has(a), f.has(b)
	f.image("ceph:17")
	do, next := f.next()
	require.Equal(t, rollout.DoReplace, do)
	require.Equal(t, keys(a), next)

	spared, answer, err := f.Spare(t.Context(), f.batch(a))
	require.NoError(t, err)
	require.True(t, answer.OK, answer.Reason)
	assert.Equal(t, keys(a), keysOf(spared))
	f.replaces(a)
	successor := f.pod(a)
	require.NotNil(t, successor)
	assert.NotEqual(t, old.UID, successor.UID)
	assert.Equal(t, "ceph:17", successor.Spec.Containers[0].Image)
	assert.Equal(t, f.set().Hash, successor.Annotations[podspec.HashAnnotation])
	assert.Equal(t, string(podspec.Unready), successor.Annotations[podspec.StateAnnotation])
	assert.NotContains(t, successor.Annotations, podspec.ReleasedAnnotation)
	f.same(other)
	deletions := f.wire.said(http.MethodDelete)
	require.Len(t, deletions, 1)
	assert.Contains(t, deletions[0].body, string(old.UID))

	f.replaces(a) // done again, as an activity may be
	f.same(successor)
	assert.Len(t, f.wire.said(http.MethodDelete), 1)
}

// Between the look and the deletion somebody else replaced the pod: the new one has the same name, and is not the one
// that was judged.
func TestReplaceSparesANamesake(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "namesake", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a)
	f.image("ceph:17")
	fresh := f.set().Render(a, podspec.Knowledge{})
	var once sync.Once
	f.wire.hook(func(r request) {
		if r.method == http.MethodDelete {
			once.Do(func() {
				assert.NoError(t, server.Delete(t.Context(), old, client.GracePeriodSeconds(0)))
				assert.NoError(t, server.Create(t.Context(), fresh))
			})
		}
	})
	f.replaces(a)
	require.Len(t, f.wire.said(http.MethodDelete), 1)
	f.same(fresh)
}

// As long as the old process may write, nobody else gets its device, whatever the names: pods of the original operator
// have others than ours.
func TestNoSuccessorBesideATerminatingPod(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "terminating", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a, f.ofTheOriginal("x7f3q"))
	f.runs(old)
	f.image("ceph:17")
	ended := f.replacing(a)
	f.terminating(old)
	f.looksAgain()
	assert.Equal(t, []string{old.Name}, f.names())
	assert.Empty(t, f.wire.said(http.MethodPost), "it must not even be tried")

	f.kill(old)
	require.NoError(t, ended())
	assert.Equal(t, []string{podspec.PodName(a)}, f.names())
	assert.Equal(t, "ceph:17", f.pod(a).Spec.Containers[0].Image)
}

// The same where the names are equal, and where a finalizer holds the pod that no kubelet runs.
func TestNoSuccessorBesideAFinalizer(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "finalized", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a, func(p *corev1.Pod) { p.Finalizers = []string{"lockkeeper.io/test"} })
	f.image("ceph:17")
	ended := f.replacing(a)
	f.terminating(old)
	f.looksAgain()
	assert.Equal(t, old.UID, f.pod(a).UID)

	require.NoError(t, server.Patch(t.Context(), old.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	require.NoError(t, ended())
	assert.NotEqual(t, old.UID, f.pod(a).UID)
}

// A worker that dies while a pod terminates leaves it to the next one, which finds it terminating and waits as well.
func TestReplaceGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "goes-on", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a)
	f.runs(old)
	f.image("ceph:17")
	ctx, dies := context.WithCancel(t.Context())
	first := make(chan error, 1)
	in := f.batch(a)
	go func() { first <- f.Replace(ctx, in) }()
	f.terminating(old)
	dies()
	require.Error(t, <-first)

	ended := f.replacing(a)
	f.looksAgain()
	assert.Equal(t, old.UID, f.pod(a).UID)
	f.kill(old)
	require.NoError(t, ended())
	assert.Equal(t, "ceph:17", f.pod(a).Spec.Containers[0].Image)
}

// Somebody empties the node while the old pod terminates: a successor that tolerates the cordon would start there at
// once, and the drain would never end.
func TestNoSuccessorOnACordonedNode(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "cordoned", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a)
	f.runs(old)
	f.image("ceph:17")
	ended := f.replacing(a)
	f.terminating(old)
	f.cordon("a", true)
	f.kill(old)
	require.NoError(t, ended())
	assert.Empty(t, f.names())
	s := f.survey()
	assert.Equal(t, rollout.DoAwait, s.Next.Do)
	assert.Contains(t, s.Next.Why, "is cordoned")

	f.cordon("a", false)
	do, next := f.next()
	assert.Equal(t, rollout.DoCreate, do)
	assert.Equal(t, keys(a), next)
}

// A batch was decided for a template; for another one nothing goes down.
func TestAnotherTemplateStopsABatch(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "moved", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a)
	f.image("ceph:17")
	decided := f.batch(a)
	f.image("ceph:18")

	_, answer, err := f.Spare(t.Context(), decided)
	require.NoError(t, err)
	assert.False(t, answer.OK)
	assert.NotEmpty(t, answer.Reason)
	require.NoError(t, f.Replace(t.Context(), decided))
	f.same(old)
	assert.Empty(t, f.wire.said(http.MethodDelete))

	arrival, err := f.Await(t.Context(), activities.AwaitInput{
		OSDSet: f.ref, Cluster: decided.Cluster,
		Template: decided.Template, Keys: keys(a),
	}, func(activities.Arrival) {})
	require.NoError(t, err)
	assert.True(t, arrival.Moved)
}

// Nor for a CephOSD that is gone, or whose spec makes no sense by now: what runs stays.
func TestAnotherSpecStopsABatch(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "senseless", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	old := f.has(a)
	f.image("ceph:17")
	decided := f.batch(a)
	f.write(`{"spec":{"storage":[{"hosts":["$a"],"osds":[{"data":"/dev/sdb"},{"data":"/dev/sdc","db":"/dev/sdb"}]}]}}`)
	s := f.survey()
	require.Len(t, s.Refused, 1)
	assert.Equal(t, "spec.storage[0].osds[1].db", s.Refused[0].Field)
	require.NoError(t, f.Replace(t.Context(), decided))
	f.same(old)

	cr := cephOSD(t, "osds", "{}")
	cr.SetNamespace(f.ns)
	require.NoError(t, server.Delete(t.Context(), cr))
	require.NoError(t, f.Replace(t.Context(), decided))
	f.same(old)
	f.creates(a)
	assert.Len(t, f.names(), 1)
}

// swap is two OSDs of one host that exchange their DBs.
func swap(t *testing.T, ns string) (f *osdSet, first, second *corev1.Pod) {
	t.Helper()
	f = newOSDSet(t, ns, `{updateDomain: Host, storage: [{hosts: [$a], osds: [{data: /dev/sdb, db: /dev/nvme0n1p1}, {data: /dev/sdc, db: /dev/nvme0n1p2}]}]}`, "a")
	first, second = f.has(f.osd("a", "/dev/sdb")), f.has(f.osd("a", "/dev/sdc"))
	f.runs(first)
	f.runs(second)
	f.write(`{"spec":{"storage":[{"hosts":["$a"],"osds":[{"data":"/dev/sdb","db":"/dev/nvme0n1p2"},{"data":"/dev/sdc","db":"/dev/nvme0n1p1"}]}]}}`)
	return f, first, second
}

// Both old pods have to be gone before either new one starts, although each has its own data device back earlier.
func TestSwappedDBs(t *testing.T) {
	t.Parallel()
	f, first, second := swap(t, "swapped")
	b, c := f.osd("a", "/dev/sdb"), f.osd("a", "/dev/sdc")
	do, next := f.next()
	require.Equal(t, rollout.DoReplace, do)
	require.Equal(t, keys(b, c), next)
	ended := f.replacing(b, c)
	f.terminating(first)
	f.terminating(second)
	f.kill(first)
	f.looksAgain()
	assert.Nil(t, f.pod(b), "the pod %s still has its DB", second.Name)
	assert.Equal(t, second.UID, f.pod(c).UID)

	f.kill(second)
	require.NoError(t, ended())
	require.Len(t, f.names(), 2)
	assert.Equal(t, "/dev/nvme0n1p2", f.pod(b).Annotations[podspec.DBAnnotation])
	assert.Equal(t, "/dev/nvme0n1p1", f.pod(c).Annotations[podspec.DBAnnotation])
}

// One at a time neither can go first: its successor would wait for the other for ever. So neither goes, and the spec is
// refused.
func TestSwappedDBsOneByOne(t *testing.T) {
	t.Parallel()
	f, first, second := swap(t, "swapped-one-by-one")
	f.write(`{"spec":{"updateDomain":"OSD"}}`)
	s := f.survey()
	require.Len(t, s.Refused, 1)
	assert.Contains(t, s.Refused[0].Field, "spec.storage[0].osds[")
	assert.Contains(t, s.Refused[0].Allowed, "another device")
	for _, o := range f.desired() {
		require.NoError(t, f.Replace(t.Context(), f.batch(o)))
	}
	f.same(first)
	f.same(second)
	assert.Empty(t, f.wire.said(http.MethodDelete))
}

// A DB that moves is given back before it is taken, whatever the alphabet says.
func TestAMovedDB(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "moved-db",
		`{storage: [{hosts: [$a], osds: [{data: /dev/sdb, db: /dev/nvme0n1p1}, {data: /dev/sdc, db: /dev/nvme0n1p2}]}]}`, "a")
	b, c := f.osd("a", "/dev/sdb"), f.osd("a", "/dev/sdc")
	f.has(b)
	f.has(c)
	f.write(`{"spec":{"storage":[{"hosts":["$a"],"osds":[{"data":"/dev/sdb","db":"/dev/nvme0n1p2"},{"data":"/dev/sdc","db":"/dev/nvme0n1p3"}]}]}}`)
	assert.Equal(t, keys(c, b), f.rollsOut())
	assert.Equal(t, "/dev/nvme0n1p2", f.pod(f.osd("a", "/dev/sdb")).Annotations[podspec.DBAnnotation])
}

// The DB's owner left the spec, and its data is needed still: nobody goes down to wait for it.
func TestTheDBOfAnOSDThatIsNeeded(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "needed-db",
		`{storage: [{hosts: [$a], osds: [{data: /dev/sdb, db: /dev/nvme0n1p1}, {data: /dev/sdc, db: /dev/nvme0n1p2}]}]}`, "a")
	c := f.osd("a", "/dev/sdc")
	first, second := f.has(f.osd("a", "/dev/sdb")), f.has(c)
	f.ceph.needs(c, "2 PGs need it")
	f.write(`{"spec":{"storage":[{"hosts":["$a"],"osds":[{"data":"/dev/sdb","db":"/dev/nvme0n1p2"}]}]}}`)
	b := f.osd("a", "/dev/sdb")
	s := f.survey()
	assert.NotEqual(t, rollout.DoReplace, s.Next.Do)
	assert.Equal(t, 1, s.Counts.OutOfDate)
	require.NoError(t, f.Replace(t.Context(), f.batch(b)))
	f.same(first)
	f.same(second)

	f.ceph.needs(c, "")
	require.NoError(t, f.Remove(t.Context(), f.ref, f.survey().Removable))
	assert.Equal(t, keys(b), f.rollsOut())
}

// Ceph has the last word about who may stop, and only as long as nothing has happened since the lease was granted.
func TestSpareAsksCeph(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "spare", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}, {data: /dev/sdc}]}]}`, "a")
	b, c := f.osd("a", "/dev/sdb"), f.osd("a", "/dev/sdc")
	f.has(b)
	broken := f.has(c)
	f.image("ceph:17")
	f.ceph.mu.Lock()
	f.ceph.firm = "3 PGs would be offline"
	f.ceph.mu.Unlock()
	_, answer, err := f.Spare(t.Context(), f.batch(b))
	require.NoError(t, err)
	assert.Equal(t, "3 PGs would be offline", answer.Reason)

	f.crashes(broken)
	spared, answer, err := f.Spare(t.Context(), f.batch(b, c))
	require.NoError(t, err)
	require.True(t, answer.OK, answer.Reason)
	assert.Equal(t, keys(c), keysOf(spared), "what is down takes nothing from anybody")

	f.ceph.mu.Lock()
	f.ceph.firm = ""
	f.ceph.mu.Unlock()
	in := f.batch(b)
	in.Epoch = 1
	_, answer, err = f.Spare(t.Context(), in)
	require.NoError(t, err)
	assert.False(t, answer.OK, "an OSD went down since")
}

// An OSD arrives when its pod is ready and Ceph tells of a later life than the one before.
func TestAwait(t *testing.T) {
	t.Parallel()
	f := newOSDSet(t, "await", `{storage: [{hosts: [$a], osds: [{data: /dev/sdb}]}]}`, "a")
	a := f.osd("a", "/dev/sdb")
	f.has(a)
	f.image("ceph:17")
	f.replaces(a)
	pod := f.pod(a)
	var why []string
	arrival, err := f.Await(t.Context(), f.awaiting(a), func(now activities.Arrival) {
		if last := len(why) - 1; last < 0 || why[last] != now.Waiting[0].Why {
			why = append(why, now.Waiting[0].Why)
			switch len(why) {
			case 1:
				f.ready(pod, corev1.ConditionTrue)
			case 2:
				f.ceph.starts(pod)
			}
		}
	})
	require.NoError(t, err)
	assert.Equal(t, activities.Arrival{}, arrival)
	require.Len(t, why, 2, "%q", why)
	assert.Contains(t, why[0], "pod "+pod.Name+" is not ready")
	assert.Contains(t, why[1], "osd.0 is not up in Ceph yet")
}
