package api

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/test/hammer"
)

// This file is about who deletes, what runs in the pod, and other ways to stop it.

// TestWhoMayDelete goes through everybody who deletes pods, with an OSD that runs in a failure domain that is not open.
func TestWhoMayDelete(t *testing.T) {
	const may, mayNot = true, false
	w := newGuardWorld(t, "who-may-delete")
	w.pod("osd", osd("3", "y"))
	w.pod("failed", osd("4", "y"), phase(corev1.PodFailed))
	kubelet := who{user: "system:node:node-a", groups: []string{"system:nodes"}}
	for name, c := range map[string]struct {
		by  who
		may bool
	}{
		"a person":                      {person, mayNot},
		"the ReplicaSet controller":     {own("replicaset-controller"), mayNot},
		"the StatefulSet controller":    {own("statefulset-controller"), mayNot},
		"the DaemonSet controller":      {own("daemon-set-controller"), mayNot},
		"the Job controller":            {own("job-controller"), mayNot},
		"the garbage collector":         {own("generic-garbage-collector"), mayNot},
		"the namespace controller":      {own("namespace-controller"), mayNot}, // while the namespace stays
		"the taint manager":             {own("taint-eviction-controller"), mayNot},
		"the taint manager before 1.29": {own("node-controller"), mayNot},
		"the pod garbage collector":     {own("pod-garbage-collector"), mayNot}, // what it has not called Failed
		"whoever of them, shared":       {shared, mayNot},
		"the scheduler":                 {who{user: "system:kube-scheduler"}, mayNot},
		"Rook's operator":               {account("rook-ceph", "rook-ceph-system"), mayNot},
		"Karpenter":                     {account("kube-system", "karpenter"), mayNot},
		"lockkeeper's watcher":          {account("lockkeeper-system", "lockkeeper-watcher"), mayNot},
		"another lockkeeper's worker":   {account("elsewhere", "lockkeeper-worker"), mayNot},
		"lockkeeper's worker":           {theWorker, may},
		"a kubelet":                     {kubelet, may},
	} {
		t.Run(name, func(t *testing.T) {
			says, no := refused(t, w.try(c.by, "osd"))
			require.Equal(t, c.may, !no, says)
			_, no = refused(t, w.try(c.by, "osd", client.GracePeriodSeconds(0)))
			require.Equal(t, c.may, !no, "--force")
			require.NoError(t, w.try(c.by, "failed"), "nothing runs in it")
		})
	}
}

// TestWhatMayBeDeleted: whoever asks, it depends on what runs in the pod.
func TestWhatMayBeDeleted(t *testing.T) {
	const may, mayNot = true, false
	w := newGuardWorld(t, "what-may-be-deleted")
	n := 0
	for name, c := range map[string]struct {
		pod []podOption
		may bool
	}{
		"ready":                                  {nil, mayNot},
		"not ready, as on a silent node":         {[]podOption{unready}, mayNot},
		"without any condition":                  {[]podOption{func(p *corev1.Pod) { p.Status.Conditions = nil }}, mayNot},
		"of an unknown phase":                    {[]podOption{phase(corev1.PodUnknown)}, mayNot},
		"Pending":                                {[]podOption{phase(corev1.PodPending), containers("osd", waiting)}, may},
		"Succeeded":                              {[]podOption{phase(corev1.PodSucceeded), containers("osd", ended)}, may},
		"Failed":                                 {[]podOption{phase(corev1.PodFailed), containers("osd", ended)}, may},
		"Failed, by the pod GC":                  {[]podOption{phase(corev1.PodFailed)}, may},
		"in a crash loop":                        {[]podOption{containers("osd", waiting), unready}, may},
		"between two runs":                       {[]podOption{containers("osd", ended), unready}, may},
		"no container yet":                       {[]podOption{noContainers}, may},
		"a crash loop beside what collects logs": {[]podOption{containers("log-collector", running, "osd", waiting)}, may},
		"a mon in one":                           {[]podOption{containers("mon", waiting, "log-collector", running)}, may},
		"what collects logs crashes":             {[]podOption{containers("log-collector", waiting, "osd", running)}, mayNot},
		"containers of other names":              {[]podOption{containers("exporter", waiting, "daemon", running)}, mayNot},
		"other names, nothing runs":              {[]podOption{containers("exporter", waiting, "daemon", ended)}, may},
		"without a failure domain":               {[]podOption{without(zone)}, mayNot},
		"without a number":                       {[]podOption{without("ceph-osd-id")}, mayNot},
		"proved":                                 {[]podOption{labelled(storageview.MarkLabel, "any")}, mayNot},
		"a manager":                              {[]podOption{labelled("app", "rook-ceph-mgr")}, may},
		"somebody else's":                        {[]podOption{labelled("app", "shop")}, may},
		"without labels":                         {[]podOption{func(p *corev1.Pod) { p.Labels = nil }}, may},
		"a mon":                                  {[]podOption{labelled("app", "rook-ceph-mon", "ceph_daemon_id", "a")}, may},
	} {
		n++
		t.Run(name, func(t *testing.T) {
			pod := fmt.Sprint("pod-", n)
			w.pod(pod, append([]podOption{osd("3", "y")}, c.pod...)...)
			for _, by := range []who{person, own("replicaset-controller"), shared} {
				says, no := refused(t, w.try(by, pod))
				require.Equal(t, c.may, !no, "%s: %s", by.user, says)
			}
		})
	}

	w.pod("leaving", osd("3", "y"), func(p *corev1.Pod) { p.Finalizers = []string{"example.com/stays"} })
	require.NoError(t, w.as(theWorker).Delete(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "leaving"}}))
	require.NoError(t, w.try(person, "leaving"), "terminates already")
}

// TestOtherWaysToStopAPod: a new image, a deadline and a resize that restarts the container stop what runs in a pod
// that stays; several pods may be deleted by one request.
func TestOtherWaysToStopAPod(t *testing.T) {
	w := newGuardWorld(t, "other-ways")
	w.pod("x", osd("1", "x"))
	w.pod("x-crashes", osd("2", "x"), containers("osd", waiting))
	change := func(by who, pod, patch string) error {
		return w.as(by).Patch(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: pod}},
			client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.DryRunAll)
	}
	const image = `{"spec":{"containers":[{"name":"osd","image":"ceph:21"}]}}`
	for _, c := range []struct {
		patch string
		may   bool
	}{
		{image, false},
		{`{"spec":{"activeDeadlineSeconds":1}}`, false},
		{`{"metadata":{"labels":{"a":"b"}}}`, true},
		{`{"metadata":{"annotations":{"a":"b"}}}`, true},
		{`{"spec":{"tolerations":[{"key":"a","operator":"Exists"}]}}`, true},
		{`{}`, true},
	} {
		says, no := refused(t, change(person, "x", c.patch))
		require.Equal(t, c.may, !no, "%s: %s", c.patch, says)
		require.NoError(t, change(person, "x-crashes", c.patch), c.patch)
	}
	w.budgets(leavingOut("x"))
	require.NoError(t, change(person, "x", image))
	w.budgets(budget.Specs{Daemons: closed, Unproved: &closed})

	create(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "resizes"},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		}},
	})
	w.pod("x-resized", osd("3", "x"), resizable)
	for _, c := range []struct {
		resources string
		may       bool
	}{
		{`{"limits":{"memory":"2Gi"}}`, false},
		{`{"requests":{"memory":"512Mi"}}`, false},
		{`{"limits":{"cpu":"2"}}`, true},
		{`{"limits":{"cpu":"2","memory":"1Gi"}}`, true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "x-resized"}}
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"osd","resources":%s}]}}`, c.resources)
		err := w.as(person).SubResource("resize").Patch(t.Context(), pod,
			client.RawPatch(types.StrategicMergePatchType, []byte(patch)),
			&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		says, no := refused(t, err)
		require.Equal(t, c.may, !no, "%s: %s", c.resources, says)
	}

	err := w.as(person).DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(w.ns), client.DryRunAll)
	says, no := refused(t, err)
	require.True(t, no)
	require.Contains(t, says, "has to wait for its turn")
	err = w.as(person).DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(w.ns),
		client.MatchingLabels{"ceph-osd-id": "2"}, client.DryRunAll)
	require.NoError(t, err)
}

// resizable is a pod whose container is restarted when it gets more or less memory, and not when it gets more CPU.
func resizable(p *corev1.Pod) {
	p.Spec.NodeName = "resizes"
	c := &p.Spec.Containers[0]
	c.ResizePolicy = []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
		{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
	}
	c.Resources = corev1.ResourceRequirements{
		Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		},
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		},
	}
	p.Status.ContainerStatuses[0].Resources = &c.Resources // its kubelet can do it
}

// TestWhatGoesOnBesideTheGuard: an eviction is asked of the budgets alone, and what taint manager and scheduler write
// on a pod before they delete it says nothing of whether they may.
func TestWhatGoesOnBesideTheGuard(t *testing.T) {
	w := newGuardWorld(t, "beside-the-guard")
	w.pod("x", osd("1", "x"))
	w.pod("y", osd("2", "y"))
	w.budgets(leavingOut("x"))
	typed, err := kubernetes.NewForConfig(person.config())
	require.NoError(t, err)
	evict := func(name string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		return hammer.Evict(t.Context(), typed, pod, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	require.NoError(t, evict("x"))
	no := evict("y")
	require.True(t, apierrors.IsTooManyRequests(no), "the budget's answer, and not the guard's: %v", no)

	for _, by := range []who{own("taint-eviction-controller"), {user: "system:kube-scheduler"}} {
		pod := &corev1.Pod{}
		require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "y"}, pod))
		pod.Status.Conditions = append(pod.Status.Conditions[:1], corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager",
		})
		require.NoError(t, w.as(by).Status().Update(t.Context(), pod))
		_, no := refused(t, w.try(by, "y"))
		require.True(t, no)
	}
}
