package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// recorder is a Temporal that remembers what it was asked for, and can be away.
type recorder struct {
	away  error
	calls []string
	hints []workflows.Hint
	kept  workflows.Kept
	// cannot is why the keeper gives no answer, although Temporal does.
	cannot error
}

func (r *recorder) did(format string, args ...any) error {
	if r.away == nil {
		r.calls = append(r.calls, fmt.Sprintf(format, args...))
	}
	return r.away
}

func (r *recorder) SignalKeeper(_ context.Context, cluster storage.ClusterKey, hint workflows.Hint) error {
	if r.away == nil {
		r.hints = append(r.hints, hint)
	}
	return r.did("signal %s: %s", cluster, hint.Reason)
}

func (r *recorder) EnsureKeeper(_ context.Context, cluster storage.ClusterKey) error {
	return r.did("ensure %s", cluster)
}

func (r *recorder) RestartKeeper(_ context.Context, cluster storage.ClusterKey) error {
	return r.did("restart %s", cluster)
}

func (r *recorder) Kept(context.Context, storage.ClusterKey) (workflows.Kept, error) {
	return r.kept, cmp.Or(r.away, r.cannot)
}

func (r *recorder) StartDrain(_ context.Context, in workflows.DrainNodeInput) error {
	return r.did("drain %s of %s, observe %t: %s", in.Node, in.Policy, in.Observe, in.Reason)
}

func (r *recorder) TakeUpDrain(_ context.Context, in workflows.DrainNodeInput) (bool, error) {
	return true, r.did("take up the drain %s of %s, observe %t: %s", in.Node, in.Policy, in.Observe, in.Reason)
}

func (r *recorder) SignalScaleDown(_ context.Context, in workflows.ScaleDownNodeInput, reason string) error {
	return r.did("scale down %s: %s", in.Node, reason)
}

func (r *recorder) SignalMons(_ context.Context, namespace, name, reason string) error {
	return r.did("look at the mons of %s/%s: %s", namespace, name, reason)
}

func (r *recorder) SignalRollout(_ context.Context, namespace, name, reason string) error {
	return r.did("roll out %s/%s: %s", namespace, name, reason)
}

func (r *recorder) SignalWaiting(_ context.Context, cluster storage.ClusterKey, reason string, start bool) error {
	return r.did("restart what waits in %s, start %t: %s", cluster, start, reason)
}

// take returns the calls since the last take.
func (r *recorder) take() []string {
	calls := r.calls
	r.calls = nil
	return calls
}

// world is a small Kubernetes with one Rook-shaped Ceph cluster: node-a with osd.0, node-b with osd.1.
type world struct {
	t        *testing.T
	client   client.Client
	temporal *recorder
	events   *events.FakeRecorder
	watcher  *Reconciler
	at       time.Time // stands still but for later
}

func newWorld(t *testing.T) *world {
	t.Helper()
	policy := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "rook-ceph", Name: "ceph",
		Generation: 1,
	}, Spec: v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}}}
	w := &world{t: t, temporal: &recorder{}, events: events.NewFakeRecorder(10), at: time.Now()}
	w.client = fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(
		policy, readyNode("node-a"), readyNode("node-b"),
		osdDeployment(0, "node-a"), osdDeployment(1, "node-b"), osdPod(0, "node-a"), osdPod(1, "node-b"),
	).Build()
	w.watcher = &Reconciler{
		Objects: w.client, Temporal: w.temporal, Events: w.events, Log: logr.Discard(),
		Now: func() time.Time { return w.at },
	}
	return w
}

func readyNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name + ".local"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func osdLabels(id int) map[string]string {
	return map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": fmt.Sprint(id)}
}

// pinned is how Rook ties an OSD to its host: by the hostname label, which need not be the node's name.
func pinned(node string) map[string]string {
	return map[string]string{corev1.LabelHostname: node + ".local"}
}

func osdDeployment(id int, node string) *appsv1.Deployment {
	one := int32(1)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rook-ceph", Name: fmt.Sprintf("rook-ceph-osd-%d", id),
			Labels: osdLabels(id),
		},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: osdLabels(id)}, Spec: corev1.PodSpec{NodeSelector: pinned(node)},
		}},
	}
}

func osdPod(id int, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rook-ceph", Name: fmt.Sprintf("rook-ceph-osd-%d", id),
			Labels: osdLabels(id),
		},
		Spec: corev1.PodSpec{NodeName: node, NodeSelector: pinned(node)},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// pending is what the Deployment puts in the place of an evicted pod.
func pending(p *corev1.Pod) {
	p.Spec.NodeName = ""
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
}

func ready(p *corev1.Pod) {
	as := osdPod(0, "node-a")
	p.Spec.NodeName, p.Status = as.Spec.NodeName, as.Status
}

func edit[O client.Object](w *world, o O, change func(O)) {
	w.t.Helper()
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(o), o))
	change(o)
	status, ok := o.DeepCopyObject().(O)
	require.True(w.t, ok)
	require.NoError(w.t, w.client.Update(w.t.Context(), o))
	if _, isPod := any(o).(*corev1.Pod); isPod { // its status is a subresource
		status.SetResourceVersion(o.GetResourceVersion())
		require.NoError(w.t, w.client.Status().Update(w.t.Context(), status))
	}
}

// reconcile returns what Temporal was asked for.
// reconcile does so until nothing is left that waits for more.
func (w *world) reconcile() []string {
	w.t.Helper()
	if w.once() > 0 {
		w.later(echoAfter)
		require.Zero(w.t, w.once())
	}
	return w.temporal.take()
}

var rookCeph = types.NamespacedName{Namespace: "rook-ceph", Name: "ceph"}

// once reconciles once, and returns for how long what is pending can wait.
func (w *world) once() time.Duration {
	w.t.Helper()
	if after := w.again(); after <= echoAfter {
		return after
	}
	return 0
}

// again reconciles once, and returns after what time it has to be done again.
func (w *world) again() time.Duration {
	w.t.Helper()
	r, err := w.watcher.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: rookCeph})
	require.NoError(w.t, err)
	return r.RequeueAfter
}

// later lets time pass.
func (w *world) later(d time.Duration) { w.at = w.at.Add(d) }

// TestADrainThatWasTerminatedIsTakenUp: it has left its cordon, and nothing changes on the node when somebody else goes
// on. So it is asked about for as long as no job has a claim.
func TestADrainThatWasTerminatedIsTakenUp(t *testing.T) {
	w := newWorld(t)
	lease := func(l v1alpha1.LeaseStatus) {
		edit(w, &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "ceph"}},
			func(p *v1alpha1.MaintenancePolicy) { p.Status.Lease = l })
	}
	const takeUp = "take up the drain node-a of rook-ceph/ceph, observe true: node-a is cordoned, and " +
		"osd.0 on node-a is pending"
	edit(w, readyNode("node-a"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	edit(w, osdPod(0, "node-a"), pending)
	lease(v1alpha1.LeaseStatus{Queue: []v1alpha1.LeaseClaim{{WorkflowID: "drain/node-a", Node: "node-a"}}})
	w.reconcile()
	assert.Zero(t, w.again(), "its job waits for the lease")

	lease(v1alpha1.LeaseStatus{Holders: []v1alpha1.LeaseClaim{{WorkflowID: "drain/node-b", Node: "node-b"}}})
	assert.Equal(t, ensureEvery, w.again().Round(time.Second))
	w.later(ensureEvery)
	assert.Empty(t, w.temporal.take(), "a job that has just begun has no claim yet")
	for range 2 {
		assert.Equal(t, ensureEvery, w.again().Round(time.Second))
		assert.Equal(t, []string{takeUp}, w.temporal.take())
		assert.Equal(t, ensureEvery, w.again().Round(time.Second))
		assert.Empty(t, w.temporal.take(), "once a minute")
		w.later(ensureEvery)
	}

	edit(w, osdPod(0, "node-a"), ready)
	w.later(backAfter)
	w.reconcile()
	assert.Zero(t, w.again(), "nothing is missing")
}

func TestWhatCanWaitIsToldAtOnce(t *testing.T) {
	w := newWorld(t)
	edit(w, readyNode("node-a"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	edit(w, osdPod(0, "node-a"), pending)
	w.reconcile()

	edit(w, readyNode("node-a"), func(n *corev1.Node) { n.Spec.Unschedulable = false })
	assert.Positive(t, w.once(), "an uncordoned node opens and closes nothing")
	assert.Empty(t, w.temporal.take())
	edit(w, osdPod(0, "node-a"), ready)
	left := w.once()
	assert.Positive(t, left)
	assert.LessOrEqual(t, left, backAfter, "what comes later does not begin the wait anew")
	w.later(backAfter)
	assert.Zero(t, w.once())
	assert.Equal(t, []string{"signal rook-ceph/ceph: node-a is uncordoned, then osd.0 is ready"}, w.temporal.take())

	edit(w, osdPod(0, "node-a"), pending)
	assert.Zero(t, w.once(), "an OSD that stopped serving waits for nothing")
	assert.Equal(t, []string{"signal rook-ceph/ceph: osd.0 on node-a is pending"}, w.temporal.take())
	edit(w, osdPod(0, "node-a"), ready)
	assert.Positive(t, w.once())
	edit(w, readyNode("node-b"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	assert.Zero(t, w.once(), "who waits goes along with what cannot")
	assert.Equal(t, []string{"signal rook-ceph/ceph: osd.0 is ready, then node-b is cordoned"}, w.temporal.take())
}

const started = "signal rook-ceph/ceph: the watcher started"

func TestADrainFromOutside(t *testing.T) {
	w := newWorld(t)
	assert.Equal(t, []string{started}, w.reconcile())
	assert.Empty(t, w.reconcile(), "at rest")

	edit(w, readyNode("node-a"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	assert.Equal(t, []string{"signal rook-ceph/ceph: node-a is cordoned"}, w.reconcile())

	edit(w, osdPod(0, "node-a"), pending)
	assert.Equal(t, []string{
		"signal rook-ceph/ceph: osd.0 on node-a is pending",
		"drain node-a of rook-ceph/ceph, observe true: node-a is cordoned, and osd.0 on node-a is pending",
	}, w.reconcile())

	require.NoError(t, w.client.Delete(t.Context(), osdPod(0, "node-a")))
	assert.Equal(t, []string{"signal rook-ceph/ceph: osd.0 on node-a has no pod"}, w.reconcile(),
		"the same episode: no second drain")

	require.NoError(t, w.client.Create(t.Context(), osdPod(0, "node-a")))
	edit(w, readyNode("node-a"), func(n *corev1.Node) { n.Spec.Unschedulable = false })
	assert.Equal(t, []string{"signal rook-ceph/ceph: osd.0 is ready, node-a is uncordoned"}, w.reconcile())
	assert.Empty(t, w.reconcile())
}

func TestADeletedNodeIsKnownByItsHostnameOnly(t *testing.T) {
	w := newWorld(t)
	w.reconcile()
	edit(w, osdPod(0, "node-a"), func(p *corev1.Pod) { p.Status.Conditions = nil })
	require.NoError(t, w.client.Delete(t.Context(), readyNode("node-a")))
	assert.Equal(t, []string{
		"signal rook-ceph/ceph: osd.0 on node-a is not ready, node-a is deleted",
		"drain node-a of rook-ceph/ceph, observe true: node-a is deleted, and osd.0 on node-a is not ready",
	}, w.reconcile())
	// The replacement is pinned to a hostname that no node explains any more.
	edit(w, osdPod(0, "node-a"), pending)
	assert.Equal(t, []string{"signal rook-ceph/ceph: osd.0 on node-a is pending"}, w.reconcile())
}

func TestTemporalIsAway(t *testing.T) {
	w := newWorld(t)
	w.reconcile()
	w.temporal.away = errors.New("connection refused")
	edit(w, readyNode("node-a"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	edit(w, osdPod(0, "node-a"), pending)
	edit(w, readyNode("node-b"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	edit(w, osdPod(1, "node-b"), pending)
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "rook-ceph", Name: "ceph"}}
	for range 3 {
		_, err := w.watcher.Reconcile(t.Context(), req)
		require.ErrorIs(t, err, w.temporal.away)
	}
	// node-b comes back before anybody could be told.
	edit(w, readyNode("node-b"), func(n *corev1.Node) { n.Spec.Unschedulable = false })
	edit(w, osdPod(1, "node-b"),
		func(p *corev1.Pod) { p.Spec, p.Status = osdPod(1, "node-b").Spec, osdPod(1, "node-b").Status })

	w.temporal.away = nil
	assert.Equal(t, []string{
		"signal rook-ceph/ceph: osd.0 on node-a is pending, osd.1 on node-b is pending, node-a is cordoned, and 1 more, " +
			"then osd.1 is ready, node-b is uncordoned",
		"drain node-a of rook-ceph/ceph, observe true: node-a is cordoned, and osd.0 on node-a is pending",
	}, w.reconcile(), "both are told, and the drain that is over is not started")
	assert.Empty(t, w.reconcile())
}

func TestAStaticBudgetAndReplicas(t *testing.T) {
	w := newWorld(t)
	w.reconcile()
	rgw := map[string]string{"app": "rook-ceph-rgw", "rook_object_store": "store"}
	two := int32(2)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rgw", Labels: rgw},
		Spec: appsv1.DeploymentSpec{
			Replicas: &two,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: rgw}},
		},
	}
	require.NoError(t, w.client.Create(t.Context(), d))
	assert.Equal(t, []string{"signal rook-ceph/ceph: rgw store: 2 replicas instead of 0"}, w.reconcile())
	assert.True(t, w.temporal.hints[len(w.temporal.hints)-1].Daemons)

	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
		Namespace: "rook-ceph", Name: "lockkeeper-ceph-osd",
		Labels: map[string]string{kube.LabelManagedBy: kube.FieldOwner, kube.LabelPolicy: "ceph", kube.LabelDaemon: "osd"},
	}}
	require.NoError(t, w.client.Create(t.Context(), b))
	assert.Equal(t, []string{"signal rook-ceph/ceph: budget lockkeeper-ceph-osd appeared"}, w.reconcile())
	assert.False(t, w.temporal.hints[len(w.temporal.hints)-1].Daemons)
	require.NoError(t, w.client.Delete(t.Context(), b))
	assert.Equal(t, []string{"signal rook-ceph/ceph: budget lockkeeper-ceph-osd is deleted"}, w.reconcile())
}

// TestACordonUnderAMon: its mon may go only when the keeper has heard of it, though no OSD runs there.
func TestACordonUnderAMon(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.client.Create(t.Context(), readyNode("node-m")))
	m := osdPod(0, "node-m")
	m.Name, m.Labels, m.Spec.NodeSelector = "rook-ceph-mon-a",
		map[string]string{"app": "rook-ceph-mon", "ceph_daemon_id": "a"}, nil
	require.NoError(t, w.client.Create(t.Context(), m))
	w.reconcile()
	edit(w, readyNode("node-m"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	assert.Equal(t, []string{"signal rook-ceph/ceph: node-m is cordoned"}, w.reconcile())
	edit(w, readyNode("node-b"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	assert.Equal(t, []string{"signal rook-ceph/ceph: node-b is cordoned"}, w.reconcile())
}

func TestAnInvalidPolicyIsToldOnce(t *testing.T) {
	w := newWorld(t)
	w.reconcile()
	policy := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "ceph"}}
	edit(w, policy, func(p *v1alpha1.MaintenancePolicy) {
		p.Generation = 2
		p.Spec.Ceph.OSDs.Selector = &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}},
		}
	})
	assert.Equal(t, []string{"signal rook-ceph/ceph: the policy changed"}, w.reconcile(),
		"the keeper says so in the status")
	assert.Contains(t, <-w.events.Events, `spec.ceph.osds.selector: "Like" is not a valid label selector operator`)
	assert.Empty(t, w.reconcile())
	assert.Empty(t, w.events.Events)
}

func TestThePolicyGoes(t *testing.T) {
	w := newWorld(t)
	w.reconcile()
	policy := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "ceph"}}
	edit(w, policy, func(p *v1alpha1.MaintenancePolicy) { p.Finalizers = []string{kube.Finalizer} })
	require.NoError(t, w.client.Delete(t.Context(), policy))
	assert.Equal(t, []string{"signal rook-ceph/ceph: the policy is being deleted"}, w.reconcile())
	w.watcher.ensureAll(t.Context())
	assert.Equal(t, []string{"ensure rook-ceph/ceph"}, w.temporal.take(), "somebody has to let it go")

	edit(w, policy, func(p *v1alpha1.MaintenancePolicy) { p.Finalizers = nil })
	assert.Empty(t, w.reconcile(), "the keeper let it go itself")
	w.watcher.ensureAll(t.Context())
	assert.Empty(t, w.temporal.take())
}

func TestThePolicyGoesWithoutItsKeeper(t *testing.T) {
	w := newWorld(t)
	w.reconcile()
	require.NoError(t, w.client.Delete(t.Context(),
		&v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "ceph"}}))
	assert.Equal(t, []string{"signal rook-ceph/ceph: the policy is deleted"}, w.reconcile())
	assert.Empty(t, w.reconcile())
}

// TestTwoPolicies: the younger keeper hears that it is the second, and when the older policy is gone, that it is in
// charge.
func TestTwoPolicies(t *testing.T) {
	w := newWorld(t)
	older := &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "a-first"},
		Spec:       v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}},
	}
	w.reconcile()
	require.NoError(t, w.client.Create(t.Context(), older))
	assert.Equal(t, []string{"signal rook-ceph/ceph: policy a-first was first to look after the same storage cluster"},
		w.reconcile())
	require.NoError(t, w.client.Delete(t.Context(), older))
	assert.Equal(t, []string{"signal rook-ceph/ceph: policy a-first no longer looks after the same storage cluster"},
		w.reconcile())
}

func (r *recorder) SignalFence(context.Context, workflows.FenceNodeInput, string, bool) error {
	return nil
}
