package api

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// wishWorld is a namespace with OSDs of ReplicaSets of their own, whose controller does not run: this test is it.
type wishWorld struct {
	*testing.T
	ns string
}

func (w wishWorld) osd(id int) (*appsv1.ReplicaSet, *corev1.Pod) {
	labels := map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": fmt.Sprint(id)}
	name := fmt.Sprintf("osd-%d", id)
	container := corev1.Container{Name: "osd", Image: "none"}
	r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	r.Spec.Replicas, r.Spec.Selector = new(int32(1)), &metav1.LabelSelector{MatchLabels: labels}
	r.Spec.Template.Labels, r.Spec.Template.Spec.Containers = labels, []corev1.Container{container}
	create(w.T, r)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.ns, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r,
			appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
	}}
	p.Spec = corev1.PodSpec{Containers: []corev1.Container{container}, NodeName: "a"}
	create(w.T, p)
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "osd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	require.NoError(w, server.Status().Update(w.Context(), p))
	return r, p
}

// cephOSD is one whose deletion takes its only OSD along, as the garbage collector sees it.
func (w wishWorld) cephOSD(id int) *cephv1alpha1.CephOSD {
	set := &cephv1alpha1.CephOSD{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "osds"}}
	set.Spec.Storage, set.Spec.DeletionPolicy = []cephv1alpha1.Storage{}, cephv1alpha1.DeleteOSDs
	set.Spec.PodTemplate.Spec.Containers = []corev1.Container{{Name: "osd", Image: "none"}}
	create(w.T, set)
	_, p := w.osd(id)
	p.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(set, cephv1alpha1.GroupVersion.WithKind(cephv1alpha1.Kind)),
	}
	require.NoError(w, server.Update(w.Context(), p))
	return set
}

// wants writes how many pods a ReplicaSet wants, and whether its controller was refused to delete.
func (w wishWorld) wants(r *appsv1.ReplicaSet, replicas int32, refused bool) {
	r.Spec.Replicas = &replicas
	require.NoError(w, server.Update(w.Context(), r))
	r.Status.Conditions = nil
	if refused {
		r.Status.Conditions = []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedDelete",
			LastTransitionTime: metav1.Now(),
		}}
	}
	require.NoError(w, server.Status().Update(w.Context(), r))
}

// TestTheWatcherSeesWishes with its own rights, by its informers: that a pod is wanted gone, and that it is not any
// more; and tells nothing that is not so.
func TestTheWatcherSeesWishes(t *testing.T) {
	t.Parallel()
	w := wishWorld{t, "wishes"}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	p := policy(t, "rook-ceph", `{ceph: {}}`)
	p.SetNamespace(w.ns)
	create(t, p)
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	apply(t, filepath.Join(*root, "deploy", "storage-namespace.yaml"), w.ns)
	watcher := startWatcher(t, asAccount(config, "lockkeeper-watcher"), starter.Options{Namespace: w.ns})
	defer watcher.stop()
	temporal := watcher.told
	sets := make([]*appsv1.ReplicaSet, 4)
	var pod *corev1.Pod
	for i := range sets {
		sets[i], pod = w.osd(i)
	}
	require.Eventually(t, func() bool { return temporal.hint().Reason != "" }, apiserver.Patience, 20*time.Millisecond)
	time.Sleep(time.Second)
	require.Empty(t, temporal.waiting(), "nobody wants anything")

	var took []time.Duration
	heard := 0
	expect := func(what string) {
		t.Helper()
		began := time.Now()
		require.Eventually(t, func() bool { return len(temporal.waiting()) > heard }, apiserver.Patience,
			time.Millisecond, what)
		took = append(took, time.Since(began))
		require.Equal(t, "wishes/rook-ceph, "+what, temporal.waiting()[heard])
		heard++
	}
	for range 5 {
		w.wants(sets[1], 0, true)
		expect("start true: osd.1 is to go")
		w.wants(sets[1], 1, false)
		expect("start false: osd.1 is not to go any more")
	}
	slices.Sort(took)
	t.Logf("a wish is seen after %s at the median, %s at the most", took[len(took)/2], took[len(took)-1])

	w.wants(sets[2], 0, false)
	expect("start true: osd.2 is to go") // after a while, since nobody says that it was refused
	require.NoError(t, server.Delete(t.Context(), sets[3], client.PropagationPolicy(metav1.DeletePropagationBackground)))
	expect("start true: osd.3 is to go")
	require.NoError(t, server.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	time.Sleep(time.Second)
	require.Len(t, temporal.waiting(), heard, "that its pod has gone is no news: another one still waits")
	w.wants(sets[2], 1, false)
	expect("start false: osd.2 is not to go any more")

	set := w.cephOSD(4)
	time.Sleep(time.Second)
	require.Len(t, temporal.waiting(), heard, "its CephOSD is there")
	require.NoError(t, server.Delete(t.Context(), set))
	expect("start true: osd.4 is to go")

	live := &appsv1.ReplicaSet{}
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(sets[0]), live))
	live.Labels = map[string]string{"any": "change"}
	require.NoError(t, server.Update(t.Context(), live))
	time.Sleep(time.Second)
	require.Len(t, temporal.waiting(), heard)
}
