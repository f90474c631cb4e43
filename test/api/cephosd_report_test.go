package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// What a rollout reports is in the status and in the events, for whoever only has kubectl: which field makes no sense,
// and what is the matter with the OSD that does not come back. Reported again it says nothing new.
func TestReportsOfARollout(t *testing.T) {
	p := newOSDPods(t, "reports")
	p.make()
	p.patch(`{"metadata":{"finalizers":null,"labels":{"ceph-osd-id":"3"}}}`)
	pod := p.pod()
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "osd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	}}
	require.NoError(t, server.Status().Update(t.Context(), pod))

	typed, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	osdSets := cephosd.New(typed, server, nil) // Ceph is not asked
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	report := activities.OSDSetReport{
		OSDSet:     activities.OSDSetRef{Kind: activities.OSDSetCephOSD, Namespace: p.ns, Name: "osds"},
		WorkflowID: "update-osds/reports/osds", Generation: 1, Template: p.set.Hash, Phase: "AwaitingOSDs",
		Message: "osd.3 to serve", Since: at, Counted: true,
		Counts: activities.OSDSetCounts{Counts: rollout.Counts{Total: 1, Unready: 1}},
		Batch:  &activities.OSDSetBatch{OSDs: []string{"osd.3"}, Since: at},
		Warned: []input.Error{
			{Field: "spec.storage[0].hosts[1]", Value: "nobody", Allowed: "must be a node"},
			{Field: "spec.storage[0].hosts[2]", Value: "none", Allowed: "must be a node"},
		},
	}
	send := func() {
		t.Helper()
		require.NoError(t, osdSets.Report(t.Context(), report))
	}
	events := func() (all []string) {
		t.Helper()
		var list corev1.EventList
		require.NoError(t, server.List(t.Context(), &list, client.InNamespace(p.ns)))
		for i := range list.Items {
			e := &list.Items[i]
			assert.Equal(t, "osds", e.InvolvedObject.Name)
			all = append(all, e.Type+" "+e.Reason+" "+e.Message)
		}
		return all
	}
	send()
	told := []string{
		`Warning Refused spec.storage[0].hosts[1]: "nobody": must be a node`,
		`Warning Refused spec.storage[0].hosts[2]: "none": must be a node`,
		"Normal RollingOut waits for osd.3 to serve",
	}
	assert.ElementsMatch(t, told, events())

	report.Since, report.Message = at.Add(time.Minute), "osd.3 to serve: it is slow"
	send()
	assert.ElementsMatch(t, told, events(), "a wait that is worded anew")
	got, set := fromServer(t, cephOSDNamed(p))
	assert.Equal(t, "waits for osd.3 to serve: it is slow", set.Status.Message)
	assert.True(t, set.Status.Since.Time.Equal(at))
	assert.Len(t, set.Status.Refused, 2)

	send()
	again, _ := fromServer(t, cephOSDNamed(p))
	assert.Equal(t, got.GetResourceVersion(), again.GetResourceVersion(), "nothing is written that stands there")

	report.Since, report.Halted = at.Add(2*time.Minute),
		&activities.Halt{Reason: "osd.3 to serve took longer than its deadline", Since: at.Add(2 * time.Minute)}
	send()
	send()
	_, set = fromServer(t, cephOSDNamed(p))
	why := "osd.3 to serve took longer than its deadline; osd.3: pod " + pod.Name +
		": its container osd waits: CrashLoopBackOff"
	require.NotNil(t, set.Status.Halted)
	assert.Equal(t, why, set.Status.Halted.Reason)
	assert.Equal(t, why+"; mend the template or the cause, and it goes on by itself; or excuse the OSD: lockkeeper skip "+
		"update-osds/reports/osds osd.3", set.Status.Message)
	assert.ElementsMatch(t, append(told, "Warning Halted "+set.Status.Message), events())

	report.OSDSet.Name = "gone"
	send()
}
