package starter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// osdSetWorld is a small Kubernetes with one CephOSD.
type osdSetWorld struct {
	t        *testing.T
	client   client.Client
	temporal *recorder
	watcher  *OSDSetReconciler
	at       time.Time
}

func newOSDSetWorld(t *testing.T) *osdSetWorld {
	t.Helper()
	o := osdSetObjects()
	objects := []client.Object{o.CephOSD, &o.Nodes[0], &o.Nodes[1], &o.Policies[0]}
	for i := range o.Pods {
		o.Pods[i].ManagedFields = nil // the API server's business
		objects = append(objects, &o.Pods[i])
	}
	other := osdSetPodOf("node-a.local", "/dev/sdx") // of another CephOSD
	other.ManagedFields = nil
	other.Labels = map[string]string{"ceph.elemental.net/owner": "CephOSD-others"}
	w := &osdSetWorld{t: t, temporal: &recorder{}, at: osdSetTime}
	w.client = fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(append(objects, &other)...).Build()
	w.watcher = &OSDSetReconciler{
		Objects: w.client, Temporal: w.temporal, Log: logr.Discard(),
		Now: func() time.Time { return w.at },
	}
	return w
}

var osdSetRequest = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ceph", Name: "osds"}}

func (w *osdSetWorld) reconcile() []string {
	w.t.Helper()
	_, err := w.watcher.Reconcile(w.t.Context(), osdSetRequest)
	require.NoError(w.t, err)
	return w.temporal.take()
}

func (w *osdSetWorld) cephOSD(change func(*cephv1alpha1.CephOSD)) {
	w.t.Helper()
	cr := &cephv1alpha1.CephOSD{}
	require.NoError(w.t, w.client.Get(w.t.Context(), osdSetRequest.NamespacedName, cr))
	change(cr)
	require.NoError(w.t, w.client.Update(w.t.Context(), cr))
}

func TestARolloutIsToldOfWhatItCannotSee(t *testing.T) {
	w := newOSDSetWorld(t)
	assert.Equal(t, []string{"roll out ceph/osds: the watcher started"}, w.reconcile())
	assert.Empty(t, w.reconcile(), "at rest")
	w.cephOSD(func(cr *cephv1alpha1.CephOSD) { cr.Generation = 4 })
	assert.Equal(t, []string{"roll out ceph/osds: the spec changed"}, w.reconcile())
	assert.Empty(t, w.reconcile())
	for i := range 2 {
		p := osdSetObjects().Pods[i]
		require.NoError(t, w.client.Delete(t.Context(), &p))
	}
	assert.Empty(t, w.reconcile(), "the rollout may be at it")
	w.at = w.at.Add(lossGrace)
	assert.Equal(t, []string{"roll out ceph/osds: node-a.local:/dev/sda has no pod, node-a.local:/dev/sdb has no pod"},
		w.reconcile())
}

func TestTemporalIsAwayForARollout(t *testing.T) {
	w := newOSDSetWorld(t)
	w.reconcile()
	w.temporal.away = errors.New("connection refused")
	w.cephOSD(func(cr *cephv1alpha1.CephOSD) { cr.Generation = 4 })
	for range 3 {
		_, err := w.watcher.Reconcile(t.Context(), osdSetRequest)
		require.ErrorIs(t, err, w.temporal.away)
	}
	w.cephOSD(func(cr *cephv1alpha1.CephOSD) { cr.Generation = 5 })
	w.temporal.away = nil
	assert.Equal(t, []string{"roll out ceph/osds: the spec changed, then the spec changed"}, w.reconcile())
	assert.Empty(t, w.reconcile())
}

func TestACephOSDThatGoesIsLeftAlone(t *testing.T) {
	w := newOSDSetWorld(t)
	w.reconcile()
	w.temporal.away = errors.New("connection refused")
	w.cephOSD(func(cr *cephv1alpha1.CephOSD) { cr.Generation, cr.Finalizers = 4, []string{"example.com/wait"} })
	_, err := w.watcher.Reconcile(t.Context(), osdSetRequest)
	require.Error(t, err)
	cr := &cephv1alpha1.CephOSD{ObjectMeta: metav1.ObjectMeta{Namespace: "ceph", Name: "osds"}}
	require.NoError(t, w.client.Delete(t.Context(), cr))
	w.temporal.away = nil
	assert.Empty(t, w.reconcile(), "what could not be told is void")
	w.cephOSD(func(cr *cephv1alpha1.CephOSD) { cr.Finalizers = nil })
	assert.Empty(t, w.reconcile())
	_, remembered := w.watcher.osdSets.Load(osdSetRequest.NamespacedName)
	assert.False(t, remembered)
}

// A burst of events is one look, a moment later.
func TestABurstIsOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		hear := soon(func(_ context.Context, o client.Object) []types.NamespacedName { return ownerOf(o) })
		o := osdSetObjects()
		for i := range o.Pods {
			hear.Delete(t.Context(), event.DeleteEvent{Object: &o.Pods[i]}, q)
			time.Sleep(gatherFor / 10)
		}
		assert.Zero(t, q.Len())
		time.Sleep(gatherFor)
		synctest.Wait()
		assert.Equal(t, 1, q.Len())
		got, _ := q.Get()
		assert.Equal(t, osdSetRequest, got)
	})
}

func TestWhomAnEventConcerns(t *testing.T) {
	w := newOSDSetWorld(t)
	o := osdSetObjects()
	assert.Equal(t, []types.NamespacedName{osdSetRequest.NamespacedName}, ownerOf(&o.Pods[0]))
	assert.Empty(t, ownerOf(osdPod(0, "node-a")), "a pod of Rook's")
	assert.Equal(t, []types.NamespacedName{osdSetRequest.NamespacedName}, osdSetsOf(t.Context(), w.client, ""))
	assert.Empty(t, osdSetsOf(t.Context(), w.client, "rook-ceph"))

	ready := o.Pods[0].DeepCopy()
	ready.ResourceVersion, ready.Status.Conditions = "2",
		[]corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	assert.False(t, mattersToOSDSet(&o.Pods[0], ready), "how a pod is")
	ended := ready.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	assert.True(t, mattersToOSDSet(ready, ended))
	noted := ready.DeepCopy()
	noted.Annotations["ceph.elemental.net/pod-state"] = "unready"
	assert.True(t, mattersToOSDSet(ready, noted))
	settled := o.CephOSD.DeepCopy()
	settled.Status.Conditions = nil
	assert.True(t, mattersToOSDSet(o.CephOSD, settled), "whether all is up to date says whether somebody is at work")
	reported := o.Policies[0].DeepCopy()
	reported.Status.MayDrain = "no"
	assert.False(t, mattersToOSDSet(&o.Policies[0], reported))
}

// Where only Rook runs OSDs nobody has installed the CephOSD's definition.
func TestWithoutCephOSDs(t *testing.T) {
	empty := meta.NewDefaultRESTMapper(nil)
	known, err := knowsCephOSDs(empty)
	require.NoError(t, err)
	assert.False(t, known)
	full := meta.NewDefaultRESTMapper(nil)
	full.Add(cephv1alpha1.GroupVersion.WithKind(cephv1alpha1.Kind), meta.RESTScopeNamespace)
	known, err = knowsCephOSDs(full)
	require.NoError(t, err)
	assert.True(t, known)
	_, err = knowsCephOSDs(brokenMapper{})
	require.ErrorContains(t, err, "connection refused")
}

type brokenMapper struct{ meta.RESTMapper }

func (brokenMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("connection refused")
}
