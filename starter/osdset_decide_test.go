package starter

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// osdSetObjects are a CephOSD at rest, with two OSDs on each of two hosts.
func osdSetObjects() OSDSetObjects {
	o := OSDSetObjects{
		CephOSD: &cephv1alpha1.CephOSD{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ceph", Name: "osds", UID: "1", Generation: 3},
			Spec: cephv1alpha1.CephOSDSpec{Storage: []cephv1alpha1.Storage{{
				Hosts: []string{"node-a.local", "node-b.local"},
				OSDs:  []cephv1alpha1.OSDDevices{{Data: "/dev/sda"}, {Data: "/dev/sdb"}},
			}}},
			Status: cephv1alpha1.CephOSDStatus{
				ObservedGeneration: 3,
				Conditions:         []metav1.Condition{{Type: cephv1alpha1.ConditionUpToDate, Status: metav1.ConditionTrue}},
			},
		},
		Nodes:    []corev1.Node{*readyNode("node-a"), *readyNode("node-b")},
		Policies: []v1alpha1.MaintenancePolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "ceph", Name: "policy"}}},
	}
	for _, host := range o.CephOSD.Spec.Storage[0].Hosts {
		for _, data := range []string{"/dev/sda", "/dev/sdb"} {
			o.Pods = append(o.Pods, osdSetPodOf(host, data))
		}
	}
	return o
}

// osdSetPodOf is a pod as lockkeeper makes it.
func osdSetPodOf(host, data string) corev1.Pod {
	osd := podspec.OSD{Host: host, Data: data}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ceph", Name: podspec.PodName(osd), UID: types.UID("first " + osd.Key()),
			Labels: map[string]string{podspec.OwnerLabel: podspec.Owner("osds"), podspec.IDLabel: "1"},
			Annotations: map[string]string{
				podspec.HostAnnotation: host, podspec.DataAnnotation: data, podspec.StateAnnotation: string(podspec.UpToDate),
			},
			ManagedFields: []metav1.ManagedFieldsEntry{
				wrote(kube.FieldOwner, `{"f:metadata":{"f:annotations":{".":{},"f:ceph.elemental.net/pod-state":{}},"f:labels":{"f:ceph-osd-id":{}}},"f:spec":{"f:containers":{}}}`),
				{Manager: "kubelet", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func wrote(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
}

// annotate writes the state on a pod, as somebody.
func annotate(p *corev1.Pod, manager string, state podspec.State) {
	p.Annotations[podspec.StateAnnotation] = string(state)
	p.ManagedFields = []metav1.ManagedFieldsEntry{
		wrote(kube.FieldOwner, `{"f:spec":{"f:containers":{}}}`),
		wrote(manager, `{"f:metadata":{"f:annotations":{"f:ceph.elemental.net/pod-state":{}}}}`),
	}
}

func remove(o *OSDSetObjects, i int) { o.Pods = append(o.Pods[:i:i], o.Pods[i+1:]...) }

// unsettled is a rollout at work.
func unsettled(o *OSDSetObjects) { o.CephOSD.Status.Conditions[0].Status = metav1.ConditionFalse }

var osdSetTime = time.Unix(1_000_000, 0)

func TestDecideOSDSet(t *testing.T) {
	const a = "node-a.local:/dev/sda"
	nameOfA := podspec.PodName(podspec.OSD{Host: "node-a.local", Data: "/dev/sda"})
	both := func(edits ...func(*OSDSetObjects)) []func(*OSDSetObjects) { return edits }
	for name, test := range map[string]struct {
		before []func(*OSDSetObjects)
		now    func(*OSDSetObjects)
		want   string
	}{
		"nothing":    {now: func(*OSDSetObjects) {}},
		"a new spec": {now: func(o *OSDSetObjects) { o.CephOSD.Generation = 4 }, want: "the spec changed"},
		"its status": {now: unsettled},
		"was deleted": {now: func(o *OSDSetObjects) {
			o.CephOSD.DeletionTimestamp = &metav1.Time{Time: osdSetTime}
			o.CephOSD.Generation = 4
		}},
		"another one of that name": {
			now:  func(o *OSDSetObjects) { o.CephOSD.UID, o.CephOSD.Generation = "2", 1 },
			want: "generation 1 was not looked at yet",
		},
		"a pod is gone": {now: func(o *OSDSetObjects) { remove(o, 0) }, want: a + " has no pod"},
		"a host's pods are gone": {
			now: func(o *OSDSetObjects) { o.Pods = o.Pods[2:] }, want: a + " has no pod, node-a.local:/dev/sdb has no pod",
		},
		"a pod was evicted by its node": {
			now:  func(o *OSDSetObjects) { o.Pods[0].Status.Phase = corev1.PodFailed },
			want: a + " has no pod",
		},
		"a pod is terminating": {
			now: func(o *OSDSetObjects) { o.Pods[0].DeletionTimestamp = &metav1.Time{Time: osdSetTime} },
		},
		"a pod is not ready": {
			now: func(o *OSDSetObjects) { o.Pods[0].Status.Conditions = nil; o.Pods[0].Status.Phase = corev1.PodPending },
		},
		"a duplicate is gone": {
			before: both(func(o *OSDSetObjects) {
				d := osdSetPodOf("node-a.local", "/dev/sda")
				d.Name = "osd-node-a-sda-x7x7x"
				o.Pods = append(o.Pods, d)
			}),
			now: func(o *OSDSetObjects) { remove(o, 4) },
		},
		"a pod that lockkeeper made": {
			before: both(func(o *OSDSetObjects) { remove(o, 0) }),
			now:    func(o *OSDSetObjects) { o.Pods = osdSetObjects().Pods },
		},
		"a pod that lockkeeper made instead of another": {now: func(o *OSDSetObjects) { o.Pods[0].UID = "second" }},
		"a pod that somebody made instead of another": {
			now:  func(o *OSDSetObjects) { o.Pods[0].UID, o.Pods[0].ManagedFields = "second", nil },
			want: "pod " + nameOfA + " appeared",
		},
		"a pod of somebody else appears": {
			now: func(o *OSDSetObjects) {
				p := osdSetPodOf("node-a.local", "/dev/sdz")
				p.Name, p.ManagedFields = "mine", []metav1.ManagedFieldsEntry{wrote("kubectl", `{"f:spec":{}}`)}
				o.Pods = append(o.Pods, p)
			},
			want: "pod mine appeared",
		},
		"an override by up-to-date": {
			before: both(func(o *OSDSetObjects) { annotate(&o.Pods[0], kube.FieldOwner, podspec.Unready) }),
			now:    func(o *OSDSetObjects) { annotate(&o.Pods[0], "kubectl-annotate", podspec.UpToDate) },
			want:   `somebody wrote the state "up-to-date" on pod ` + nameOfA,
		},
		"an override by removal": {
			before: both(func(o *OSDSetObjects) { annotate(&o.Pods[0], kube.FieldOwner, podspec.Unready) }),
			now:    func(o *OSDSetObjects) { delete(o.Pods[0].Annotations, podspec.StateAnnotation) },
			want:   `somebody wrote the state "" on pod ` + nameOfA,
		},
		"lockkeeper's own note": {
			before: both(func(o *OSDSetObjects) { annotate(&o.Pods[0], kube.FieldOwner, podspec.Unready) }),
			now:    func(o *OSDSetObjects) { annotate(&o.Pods[0], kube.FieldOwner, podspec.UpToDate) },
		},
		"a person says which OSD it is": {
			now: func(o *OSDSetObjects) {
				o.Pods[0].Labels[podspec.IDLabel] = "7"
				o.Pods[0].ManagedFields[0] = wrote(kube.FieldOwner, `{"f:spec":{}}`)
			},
			want: `somebody wrote the number "7" on pod ` + nameOfA,
		},
		"a person takes away what says of which template it is": {
			before: both(func(o *OSDSetObjects) { o.Pods[0].Annotations[podspec.HashAnnotation] = "abc" }),
			now:    func(o *OSDSetObjects) { delete(o.Pods[0].Annotations, podspec.HashAnnotation) },
			want:   "somebody changed what pod " + nameOfA + " says of its template",
		},
		"a person says of which template it is": {
			now:  func(o *OSDSetObjects) { o.Pods[0].Annotations[podspec.HashAnnotation] = "abc" },
			want: "somebody changed what pod " + nameOfA + " says of its template",
		},
		"lockkeeper says of which template it is": {
			now: func(o *OSDSetObjects) {
				o.Pods[0].Annotations[podspec.HashAnnotation] = "abc"
				o.Pods[0].ManagedFields[0] = wrote(kube.FieldOwner,
					`{"f:metadata":{"f:annotations":{"f:ceph.elemental.net/pod-template-hash":{},`+
						`"f:ceph.elemental.net/pod-state":{}},"f:labels":{"f:ceph-osd-id":{}}},"f:spec":{"f:containers":{}}}`)
			},
		},
		"lockkeeper says which OSD it is": {now: func(o *OSDSetObjects) { o.Pods[0].Labels[podspec.IDLabel] = "7" }},
		"a person lets an OSD go": {
			now:  func(o *OSDSetObjects) { o.Pods[0].Annotations[podspec.RemoveAnnotation] = "true" },
			want: "pod " + nameOfA + " may be removed",
		},
		"a host is cordoned": {now: func(o *OSDSetObjects) { o.Nodes[0].Spec.Unschedulable = true }},
		"a host is uncordoned": {
			before: both(func(o *OSDSetObjects) { o.Nodes[0].Spec.Unschedulable = true }),
			now:    func(o *OSDSetObjects) { o.Nodes[0].Spec.Unschedulable = false },
			want:   "host node-a.local is in service again",
		},
		"a host is ready": {
			before: both(func(o *OSDSetObjects) { o.Nodes[0].Status.Conditions = nil }),
			now:    func(o *OSDSetObjects) { o.Nodes[0] = *readyNode("node-a") },
			want:   "host node-a.local is in service again",
		},
		"a host is uncordoned, and not ready": {
			before: both(func(o *OSDSetObjects) { o.Nodes[0].Spec.Unschedulable, o.Nodes[0].Status.Conditions = true, nil }),
			now:    func(o *OSDSetObjects) { o.Nodes[0].Spec.Unschedulable = false },
		},
		"a host appears": {
			before: both(func(o *OSDSetObjects) { o.Nodes = o.Nodes[1:] }),
			now:    func(o *OSDSetObjects) { o.Nodes = osdSetObjects().Nodes; o.Nodes[0].Status.Conditions = nil },
			want:   "host node-a.local is there",
		},
		"a host is deleted":      {now: func(o *OSDSetObjects) { o.Nodes = o.Nodes[1:] }},
		"a node that is no host": {now: func(o *OSDSetObjects) { o.Nodes = append(o.Nodes, *readyNode("node-c")) }},
		"the namespace has a policy": {
			before: both(func(o *OSDSetObjects) { o.Policies = nil }),
			now:    func(o *OSDSetObjects) { o.Policies = osdSetObjects().Policies },
			want:   "the policies of its namespace are policy now",
		},
		"the namespace has none": {
			now:  func(o *OSDSetObjects) { o.Policies = nil },
			want: "the policies of its namespace are none now",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := osdSetObjects()
			for _, edit := range test.before {
				edit(&o)
			}
			before := TakeOSDSet(o, nil, osdSetTime)
			test.now(&o)
			now := TakeOSDSet(o, &before, osdSetTime)
			assert.Equal(t, test.want, DecideOSDSet(&before, now))
			assert.Empty(t, DecideOSDSet(&now, TakeOSDSet(o, &now, osdSetTime)), "the same again is no news")
		})
	}
}

// What happened while nobody watched is made up for once.
func TestDecideOSDSetAtTheStart(t *testing.T) {
	for name, test := range map[string]struct {
		now  func(*OSDSetObjects)
		want string
	}{
		"at rest": {now: func(*OSDSetObjects) {}, want: "the watcher started"},
		"new": {
			now:  func(o *OSDSetObjects) { o.CephOSD.Status, o.Pods = cephv1alpha1.CephOSDStatus{}, nil },
			want: "generation 3 was not looked at yet",
		},
		"changed": {
			now:  func(o *OSDSetObjects) { o.CephOSD.Generation = 4 },
			want: "generation 4 was not looked at yet",
		},
		"in the middle":   {now: unsettled, want: "the watcher started, and not every OSD is up to date"},
		"one without pod": {now: func(o *OSDSetObjects) { remove(o, 3) }, want: "the watcher started"},
		"is being deleted": {now: func(o *OSDSetObjects) {
			unsettled(o)
			o.CephOSD.DeletionTimestamp = &metav1.Time{Time: osdSetTime}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := osdSetObjects()
			test.now(&o)
			now := TakeOSDSet(o, nil, osdSetTime)
			assert.Equal(t, test.want, DecideOSDSet(nil, now))
			assert.Empty(t, DecideOSDSet(&now, TakeOSDSet(o, &now, osdSetTime)), "once")
		})
	}
}

// A rollout at work deletes a pod and makes its successor. Only a pod that stays away is news to it.
func TestALossDuringARollout(t *testing.T) {
	take := func(before *OSDSetSnapshot, after time.Duration, edit func(*OSDSetObjects)) (OSDSetSnapshot, string) {
		o := osdSetObjects()
		unsettled(&o)
		edit(&o)
		now := TakeOSDSet(o, before, osdSetTime.Add(after))
		return now, DecideOSDSet(before, now)
	}
	whole := func(*OSDSetObjects) {}
	lost := func(o *OSDSetObjects) { remove(o, 0) }

	start, _ := take(nil, 0, whole)
	gone, reason := take(&start, time.Second, lost)
	assert.Empty(t, reason)
	assert.Equal(t, lossGrace, gone.lookAgain())

	back, reason := take(&gone, 2*time.Second, func(o *OSDSetObjects) { o.Pods[0].UID = "second" })
	assert.Empty(t, reason, "its successor")
	assert.Zero(t, back.lookAgain())

	away, reason := take(&gone, time.Second+lossGrace, lost)
	assert.Equal(t, "node-a.local:/dev/sda has no pod", reason)
	assert.Zero(t, away.lookAgain())
	_, reason = take(&away, time.Minute, lost)
	assert.Empty(t, reason, "once")
	o := osdSetObjects() // settled
	remove(&o, 0)
	assert.NotEmpty(t, DecideOSDSet(&gone, TakeOSDSet(o, &gone, osdSetTime.Add(2*time.Second))),
		"when the rollout has ended nobody makes one")
}

// Stripping must take nothing that a snapshot is made of, and what is left must be read again as what it was.
func TestAOSDSetSnapshotOfStrippedObjectsIsTheSame(t *testing.T) {
	whole := osdSetObjects()
	annotate(&whole.Pods[0], "kubectl-annotate", podspec.UpToDate)
	whole.Pods[1].Annotations[podspec.RemoveAnnotation] = "true"
	whole.Pods[1].ManagedFields = append(whole.Pods[1].ManagedFields, wrote("kubectl", `{`),
		metav1.ManagedFieldsEntry{Manager: "nobody"})
	whole.Nodes[1].Spec.Unschedulable = true
	whole.CephOSD.Spec.PodTemplate.Spec.Containers = []corev1.Container{{Name: "osd"}}
	want := TakeOSDSet(whole, nil, osdSetTime)
	assert.Equal(t, Note{Value: "up-to-date"}, want.Pods[whole.Pods[0].Name].State)
	assert.Equal(t, Note{Value: "up-to-date", Ours: true}, want.Pods[whole.Pods[1].Name].State)

	slim := OSDSetObjects{CephOSD: stripped(t, whole.CephOSD), Policies: whole.Policies}
	for i := range whole.Pods {
		slim.Pods = append(slim.Pods, *stripped(t, &whole.Pods[i]))
	}
	for i := range whole.Nodes {
		slim.Nodes = append(slim.Nodes, *stripped(t, &whole.Nodes[i]))
	}
	assert.Equal(t, want, TakeOSDSet(slim, nil, osdSetTime))
	assert.Empty(t, slim.CephOSD.Spec.PodTemplate.Spec.Containers)
	assert.Len(t, slim.Pods[1].ManagedFields, 1)
	assert.Len(t, maps.Collect(maps.All(slim.Pods[1].Annotations)), 4)
}

func BenchmarkOnePodAmongTenThousandOfACephOSD(b *testing.B) {
	o := osdSetObjects()
	o.Pods = nil
	s := &o.CephOSD.Spec.Storage[0]
	s.Hosts = nil
	for h := range 5000 {
		host := fmt.Sprintf("node-%d.local", h)
		s.Hosts = append(s.Hosts, host)
		for _, d := range s.OSDs {
			p := osdSetPodOf(host, d.Data)
			o.Pods = append(o.Pods, *stripped(b, &p))
		}
	}
	before := TakeOSDSet(o, nil, osdSetTime)
	o.Pods = o.Pods[1:]
	for b.Loop() {
		if DecideOSDSet(&before, TakeOSDSet(o, &before, osdSetTime)) == "" {
			b.Fatal("no reaction")
		}
	}
}
