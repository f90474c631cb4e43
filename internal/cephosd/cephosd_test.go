package cephosd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

const (
	twoOSDs  = "updateDomain: Host\nstorage: [{hosts: [a], osds: [{data: /x}, {data: /y}]}]\n"
	newImage = "podTemplate: {spec: {containers: [{name: osd, image: 'ceph:2'}]}}\n"
)

func lacking(annotations ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, a := range annotations {
			delete(p.Annotations, a)
		}
	}
}

func evicted(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"} }

// TestLostAnnotation: a pod that has lost an annotation goes as its OSD goes, with the lease, and nothing starts before
// it has ended.
func TestLostAnnotation(t *testing.T) {
	for _, lost := range []string{podspec.DataAnnotation, podspec.HostAnnotation, podspec.HashAnnotation} {
		t.Run(lost, func(t *testing.T) {
			b := newBed(t, twoOSDs)
			b.serve()
			b.edit("a:/x", func(p *corev1.Pod) { lacking(lost)(p); p.Spec.NodeName = "a" })
			s := b.survey()
			require.Empty(t, s.Discard, "it serves")
			require.Equal(t, 2, s.Counts.Total)
			require.Equal(t, rollout.DoReplace, s.Next.Do)
			require.Equal(t, []string{"a:/x"}, keysOf(s.Next.OSDs))
			require.Equal(t, []string{"osd.0"}, []string{s.Next.OSDs[0].Name})
			require.NoError(t, b.osdSets.Discard(t.Context(), b.ref, []string{b.pod("a:/x").Name}))
			require.Empty(t, b.log)
			_, answer, err := b.osdSets.Spare(t.Context(), b.replacement(s))
			require.NoError(t, err)
			require.True(t, answer.OK)
			require.Equal(t, [][]int{{0}}, b.ceph.asked)
			require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)))
			require.Len(t, b.log, 2)
			require.Equal(t, "make a:/x", b.log[1])
		})
	}
}

// TestStray: as long as there is a pod on a host of which nobody knows which OSD it is, nothing is made there.
func TestStray(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.lose("a:/x")
	p := b.pod("a:/y").DeepCopy()
	p.Name, p.Labels[podspec.IDLabel] = "somebody", ""
	b.add(p, lacking(podspec.DataAnnotation), func(p *corev1.Pod) { p.Spec.NodeName = "a" })
	s := b.survey()
	require.Equal(t, rollout.DoAwait, s.Next.Do)
	require.Contains(t, s.Next.Why, "which OSD the pod somebody is is not known")
	require.Len(t, s.Foreign, 1)
	made, err := b.osdSets.Create(t.Context(), b.ref, []string{"a:/x"})
	require.NoError(t, err)
	require.Empty(t, made)
	b.change(twoOSDs + newImage)
	s = b.survey()
	require.NotEqual(t, rollout.DoReplace, s.Next.Do)
	require.Empty(t, s.Discard)
	require.Empty(t, b.log)
}

// TestNoBatchWhileAnOSDHangs outside of it.
func TestNoBatchWhileAnOSDHangs(t *testing.T) {
	hangs := storage.Life{Silent: 1, Examples: []string{"osd.9 in y"}}
	for name, c := range map[string]struct {
		change func(*bed)
		ok     bool
	}{
		"all live":               {change: func(b *bed) { b.ceph.life = storage.Life{} }, ok: true},
		"one hangs":              {change: func(*bed) {}},
		"an attempt stopped one": {change: func(b *bed) { b.lose("a:/x") }, ok: true},
		"the batch is down":      {change: func(b *bed) { b.ceph.osds[0].Up, b.ceph.osds[1].Up = false, false }, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, twoOSDs)
			b.serve()
			b.change(twoOSDs + newImage)
			in := b.replacement(b.survey())
			b.ceph.life = hangs
			c.change(b)
			answer, err := b.osdSets.Alive(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, c.ok, answer.OK, answer.Reason)
			if !c.ok {
				require.Contains(t, answer.Reason, "osd.9 in y")
			}
		})
	}
}

func TestSpare(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bed)
		epoch  int64
		want   []string // keys; nil: none
		why    string
		asked  [][]int
	}{
		"all": {want: []string{"a:/x", "a:/y"}, asked: [][]int{{0, 1}}},
		"some": {
			change: func(b *bed) { b.ceph.spare = func([]int) []int { return []int{1} } },
			want:   []string{"a:/y"}, asked: [][]int{{0, 1}},
		},
		"none": {
			change: func(b *bed) { b.ceph.spare = func([]int) []int { return nil } },
			why:    "PGs would become unavailable", asked: [][]int{{0, 1}},
		},
		"one is down": {
			change: func(b *bed) { b.ceph.osds[0].Up = false; b.ceph.spare = func([]int) []int { return nil } },
			want:   []string{"a:/x"}, asked: [][]int{{1}},
		},
		"something has happened": {
			change: func(b *bed) { b.ceph.epoch = 8 }, epoch: 7,
			why: "since the lease was granted",
		},
		"Ceph is away":              {change: func(b *bed) { b.ceph.unavailable = "no quorum" }, why: "no quorum"},
		"the template has moved on": {change: func(b *bed) { b.change(twoOSDs) }, why: "the spec is another one by now"},
		"an attempt stopped one": {
			change: func(b *bed) { b.lose("a:/x"); b.ceph.epoch = 8 }, epoch: 7,
			want: []string{"a:/x"},
		},
		"an attempt stopped them": {
			change: func(b *bed) { b.lose("a:/x"); b.lose("a:/y"); b.ceph.epoch = 8 }, epoch: 7,
			want: []string{"a:/x", "a:/y"},
		},
		"an attempt replaced one": {
			change: func(b *bed) { b.lose("a:/y"); b.makeNew("a:/y"); b.ceph.epoch = 8 }, epoch: 7,
			want: []string{"a:/y"},
		},
		"an attempt's stop is ended": {change: func(b *bed) {
			b.edit("a:/x", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		}, want: []string{"a:/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, twoOSDs)
			b.serve()
			b.change(twoOSDs + newImage)
			in := b.replacement(b.survey())
			in.Epoch = c.epoch
			require.Len(t, in.OSDs, 2)
			if c.change != nil {
				c.change(b)
			}
			osds, answer, err := b.osdSets.Spare(t.Context(), in)
			if c.why == "no quorum" { // whoever asks asks again
				require.ErrorContains(t, err, c.why)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want != nil, answer.OK)
			require.Contains(t, answer.Reason, c.why)
			require.Equal(t, c.want, keysOf(osds))
			require.Equal(t, c.asked, b.ceph.asked)
		})
	}
}

// makeNew makes the pod of an OSD as the present spec says.
func (b *bed) makeNew(key string) {
	set := b.set()
	desired, _ := set.Desired()
	for i, o := range desired {
		if o.Key() == key {
			b.add(set.Render(o, podspec.Knowledge{ID: &i}))
		}
	}
}

// TestReplaceOnlyWhatWasDecided: right before something is deleted the template must be the one of the decision.
func TestReplaceOnlyWhatWasDecided(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.change(twoOSDs + newImage)
	in := b.replacement(b.survey())
	in.Template = "another"
	require.NoError(t, b.osdSets.Replace(t.Context(), in))
	require.Empty(t, b.log)
	_, answer, err := b.osdSets.Spare(t.Context(), in)
	require.NoError(t, err)
	require.False(t, answer.OK)
}

func TestCreate(t *testing.T) {
	b := newBed(t, twoOSDs)
	stranger := func(labels map[string]string) {
		x := podspec.PodName(podspec.OSD{Host: "a", Data: "/x"})
		b.add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: x, Labels: labels}})
	}
	keys := []string{"a:/x", "a:/y"}
	stranger(map[string]string{podspec.OwnerLabel: "CephOSD-other"})
	made, err := b.osdSets.Create(t.Context(), b.ref, keys)
	require.NoError(t, err)
	require.Nil(t, made.Refused)
	require.Len(t, made.Hindered, 1)
	require.Equal(t, "a:/x", made.Hindered[0].Key)
	require.Contains(t, made.Hindered[0].Why, "exists already and is not one of CephOSD osds: it belongs to CephOSD other")
	require.Equal(t, []string{"ask ceph:1", "make a:/y"}, b.log)

	b.lose("a:/x")
	stranger(nil)
	made, err = b.osdSets.Create(t.Context(), b.ref, keys)
	require.NoError(t, err)
	require.Contains(t, made.Hindered[0].Why, "delete it, or label it ceph.elemental.net/owner=CephOSD-osds")

	b.lose("a:/x")
	made, err = b.osdSets.Create(t.Context(), b.ref, keys)
	require.NoError(t, err)
	require.Empty(t, made)
	made, err = b.osdSets.Create(t.Context(), b.ref, keys)
	require.NoError(t, err)
	require.Empty(t, made, "both are there, and ours")

	b.change(twoOSDs + "podTemplate: {spec: {containers: [{name: osd, env: [{name: OSD_DEVICE}, {name: A}, {name: B}]}]}}")
	b.lose("a:/x")
	made, err = b.osdSets.Create(t.Context(), b.ref, keys)
	require.NoError(t, err)
	require.Equal(t, "spec.podTemplate.spec.containers[0].env[2].value", made.Refused.Field)
	require.Empty(t, made.Hindered)
}

// TestEndsAtOnce: a pod that its kubelet rejects is made anew, but not as fast as the API server can.
func TestEndsAtOnce(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.edit("a:/x", func(p *corev1.Pod) { evicted(p); p.CreationTimestamp = metav1.Time{Time: time.Now()} })
	s := b.survey()
	require.Empty(t, s.Discard)
	require.Equal(t, rollout.DoAwait, s.Next.Do)
	require.Contains(t, s.Next.OSDs[0].Away, "its pod ended: Failed Evicted; it is made anew at ")
	require.Positive(t, s.LookAgain)
	require.LessOrEqual(t, s.LookAgain, 30*time.Second)
	name := b.pod("a:/x").Name
	require.NoError(t, b.osdSets.Discard(t.Context(), b.ref, []string{name}))
	require.Empty(t, b.log)

	b.edit("a:/x", func(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{Time: time.Now().Add(-31 * time.Second)} })
	s = b.survey()
	require.Equal(t, []string{name}, s.Discard)
	require.Zero(t, s.LookAgain)
	a, err := b.osdSets.Await(t.Context(), activities.AwaitInput{
		OSDSet: b.ref, Cluster: s.Cluster, Template: s.Template,
		Keys: []string{"a:/x"},
	}, func(activities.Arrival) {})
	require.NoError(t, err)
	require.True(t, a.Moved, "there is more to do than to wait")
	require.NoError(t, b.osdSets.Discard(t.Context(), b.ref, s.Discard))
	require.Equal(t, []string{"stop a:/x"}, b.log)
}

// TestOverride: a person's word lasts until the OSD has served, which a pod that is ready does not prove.
func TestOverride(t *testing.T) {
	for name, word := range map[string]func(*corev1.Pod){
		"removed": lacking(podspec.StateAnnotation),
		"up-to-date, after a look": func(p *corev1.Pod) {
			require.Equal(t, "unready", p.Annotations[podspec.StateAnnotation])
			p.Annotations[podspec.StateAnnotation] = "up-to-date"
		},
		"removed, never released": lacking(podspec.StateAnnotation, podspec.ReleasedAnnotation),
		"up-to-date, never released": func(p *corev1.Pod) {
			p.Annotations[podspec.StateAnnotation] = "up-to-date"
			delete(p.Annotations, podspec.ReleasedAnnotation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, twoOSDs)
			b.serve()
			b.ceph.osds[0].Up = false
			require.Equal(t, rollout.DoAwait, b.survey().Next.Do, "it crashed")
			if name == "up-to-date, after a look" {
				require.NoError(t, b.osdSets.Note(t.Context(), b.ref))
				require.Equal(t, rollout.DoAwait, b.survey().Next.Do, "to write it down changes nothing")
				require.Zero(t, b.survey().Unnoted)
			}
			b.edit("a:/x", word)
			s := b.survey()
			require.Equal(t, rollout.DoNothing, s.Next.Do)
			require.True(t, s.Counts.Settled())
			in := activities.AwaitInput{OSDSet: b.ref, Cluster: s.Cluster, Template: s.Template, Keys: []string{"a:/x"}}
			require.NoError(t, b.osdSets.Note(t.Context(), b.ref))
			require.NoError(t, b.osdSets.Confirm(t.Context(), in))
			require.Equal(t, rollout.DoNothing, b.survey().Next.Do, "its pod is ready, and its OSD is not up")

			b.ceph.osds[0].Up = true
			s = b.survey()
			require.Equal(t, 1, s.Unnoted)
			require.NoError(t, b.osdSets.Note(t.Context(), b.ref))
			require.Zero(t, b.survey().Unnoted)
			require.Equal(t, "up-to-date", b.pod("a:/x").Annotations[podspec.StateAnnotation])
			require.NotEmpty(t, b.pod("a:/x").Annotations[podspec.ReleasedAnnotation])
			b.ceph.osds[0].Up = false
			require.Equal(t, rollout.DoAwait, b.survey().Next.Do, "what happens then is new")
		})
	}
}

// TestOwnersWithoutCeph: whether Kubernetes deletes pods together with their CephOSD must not depend on Ceph, or on the
// rest of the spec.
func TestOwnersWithoutCeph(t *testing.T) {
	yes := true
	owner := metav1.OwnerReference{
		APIVersion: "ceph.elemental.net/v1alpha1", Kind: "CephOSD", Name: "osds",
		UID: "uid-of-osds", Controller: &yes,
	}
	for name, change := range map[string]func(*bed){
		"the spec is refused":  func(b *bed) { b.change(twoOSDs + "maxParallel: -1") },
		"Ceph has no quorum":   func(b *bed) { b.ceph.unavailable = "no quorum" },
		"Ceph is out of reach": func(b *bed) { b.ceph.err = errors.New("connect to Ceph: refused") },
		"no such domain": func(b *bed) {
			b.ceph.types = []string{"osd", "host", "zone"}
			b.change(twoOSDs[len("updateDomain: Host"):] + "updateDomain: Rack")
		},
		"all is well": func(*bed) {},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, twoOSDs)
			b.serve()
			for _, key := range []string{"a:/x", "a:/y"} {
				b.edit(key, func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{owner} })
			}
			change(b)
			require.Equal(t, 2, b.survey().Unnoted)
			require.NoError(t, b.osdSets.Note(t.Context(), b.ref))
			for _, p := range b.pods() {
				require.Empty(t, p.OwnerReferences)
				require.NotEmpty(t, p.Annotations)
			}
			b.ceph.err = nil
			require.Zero(t, b.survey().Unnoted)
		})
	}
}

// TestEverySuperfluousOSDHasItsTurn: neither OSDs that have to stay nor their number keep another one from leaving.
func TestEverySuperfluousOSDHasItsTurn(t *testing.T) {
	const many = 300
	b := newBed(t, twoOSDs)
	s := &state{Set: b.set(), ids: map[string]int{}}
	for id := range many {
		o := podspec.OSD{Host: "a", Data: fmt.Sprintf("/d%03d", id)}
		s.ids[o.Key()] = id
		s.Superfluous = append(s.Superfluous, podspec.Pod{Pod: s.Render(o, podspec.Knowledge{}), OSD: o})
	}
	last := s.Superfluous[many-1].Pod
	last.Annotations[RemoveAnnotation] = "true"
	b.ceph.needed = func(id int) string {
		if id == 250 {
			return ""
		}
		return fmt.Sprintf("osd.%d stores placement groups", id)
	}
	var out activities.Survey
	c := cephOSD{OSDSets: b.osdSets, ref: b.ref}
	require.NoError(t, c.judgeSuperfluous(t.Context(), s, &out))
	require.Equal(t, []string{last.Name, s.Superfluous[250].Name}, out.Removable, "a person's word first")
	require.Len(t, out.Superfluous, mostSuperfluous)
	require.Contains(t, out.Superfluous[0].Why, "ceph osd out 0")
	require.Equal(t, lookAgainLate, out.LookAgain)
	require.Len(t, b.ceph.asked, 3)

	b.ceph.needed = nil
	out = activities.Survey{}
	require.NoError(t, c.judgeSuperfluous(t.Context(), s, &out))
	require.Len(t, out.Removable, mostRemovable)
	require.Equal(t, last.Name, out.Removable[0])
	require.Equal(t, lookAgainLate, out.LookAgain, "the others go next time")
}

// TestRemoveAsksAgain: what was safe to destroy a moment ago may be needed by now, unless a person said so.
func TestRemoveAsksAgain(t *testing.T) {
	b := newBed(t, "storage: [{hosts: [a], osds: [{data: /x}, {data: /y}, {data: /z}]}]")
	b.serve()
	b.change("storage: [{hosts: [a], osds: [{data: /x}]}]")
	b.edit("a:/z", func(p *corev1.Pod) { p.Annotations[RemoveAnnotation] = "true" })
	s := b.survey()
	require.Len(t, s.Removable, 2)
	b.ceph.needed = func(int) string { return "needed again" }
	require.NoError(t, b.osdSets.Remove(t.Context(), b.ref, s.Removable))
	require.Equal(t, []string{"stop a:/z"}, b.log)
}

func TestForeignPodIsACause(t *testing.T) {
	yes := true
	b := newBed(t, twoOSDs)
	b.serve()
	b.edit("a:/x", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "osd-a-x",
			Controller: &yes,
		}}
		p.Status.Conditions = nil
	})
	const cause = "is run by ReplicaSet osd-a-x; `kubectl delete rs osd-a-x --cascade=orphan`"
	s := b.survey()
	require.Equal(t, rollout.DoAwait, s.Next.Do)
	require.Contains(t, s.Next.OSDs[0].Away, cause)
	require.Contains(t, s.Foreign[0], cause)
	c := cephOSD{OSDSets: b.osdSets, ref: b.ref}
	st, err := c.now(t.Context())
	require.NoError(t, err)
	require.Contains(t, c.readyInKubernetes(st, activities.AwaitInput{Keys: []string{"a:/x"}}).Waiting[0].Why, cause)
}

func TestUpdateDomainsOfTheCluster(t *testing.T) {
	types := []string{"osd", "host", "Cage", "zone", "root"}
	for domain, fine := range map[string]bool{
		"OSD": true, "Host": true, "host": true, "Zone": true, "Cage": true,
		"cage": true, "Rack": false,
	} {
		b := newBed(t, "storage: [{hosts: [a], osds: [{data: /x}]}]\nupdateDomain: "+domain)
		b.ceph.types = types
		b.serve()
		if s := b.survey(); fine {
			require.Empty(t, s.Refused, domain)
		} else {
			require.Equal(t, `must be OSD, Host, or one of the cluster's failure domain types: Cage, zone, root`,
				s.Refused[0].Allowed)
			require.Equal(t, "spec.updateDomain", s.Refused[0].Field)
		}
		wrong := wrongDomain("updateDomain", domain, types)
		require.Equal(t, fine, wrong == nil)
	}
}

func TestCanaryLifeAndSkipped(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	life := func() string {
		s, err := b.osdSets.Survey(t.Context(), activities.SurveyInput{OSDSet: b.ref, Canary: "a:/x"})
		require.NoError(t, err)
		return s.CanaryLife
	}
	lives := map[string]bool{life(): true}
	b.edit("a:/x", func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} })
	lives[life()] = true
	b.ceph.osds[0].UpFrom++
	lives[life()] = true
	b.edit("a:/x", func(p *corev1.Pod) { p.UID = "another" })
	lives[life()] = true
	require.Len(t, lives, 4)
	require.Equal(t, life(), life())
	b.ceph.osds[0].Up = false
	require.Empty(t, life())
	require.Empty(t, b.survey().CanaryLife, "nobody asked")

	status := map[string]any{"templateHash": "present", "skipped": []any{"osd.1"}}
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	require.Equal(t, []string{"osd.1"}, skipped(u, "present"))
	require.Empty(t, skipped(u, "another"), "excused from a template that is no more")
	status["skipped"] = "osd.1"
	require.Empty(t, skipped(u, "present"))
	require.Empty(t, skipped(&unstructured.Unstructured{Object: map[string]any{}}, "present"))
}

func TestDeployments(t *testing.T) {
	one := int32(1)
	b := newBed(t, twoOSDs)
	b.ref = activities.OSDSetRef{
		Kind: activities.OSDSetDeployments, Namespace: namespace, Name: "now",
		Selector: "app=rook-ceph-osd",
	}
	labels := map[string]string{"app": "rook-ceph-osd", podspec.IDLabel: "0"}
	x := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "osd-0", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
		Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	}
	resource := appsv1.SchemeGroupVersion.WithResource("deployments")
	require.NoError(t, b.typed.Tracker().Create(resource, x, namespace))
	put := func(change func()) { change(); require.NoError(t, b.typed.Tracker().Update(resource, x, namespace)) }
	b.ceph.osds = []cephcluster.OSD{{ID: 0, Up: true, UpFrom: 5, Serving: true}}
	b.add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "osd-0-x", Labels: labels}})

	s, err := b.osdSets.Survey(t.Context(), activities.SurveyInput{OSDSet: b.ref, Canary: "osd-0"})
	require.NoError(t, err)
	require.Equal(t, rollout.DoReplace, s.Next.Do)
	require.Equal(t, "uid-1/5", s.CanaryLife)
	require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)))

	in := activities.AwaitInput{
		OSDSet: b.ref, Cluster: storage.ClusterKey{Namespace: namespace, Name: "policy"},
		Keys: []string{"osd-0"},
	}
	d := deployments{OSDSets: b.osdSets, ref: b.ref}
	r, err := d.look(t.Context())
	require.NoError(t, err)
	a, err := d.arrival(t.Context(), r, in, false)
	require.NoError(t, err)
	require.Equal(t, "osd.0 is not up in Ceph yet", a.Waiting[0].Why, "it is, but not since the restart")
	b.editNamed("osd-0-x", func(p *corev1.Pod) {
		p.Status.Conditions = nil
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "osd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
		}
	})
	r.list[0].Status.AvailableReplicas = 0
	a, err = d.arrival(t.Context(), r, in, true)
	require.NoError(t, err)
	require.Equal(t, "pod osd-0-x is not ready: its container osd waits: ErrImagePull", a.Waiting[0].Why)

	b.ceph.osds[0].UpFrom = 6
	a, err = b.osdSets.Await(t.Context(), in, func(activities.Arrival) {})
	require.NoError(t, err)
	require.Empty(t, a)

	put(func() { x.Spec.Paused = true })
	s = b.survey()
	require.Contains(t, s.Refused[0].Allowed, "osd-0 is; `kubectl rollout resume deployment osd-0`")
	a, err = b.osdSets.Await(t.Context(), in, func(activities.Arrival) {})
	require.NoError(t, err)
	require.True(t, a.Moved, "the next look says why")
	put(func() { x.Spec.Paused = false })
	b.ceph.types = []string{"osd", "host", "zone"}
	b.ref.UpdateDomain = "Rack"
	require.Equal(t, "updateDomain", b.survey().Refused[0].Field)
}
