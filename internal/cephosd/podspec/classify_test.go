package podspec_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// twoOSDs is a CephOSD with two OSDs, a:/dev/sdb with a DB, and a:/dev/sdc.
func twoOSDs(t require.TestingT) (podspec.Set, []podspec.OSD) {
	set := read(t, `{storage: [{hosts: [a], osds: [{data: /dev/sdb, db: /dev/nvme0n1p1}, {data: /dev/sdc}]}]}`)
	desired, refused := set.Desired()
	require.Empty(t, refused)
	return set, desired
}

// Pods of the table below are rendered by us, and then changed as these say, in this order.
type change func(*corev1.Pod)

func named(name string) change { return func(p *corev1.Pod) { p.Name = name } }

func with(annotation, value string) change {
	return func(p *corev1.Pod) { p.Annotations[annotation] = value }
}

func without(annotations ...string) change {
	return func(p *corev1.Pod) {
		for _, a := range annotations {
			delete(p.Annotations, a)
		}
	}
}

func state(s podspec.State) change { return with(podspec.StateAnnotation, string(s)) }

func isReady(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}
}

func crashes(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "osd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
	}
}

func unschedulable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Message: "0/3 nodes are available",
	}}
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

func number(p *corev1.Pod) { p.Labels[podspec.IDLabel] = "7" }

// runningSince has a pod's container run, and not be ready, since a second of the test's day.
func runningSince(second int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		crashes(p)
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Date(2026, 1, 1, 0, 0, second, 0, time.UTC)},
		}
	}
}

func running(p *corev1.Pod) { p.Spec.NodeName = "a" }

func evicted(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
}

// down is what we write onto a pod that was released and serves no more.
func down(p *corev1.Pod) {
	p.Annotations[podspec.StateAnnotation], p.Annotations[podspec.ReleasedAnnotation] = string(podspec.Unready), ""
}

// up marks a pod whose OSD Ceph says is up.
func up(p *corev1.Pod) { p.Labels["up"] = "yes" }

func older(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{Time: now.Add(-time.Hour)} }

// released is what we write onto a pod that was seen ready and up.
func released(p *corev1.Pod) {
	maps.Copy(p.Annotations, podspec.Release(now))
}

// original makes it a pod of the original operator, which released it.
func original(p *corev1.Pod) {
	device := p.Annotations[podspec.DataAnnotation]
	p.Name = "osd-a-" + device[strings.LastIndex(device, "/")+1:] + "-x7k2p"
	p.Annotations[podspec.StateAnnotation] = "up-to-date"
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "ceph.elemental.net/v1alpha1", Kind: "CephOSD", Name: "osds",
		UID: "uid-of-osds", Controller: &yes,
	}}
}

func ofReplicaSet(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "osd-a-sdb-x7k2p",
		Controller: &yes,
	}}
}

// tell says in lines what was found: the state and name of each pod with what is remarkable, and the OSDs without any.
// Names that follow from the OSD are left out.
func tell(c podspec.Classified) []string {
	out := []string{}
	for _, list := range [][]podspec.Pod{
		c.UpToDate, c.OutOfDate, c.Ready, c.Unready, c.Invalid, c.Superfluous,
		c.Terminating, c.Foreign,
	} {
		for _, p := range list {
			line := string(p.State) + " " + p.OSD.Key()
			if p.Name != podspec.PodName(p.OSD) {
				line += " " + p.Name
			}
			if p.Overridden {
				line += ", overridden"
			}
			if p.Serving && p.State == podspec.Invalid {
				line += ", serving"
			}
			if p.MayServe {
				line += ", may serve"
			}
			if slices.ContainsFunc(c.NotReady, func(n podspec.Pod) bool { return n.Name == p.Name }) {
				line += ", not ready"
			}
			if slices.ContainsFunc(c.Disowned, func(n podspec.Pod) bool { return n.Name == p.Name }) {
				line += ", disowned"
			}
			if p.Why != "" {
				line += ": " + p.Why
			}
			out = append(out, line)
		}
	}
	for _, o := range c.Missing {
		out = append(out, "missing "+o.Key())
	}
	return out
}

// The states and their logic, one after the other as Classify's comment says. The second OSD, a:/dev/sdc, has a good
// pod unless a case gives it another.
func TestClassify(t *testing.T) {
	type pods [][]change
	const sdb, sdc = "a:/dev/sdb", "a:/dev/sdc"
	set, desired := twoOSDs(t)
	otherHash := with(podspec.HashAnnotation, "0123456789abcdef")
	gone := podspec.OSD{Host: "a", Data: "/dev/sdz"}
	for name, c := range map[string]struct {
		sdb, gone pods // pods of a:/dev/sdb, and of one that the spec does not name
		want      []string
	}{
		"all is well": {sdb: pods{{released, isReady}}, want: []string{"up-to-date " + sdb}},
		"none":        {want: []string{"missing " + sdb}},
		"just made":   {sdb: pods{{}}, want: []string{"unready " + sdb + ", not ready: its containers do not run yet"}},
		"waits, crashes": {
			sdb:  pods{{crashes}},
			want: []string{"unready " + sdb + ", not ready: its container osd waits: CrashLoopBackOff"},
		},
		"has no node": {
			sdb:  pods{{unschedulable}},
			want: []string{"unready " + sdb + ", not ready: it has no node: 0/3 nodes are available"},
		},
		"waits, ready":   {sdb: pods{{isReady}}, want: []string{"ready " + sdb}},
		"was seen ready": {sdb: pods{{state(podspec.Ready), isReady}}, want: []string{"ready " + sdb}},
		"was ready, is not": {
			sdb:  pods{{state(podspec.Ready), crashes}},
			want: []string{"unready " + sdb + ", not ready: its container osd waits: CrashLoopBackOff"},
		},
		"other words for waiting": {
			sdb: pods{{original, state("wait-for-ready"), crashes}},
			want: []string{"unready " + sdb +
				" osd-a-sdb-x7k2p, not ready, disowned: its container osd waits: CrashLoopBackOff"},
		},
		"waiting, of the documents": {sdb: pods{{state("waiting"), isReady}}, want: []string{"ready " + sdb}},
		"a word that nobody knows": {
			sdb:  pods{{state("up-to-dat"), crashes}},
			want: []string{"unready " + sdb + ", not ready: its container osd waits: CrashLoopBackOff"},
		},
		"released, crashes": {
			sdb:  pods{{released, crashes}},
			want: []string{"up-to-date " + sdb + ", not ready: its container osd waits: CrashLoopBackOff"},
		},
		"has fallen": {
			sdb:  pods{{released, down, crashes}},
			want: []string{"up-to-date " + sdb + ", not ready: its container osd waits: CrashLoopBackOff"},
		},
		"has fallen, excused": {
			sdb:  pods{{released, down, state(podspec.UpToDate), crashes}},
			want: []string{"up-to-date " + sdb + ", overridden: its container osd waits: CrashLoopBackOff"},
		},
		"adopted, fallen, excused": {
			sdb: pods{{original, released, down, state(podspec.UpToDate), crashes}},
			want: []string{"up-to-date " + sdb +
				" osd-a-sdb-x7k2p, overridden, disowned: its container osd waits: CrashLoopBackOff"},
		},
		"released by a person": {
			sdb:  pods{{state(podspec.UpToDate), crashes}},
			want: []string{"up-to-date " + sdb + ", overridden: its container osd waits: CrashLoopBackOff"},
		},
		"its state taken away": {
			sdb:  pods{{without(podspec.StateAnnotation), crashes}},
			want: []string{"up-to-date " + sdb + ", overridden: its container osd waits: CrashLoopBackOff"},
		},
		"the same after a release": {
			sdb:  pods{{released, without(podspec.StateAnnotation), crashes}},
			want: []string{"up-to-date " + sdb + ", overridden: its container osd waits: CrashLoopBackOff"},
		},
		"no state, and ready": {
			sdb:  pods{{without(podspec.StateAnnotation), isReady}},
			want: []string{"up-to-date " + sdb + ", overridden"},
		},
		"another template": {
			sdb:  pods{{released, isReady, otherHash}},
			want: []string{"out-of-date " + sdb + ": its template has the hash 0123456789abcdef, not " + set.Hash},
		},
		"another template, waits": {
			sdb:  pods{{crashes, otherHash}},
			want: []string{"out-of-date " + sdb + ", not ready: its template has the hash 0123456789abcdef, not " + set.Hash},
		},
		"the template came back": {
			sdb:  pods{{released, state(podspec.OutOfDate), isReady}},
			want: []string{"up-to-date " + sdb},
		},
		"came back before a release": {
			sdb:  pods{{state(podspec.OutOfDate), crashes}},
			want: []string{"unready " + sdb + ", not ready: its container osd waits: CrashLoopBackOff"},
		},
		"another DB": {
			sdb:  pods{{released, isReady, with(podspec.DBAnnotation, "/dev/nvme9n1p9")}},
			want: []string{"out-of-date " + sdb + ": its DB is /dev/nvme9n1p9, not /dev/nvme0n1p1"},
		},
		"no DB yet": {
			sdb:  pods{{released, isReady, without(podspec.DBAnnotation)}},
			want: []string{"out-of-date " + sdb + ": its DB is none, not /dev/nvme0n1p1"},
		},
		"a WAL no more": {
			sdb:  pods{{released, isReady, with(podspec.WALAnnotation, "/dev/w")}},
			want: []string{"out-of-date " + sdb + ": its WAL is /dev/w, not none"},
		},
		"adopted": {
			sdb:  pods{{original, isReady}},
			want: []string{"up-to-date " + sdb + " osd-a-sdb-x7k2p, disowned"},
		},
		"adopted, crashes": {sdb: pods{{original, crashes}}, want: []string{"up-to-date " + sdb +
			" osd-a-sdb-x7k2p, not ready, disowned: its container osd waits: CrashLoopBackOff"}},
		"adopted, another template": {sdb: pods{{original, isReady, otherHash}}, want: []string{"out-of-date " + sdb +
			" osd-a-sdb-x7k2p, disowned: its template has the hash 0123456789abcdef, not " + set.Hash}},
		"adopted from a ReplicaSet": {
			sdb: pods{{
				original, isReady, without(podspec.HashAnnotation),
				func(p *corev1.Pod) { p.Labels["ceph.elemental.net/template-hash"] = "f" },
			}}, want: []string{"out-of-date " + sdb +
				" osd-a-sdb-x7k2p, disowned: nobody knows from which template it was made"},
		},
		"a wrong name": {
			sdb:  pods{{named("osd-b-sdb-x7k2p"), isReady}},
			want: []string{"invalid " + sdb + " osd-b-sdb-x7k2p, serving: its name should be osd-a-sdb-pn5b54h6ir"},
		},
		"without a hash": {
			sdb:  pods{{without(podspec.HashAnnotation), isReady}},
			want: []string{"invalid " + sdb + ", serving: it lacks ceph.elemental.net/pod-template-hash"},
		},
		"without a device": {
			sdb:  pods{{without(podspec.DataAnnotation), isReady}},
			want: []string{"invalid " + sdb + ", serving: it lacks ceph.elemental.net/data"},
		},
		"without a host": {
			sdb:  pods{{without(podspec.HostAnnotation), isReady, running}},
			want: []string{"invalid " + sdb + ", serving: it lacks ceph.elemental.net/host"},
		},
		"without a host, adopted": {
			sdb:  pods{{original, without(podspec.HostAnnotation), isReady, running}},
			want: []string{"invalid " + sdb + " osd-a-sdb-x7k2p, serving, disowned: it lacks ceph.elemental.net/host"},
		},
		"without, and terminating": {
			sdb:  pods{{original, without(podspec.DataAnnotation), terminating, running}},
			want: []string{"terminating " + sdb + " osd-a-sdb-x7k2p"},
		},
		"without, and ended": {
			sdb:  pods{{without(podspec.DataAnnotation), evicted}},
			want: []string{"invalid " + sdb + ": it has ended: Failed Evicted"},
		},
		"without, and a better one": {
			sdb: pods{{released, isReady}, {original, older, without(podspec.DataAnnotation), isReady}},
			want: []string{"up-to-date " + sdb, "invalid " + sdb +
				" osd-a-sdb-x7k2p, disowned: osd-a-sdb-pn5b54h6ir is a pod of a:/dev/sdb already"},
		},
		"nobody knows which": {
			sdb: pods{{named("x"), without(podspec.DataAnnotation), isReady, running}},
			want: []string{"foreign a: x: which OSD the pod x is is not known, and it may have any device of its host: " +
				"annotate it with ceph.elemental.net/data, or delete it", "missing " + sdb},
		},
		"nobody knows, never ran": {
			sdb:  pods{{named("x"), without(podspec.DataAnnotation), unschedulable}},
			want: []string{"invalid a: x: it lacks ceph.elemental.net/data", "missing " + sdb},
		},
		"known by its number": {
			sdb:  pods{{released, isReady, number}, {named("x"), without(podspec.DataAnnotation), number, crashes, running}},
			want: []string{"up-to-date " + sdb, "invalid " + sdb + " x: osd-a-sdb-pn5b54h6ir is a pod of a:/dev/sdb already"},
		},
		"made by hand": {
			sdb: pods{{
				named("mine"), without(podspec.HostAnnotation, podspec.DataAnnotation, podspec.HashAnnotation), isReady,
			}},
			want: []string{"foreign : mine: it has none of the annotations of an OSD's pod", "missing " + sdb},
		},
		"of a ReplicaSet": {
			sdb:  pods{{original, ofReplicaSet, isReady}},
			want: []string{"foreign " + sdb + " osd-a-sdb-x7k2p: ReplicaSet osd-a-sdb-x7k2p looks after it"},
		},
		"terminating": {sdb: pods{{released, isReady, terminating}}, want: []string{"terminating " + sdb}},
		"terminating, and a new one": {
			sdb: pods{{original, terminating}, {}},
			want: []string{"unready " + sdb + ", not ready: its containers do not run yet", "terminating " + sdb +
				" osd-a-sdb-x7k2p"},
		},
		"terminating, made by hand": {
			sdb: pods{{
				without(podspec.HostAnnotation, podspec.DataAnnotation, podspec.HashAnnotation), terminating,
				named("mine"),
			}}, want: []string{"terminating : mine", "missing " + sdb},
		},
		"ended": {
			sdb:  pods{{released, evicted}},
			want: []string{"invalid " + sdb + ": it has ended: Failed Evicted"},
		},
		"ended, and a new one": {
			sdb: pods{{original, older, evicted}, {}},
			want: []string{"unready " + sdb + ", not ready: its containers do not run yet", "invalid " + sdb +
				" osd-a-sdb-x7k2p, disowned: it has ended: Failed Evicted"},
		},
		"duplicate, the older stays": {
			sdb: pods{{released, isReady}, {original, older, isReady}},
			want: []string{"up-to-date " + sdb + " osd-a-sdb-x7k2p, disowned", "invalid " + sdb +
				": osd-a-sdb-x7k2p is a pod of a:/dev/sdb already"},
		},
		"duplicate, the ready stays": {
			sdb: pods{{released, isReady}, {original, older, crashes}},
			want: []string{"up-to-date " + sdb, "invalid " + sdb +
				" osd-a-sdb-x7k2p, disowned: osd-a-sdb-pn5b54h6ir is a pod of a:/dev/sdb already"},
		},
		"duplicate, the one that runs stays, ready or not": {
			sdb: pods{{released, crashes}, {named("copy"), runningSince(5)}},
			want: []string{"invalid " + sdb + " copy, serving: its name should be osd-a-sdb-pn5b54h6ir", "invalid " + sdb +
				": copy is a pod of a:/dev/sdb already"},
		},
		"duplicate, both run": {
			sdb: pods{{released, runningSince(5)}, {named("copy"), runningSince(4)}},
			want: []string{"invalid " + sdb + " copy, serving: its name should be osd-a-sdb-pn5b54h6ir", "invalid " + sdb +
				", may serve: copy is a pod of a:/dev/sdb already, neither is ready, and both run: which of them serves will " +
				"show when one ends"},
		},
		"duplicate, both run, and one is ready": {
			sdb:  pods{{released, isReady}, {named("copy"), runningSince(4)}},
			want: []string{"up-to-date " + sdb, "invalid " + sdb + " copy: osd-a-sdb-pn5b54h6ir is a pod of a:/dev/sdb already"},
		},
		"duplicate, another template": {
			sdb: pods{{crashes}, {original, otherHash, isReady}},
			want: []string{"out-of-date " + sdb +
				" osd-a-sdb-x7k2p, disowned: its template has the hash 0123456789abcdef, not " + set.Hash, "invalid " + sdb +
				": osd-a-sdb-x7k2p is a pod of a:/dev/sdb already"},
		},
		"duplicate, a wrong name": {
			sdb: pods{{released, isReady}, {named("osd-b-sdb-x7k2p"), older, isReady}},
			want: []string{"up-to-date " + sdb, "invalid " + sdb +
				" osd-b-sdb-x7k2p: osd-a-sdb-pn5b54h6ir is a pod of a:/dev/sdb already"},
		},
		"superfluous": {
			sdb: pods{{released, isReady}}, gone: pods{{released, isReady}},
			want: []string{"up-to-date " + sdb, "superfluous a:/dev/sdz: spec.storage does not name a:/dev/sdz"},
		},
		"superfluous, without a hash": {
			sdb:  pods{{released, isReady}},
			gone: pods{{without(podspec.HashAnnotation), isReady}},
			want: []string{"up-to-date " + sdb, "superfluous a:/dev/sdz: spec.storage does not name a:/dev/sdz"},
		},
		"superfluous, whatever it has": {
			sdb: pods{{released, isReady}}, gone: pods{{named("x"), evicted}},
			want: []string{"up-to-date " + sdb, "superfluous a:/dev/sdz x: spec.storage does not name a:/dev/sdz"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := []*corev1.Pod{render(set, desired[1], released, isReady)}
			for _, changes := range c.sdb {
				all = append(all, render(set, desired[0], changes...))
			}
			for _, changes := range c.gone {
				all = append(all, render(set, gone, changes...))
			}
			want := append([]string{"up-to-date " + sdc}, c.want...)
			for range 2 { // in whatever order they come
				assert.ElementsMatch(t, want, tell(set.Classify(desired, all)))
				slices.Reverse(all)
			}
		})
	}
}

func render(set podspec.Set, o podspec.OSD, changes ...change) *corev1.Pod {
	pod := set.Render(o, podspec.Knowledge{})
	pod.CreationTimestamp = metav1.Time{Time: now}
	for _, c := range changes {
		c(pod)
	}
	return pod
}

// With deletionPolicy Delete it is the pods without an owner that are disowned.
func TestDisownedFollowsTheDeletionPolicy(t *testing.T) {
	set, desired := twoOSDs(t)
	orphan, owned := render(set, desired[0], released, isReady), render(set, desired[1], original, isReady)
	set.Spec.DeletionPolicy = "Delete"
	assert.Equal(t, []string{"up-to-date a:/dev/sdb, disowned", "up-to-date a:/dev/sdc osd-a-sdc-x7k2p"},
		tell(set.Classify(desired, []*corev1.Pod{orphan, owned})))
}

// What is written onto a pod leads to the same state the next time, and a person's word stays until the pod is ready.
func TestAnnotations(t *testing.T) {
	set, desired := twoOSDs(t)
	stamp := podspec.Release(now)
	fallen := map[string]string{podspec.StateAnnotation: string(podspec.Unready), podspec.ReleasedAnnotation: ""}
	for name, c := range map[string]struct {
		pod  []change
		want map[string]string
	}{
		"says it":                 {[]change{released, isReady, up}, nil},
		"serves no more":          {[]change{released, crashes, up}, fallen},
		"is up no more":           {[]change{released, isReady}, fallen},
		"adopted, serves no more": {[]change{original, released, crashes}, fallen},
		"serves again":            {[]change{released, down, isReady, up}, stamp},
		"excused after a fall":    {[]change{released, down, state(podspec.UpToDate), crashes}, nil},
		"is ready":                {[]change{isReady}, map[string]string{podspec.StateAnnotation: "ready"}},
		"is ready no more": {
			[]change{state(podspec.Ready), crashes},
			map[string]string{podspec.StateAnnotation: "unready"},
		},
		"was called something": {
			[]change{state("wait-for-ready"), crashes},
			map[string]string{podspec.StateAnnotation: "unready"},
		},
		"is out of date": {
			[]change{released, with(podspec.HashAnnotation, "f")},
			map[string]string{podspec.StateAnnotation: "out-of-date"},
		},
		"is not any more": {
			[]change{released, state(podspec.OutOfDate), isReady, up},
			map[string]string{podspec.StateAnnotation: "up-to-date"},
		},
		"is adopted":               {[]change{original, isReady, up}, stamp},
		"is adopted, is not up":    {[]change{original, isReady}, nil},
		"is adopted, crashes":      {[]change{original, crashes}, nil},
		"a person said so":         {[]change{state(podspec.UpToDate), crashes}, nil},
		"a person took it away":    {[]change{without(podspec.StateAnnotation), crashes}, nil},
		"a person was right":       {[]change{without(podspec.StateAnnotation), isReady, up}, stamp},
		"ready, and not up":        {[]change{without(podspec.StateAnnotation), isReady}, nil},
		"up, and not ready":        {[]change{state(podspec.UpToDate), crashes, up}, nil},
		"served, after a word":     {[]change{state(podspec.UpToDate), isReady, up}, stamp},
		"and after a release":      {[]change{released, without(podspec.StateAnnotation), isReady, up}, stamp},
		"it is not ours to change": {[]change{ofReplicaSet, isReady}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := render(set, desired[0], c.pod...)
			first := only(t, set.Classify(desired, []*corev1.Pod{pod}))
			first.Up = pod.Labels["up"] != ""
			got := first.Annotations(now)
			assert.Equal(t, c.want, got)
			maps.Copy(pod.Annotations, got)
			second := only(t, set.Classify(desired, []*corev1.Pod{pod}))
			assert.Equal(t, first.State, second.State)
			assert.Equal(t, first.Overridden && (!first.Up || !first.Ready), second.Overridden,
				"a word lasts until the OSD has served")
			second.Up = first.Up
			assert.Nil(t, second.Annotations(now), "once is enough")
		})
	}
}

func only(t *testing.T, c podspec.Classified) podspec.Pod {
	t.Helper()
	all := slices.Concat(c.UpToDate, c.OutOfDate, c.Ready, c.Unready, c.Invalid, c.Superfluous, c.Terminating, c.Foreign)
	require.Len(t, all, 1)
	return all[0]
}

// Two OSDs exchange their DBs: neither may start before the other has let go.
func TestBusy(t *testing.T) {
	before := read(t, `{storage: [{hosts: [a, b], osds: [{data: /dev/x, db: /dev/1}, {data: /dev/y, db: /dev/2}]}]}`)
	after := read(t, `{storage: [{hosts: [a], osds: [{data: /dev/x, db: /dev/2}, {data: /dev/y, db: /dev/3}]}, {hosts: [b], osds: [{data: /dev/x, db: /dev/1}, {data: /dev/y, db: /dev/2}]}]}`)
	osds, _ := before.Desired()
	var pods []*corev1.Pod
	for _, o := range osds {
		pods = append(pods, render(before, o, released, isReady))
	}
	desired, refused := after.Desired()
	require.Empty(t, refused)
	c := after.Classify(desired, pods)
	assert.Equal(t, map[string]string{"a:/dev/x": "the pod " + podspec.PodName(osds[1]) + " still has /dev/2"}, c.Busy)
	assert.Len(t, c.OutOfDate, 2)

	terminating(pods[1])
	assert.Len(t, after.Classify(desired, pods).Busy, 1, "it may still write")
	evicted(pods[1])
	assert.Empty(t, after.Classify(desired, pods).Busy)
}

// A pod of which nobody knows which OSD it is may have any device of its host, wherever it says that it runs.
func TestStraysKeepTheirHost(t *testing.T) {
	set := read(t, `{storage: [{hosts: [a, b], osds: [{data: /dev/x}, {data: /dev/y}]}]}`)
	desired, _ := set.Desired()
	lost := render(set, desired[0], named("x"), without(podspec.HostAnnotation, podspec.DataAnnotation))
	for name, where := range map[string]change{
		"by its node": func(p *corev1.Pod) { p.Spec.Affinity, p.Spec.NodeName = nil, "a" },
		"by its bond": func(*corev1.Pod) {},
		"by its host": func(p *corev1.Pod) { p.Spec.Affinity, p.Annotations[podspec.HostAnnotation] = nil, "a" },
		"it ends":     terminating,
	} {
		t.Run(name, func(t *testing.T) {
			pod := lost.DeepCopy()
			where(pod)
			c := set.Classify(desired, []*corev1.Pod{pod})
			assert.Len(t, c.Missing, 4)
			assert.ElementsMatch(t, []string{"a:/dev/x", "a:/dev/y"}, slices.Collect(maps.Keys(c.Busy)))
			assert.Contains(t, c.Busy["a:/dev/x"], "which OSD the pod x is is not known")
			evicted(pod)
			assert.Empty(t, set.Classify(desired, []*corev1.Pod{pod}).Busy)
		})
	}
}

// An owner that controls nothing takes the pod with it all the same.
func TestEveryCephOSDIsAnOwner(t *testing.T) {
	set, desired := twoOSDs(t)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x"}
	pod := render(set, desired[0], released, isReady, func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{other, {Kind: "CephOSD", Name: "osds", UID: "uid-of-osds"}}
	})
	assert.Len(t, set.Classify(desired, []*corev1.Pod{pod}).Disowned, 1)
	assert.Equal(t, []metav1.OwnerReference{other}, set.OwnersOf(pod))
	pod.OwnerReferences = set.OwnersOf(pod)
	assert.Empty(t, set.Classify(desired, []*corev1.Pod{pod}).Disowned)
}

// Whatever pods there are: every OSD that is wanted has at most one pod that counts, none is missing that has one, no
// pod is in two lists, and of the pods of an OSD a ready one is not given up for one that is not.
func TestClassifyAlways(t *testing.T) {
	set, desired := twoOSDs(t)
	changes := []change{
		isReady, crashes, evicted, terminating, older, original, ofReplicaSet, released, without(podspec.HashAnnotation),
		without(podspec.DataAnnotation),
		without(podspec.StateAnnotation), with(podspec.HashAnnotation, "f"), with(podspec.DataAnnotation, "/dev/sdz"),
		state(podspec.OutOfDate), state("?"), named("x"),
	}
	rapid.Check(t, func(t *rapid.T) {
		var pods []*corev1.Pod
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			pod := render(set, rapid.SampledFrom(desired).Draw(t, "osd"))
			for _, c := range rapid.SliceOfN(rapid.SampledFrom(changes), 0, 4).Draw(t, "changes") {
				c(pod)
			}
			taken := slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Name == pod.Name })
			if rapid.Bool().Draw(t, "another name") || taken {
				pod.Name = fmt.Sprintf("%s-%d", pod.Name, i)
			}
			pods = append(pods, pod)
		}
		c := set.Classify(desired, pods)
		counting := map[string]podspec.Pod{}
		for _, p := range slices.Concat(c.UpToDate, c.OutOfDate, c.Ready, c.Unready) {
			if other, twice := counting[p.OSD.Key()]; twice {
				t.Fatalf("%s and %s both count for %s", p.Name, other.Name, p.OSD.Key())
			}
			counting[p.OSD.Key()] = p
		}
		others := slices.Concat(c.Invalid, c.Superfluous, c.Terminating, c.Foreign)
		if len(counting)+len(others) != len(pods) {
			t.Fatalf("%d pods became %d and %d", len(pods), len(counting), len(others))
		}
		for _, p := range c.Invalid {
			if kept, ok := counting[p.OSD.Key()]; ok && p.Ready && !p.Serving && !kept.Ready {
				t.Fatalf("%s is ready, and %s is kept", p.Name, kept.Name)
			}
		}
		for _, o := range c.Missing {
			if slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
				return p.Annotations[podspec.HostAnnotation]+":"+p.Annotations[podspec.DataAnnotation] == o.Key()
			}) {
				t.Fatalf("%s has a pod and is missing", o.Key())
			}
		}
	})
}

func TestDiffers(t *testing.T) {
	set, desired := twoOSDs(t)
	rendered := set.Render(desired[0], podspec.Knowledge{})
	assert.Empty(t, podspec.Differs(render(set, desired[0], original, isReady), rendered),
		"how it was rendered does not count")
	assert.Equal(t, "its DB is none, not /dev/nvme0n1p1",
		podspec.Differs(render(set, desired[0], without(podspec.DBAnnotation)), rendered))
	assert.Equal(t, "its template has the hash f, not "+set.Hash,
		podspec.Differs(render(set, desired[0], with(podspec.HashAnnotation, "f")), rendered))
	assert.Equal(t, "it is a:/dev/sdc, not a:/dev/sdb", podspec.Differs(render(set, desired[1]), rendered))
}
