package cephosd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// TestVersionsBeforeABatch: what the storage cluster cannot take is known before anything stops.
func TestVersionsBeforeABatch(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(*bed)
		refused, waits string
		log            []string
	}{
		"a patch": {log: []string{"ask ceph:2"}},
		"the same image": {change: func(b *bed) {
			b.change(twoOSDs + "podTemplate: {metadata: {annotations: {a: b}}, spec: {containers: [{name: osd, image: " +
				"'ceph:1'}]}}\n")
		}},
		"mons are older": {
			change: func(b *bed) { b.says = "ceph version 20.2.4 (2c) tentacle (stable)" },
			waits:  "not all monitors are of release 20 yet", log: []string{"ask ceph:2"},
		},
		"back": {
			change:  func(b *bed) { b.says = "ceph version 18.2.2 (1) reef (stable)" },
			refused: "osd.0 runs Ceph 18.2.4, and an OSD cannot go back to 18.2.2", log: []string{"ask ceph:2"},
		},
		"not a word": {
			change: func(b *bed) { b.says = "sh: ceph-osd: not found" },
			waits:  "`ceph-osd --version` says", log: []string{"ask ceph:2"},
		},
		"cephadm is at it": {
			change: func(b *bed) { b.ceph.versions.Elsewhere = "cephadm is at it: Upgrade to 18.2.7" },
			waits:  "cephadm is at it", log: []string{"ask ceph:2"},
		},
		"Ceph does not answer": {change: func(b *bed) { b.ceph.versions.Unavailable = "no quorum" }, waits: "no quorum"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, twoOSDs)
			b.serve()
			b.change(twoOSDs + newImage)
			if c.change != nil {
				c.change(b)
			}
			for range 2 { // to ask twice does no harm, and the program is asked once if it knew an answer
				out, err := b.osdSets.Rehearse(t.Context(), b.replacement(b.survey()))
				require.NoError(t, err)
				require.Contains(t, out.Waits, c.waits)
				require.Equal(t, c.waits != "", out.Waits != "")
				require.Equal(t, c.refused != "", out.Refused != nil)
				if out.Refused != nil {
					require.Equal(t, "spec.podTemplate.spec.containers[0].image", out.Refused.Field)
					require.Equal(t, "ceph:2", out.Refused.Value)
					require.Equal(t, c.refused, out.Refused.Allowed)
				}
			}
			if name != "not a word" {
				require.Equal(t, c.log, b.log)
			}
			require.Empty(t, b.asking(), "none is left behind")
		})
	}
}

// TestVersionIsAskedOfAnOSD that serves with the template, where there is one.
func TestVersionIsAskedOfAnOSD(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.change(twoOSDs + newImage)
	in := b.replacement(b.survey())
	b.lose("a:/x")
	b.makeNew("a:/x")
	b.arrives("a:/x")
	b.log = nil
	b.ceph.versions.OSDs[0] = upgrade.Version{Release: 20, Minor: 2, Patch: 4}
	b.ceph.versions.Mons = 20
	in.OSDs = in.OSDs[1:]
	out, err := b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, activities.Rehearsal{}, out)
	b.ceph.versions.Mons = 18 // which cannot be, and shows what was compared
	out, err = b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, out.Waits, "release 20")
	require.Empty(t, b.log, "no pod asked")
}

// TestMissingPodsAreGatedToo: an OSD whose pod was evicted in the middle of a rollout would come back with the new
// image.
func TestMissingPodsAreGatedToo(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.lose("a:/x")
	made, err := b.osdSets.Create(t.Context(), b.ref, []string{"a:/x"})
	require.NoError(t, err)
	require.Empty(t, made)
	require.Equal(t, []string{"make a:/x"}, b.log, "with the image that the other one serves with nothing is asked")

	b.lose("a:/x")
	b.log = nil
	b.change(twoOSDs + newImage)
	b.says = "ceph version 20.2.4 (2c) tentacle (stable)"
	made, err = b.osdSets.Create(t.Context(), b.ref, []string{"a:/x"})
	require.NoError(t, err)
	require.Len(t, made.Hindered, 1)
	require.Contains(t, made.Hindered[0].Why, "not all monitors are of release 20")
	require.Equal(t, []string{"ask ceph:2"}, b.log)

	b.ceph.versions.Mons = 20
	made, err = b.osdSets.Create(t.Context(), b.ref, []string{"a:/x"})
	require.NoError(t, err)
	require.Empty(t, made)
	require.Equal(t, []string{"ask ceph:2", "make a:/x"}, b.log)
}

// TestWhoIsDownWaitsForNobodyElse: neither another one's version nor somebody else's upgrade keeps an OSD down.
func TestWhoIsDownWaitsForNobodyElse(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.ceph.osds[0].Host, b.ceph.osds[0].Data = "a", "/x"
	b.lose("a:/x")
	b.lose("a:/y")
	b.change(twoOSDs + newImage)
	b.ceph.versions.OSDs[0] = upgrade.Version{Release: 18, Minor: 2, Patch: 9} // and the image has 18.2.7
	b.ceph.versions.Elsewhere = "cephadm is at it"
	made, err := b.osdSets.Create(t.Context(), b.ref, []string{"a:/x", "a:/y"})
	require.NoError(t, err)
	require.Nil(t, made.Refused)
	require.Len(t, made.Hindered, 1)
	require.Equal(t, "a:/x", made.Hindered[0].Key)
	require.Contains(t, made.Hindered[0].Why, "cannot go back to 18.2.7")
	require.Equal(t, []string{"ask ceph:2", "make a:/y"}, b.log)
}

// TestAskingPodHasNothingOfTheOSD: two programs on one device destroy it.
func TestAskingPodHasNothingOfTheOSD(t *testing.T) {
	b := newBed(t, twoOSDs+`podTemplate:
  metadata: {labels: {app: rook-ceph-osd}}
  spec:
    hostNetwork: true
    hostPID: true
    initContainers: [{name: activate, image: other:1}]
    containers:
    - {name: logs, image: logs:1}
    - {name: osd, image: 'ceph:2', env: [{name: A, value: b}], volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: d, devicePath: /d}], securityContext: {privileged: true}}
    volumes: [{name: v, hostPath: {path: /v}}]
    tolerations: [{key: storage}]
    affinity:
      nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}
      podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {}}]}
`)
	s := &state{Set: b.set()}
	s.desired, _ = s.Desired()
	p := s.asking(s.desired[0])
	require.Equal(t, "ceph:2", p.Spec.Containers[0].Image)
	require.Len(t, p.Spec.Containers, 1)
	c := p.Spec.Containers[0]
	require.Empty(t, c.VolumeMounts)
	require.Empty(t, c.VolumeDevices)
	require.Empty(t, c.Env)
	require.Empty(t, p.Spec.Volumes)
	require.Empty(t, p.Spec.InitContainers)
	require.False(t, p.Spec.HostNetwork)
	require.NotContains(t, p.Labels, "app")
	require.NotContains(t, p.Labels, podspec.OwnerLabel)
	require.NotContains(t, p.Labels, podspec.IDLabel)
	require.Equal(t, []corev1.Toleration{{Key: "storage"}}, p.Spec.Tolerations)
	require.NotNil(t, p.Spec.Affinity.NodeAffinity)
	require.Nil(t, p.Spec.Affinity.PodAntiAffinity, "the OSD itself runs there")
	require.Equal(t, corev1.RestartPolicyNever, p.Spec.RestartPolicy)
	require.NotEmpty(t, c.Resources.Requests, "a quota may demand them")
	require.NotEmpty(t, c.Resources.Limits)
}

// TestVersionOfAnImageThatIsFetched: that may take minutes, and nothing is halted for it. A pod that no node takes
// makes way.
func TestVersionOfAnImageThatIsFetched(t *testing.T) {
	for name, node := range map[string]string{"on its node": "a", "on none": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, twoOSDs)
			b.serve()
			b.change(twoOSDs + newImage)
			in := b.replacement(b.survey())
			b.says = ""
			// What a scheduler and a kubelet say of it they say at once here.
			b.typed.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				if p := a.(ktesting.CreateAction).GetObject().(*corev1.Pod); p.Labels[podspec.VersionLabel] != "" {
					p.Spec.NodeName = node
					p.Status.ContainerStatuses = []corev1.ContainerStatus{
						{Name: "osd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
					}
				}
				return false, nil, nil
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			out, err := b.osdSets.Rehearse(ctx, in)
			require.NoError(t, err)
			require.Contains(t, out.Waits, "ErrImagePull")
			require.Len(t, b.asking(), map[string]int{"a": 1, "": 0}[node])
		})
	}
}

// TestTroubleOfTheCanary: what Ceph has against an OSD that serves.
func TestTroubleOfTheCanary(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	ask := func(canary string) string {
		s, err := b.osdSets.Survey(t.Context(), activities.SurveyInput{OSDSet: b.ref, Canary: canary})
		require.NoError(t, err)
		return s.CanaryTrouble
	}
	require.Empty(t, ask("a:/x"))
	b.ceph.osds[0].Slow = true
	require.Equal(t, "osd.0 has slow operations", ask("a:/x"))
	require.Empty(t, ask("a:/y"), "of another one")
	require.Empty(t, ask(""), "nobody asked")
	b.ceph.osds[0].Slow = false
	b.osdSets.images.Remember(namespace+"/"+b.set().Hash, upgrade.Version{Release: 18, Minor: 2, Patch: 7})
	require.Equal(t, "osd.0 runs Ceph 18.2.4, and ceph:1 has 18.2.7", ask("a:/x"))
	b.ceph.versions.OSDs[0] = upgrade.Version{Release: 18, Minor: 2, Patch: 7}
	require.Empty(t, ask("a:/x"))
}

// asking are the pods that ask for a version.
func (b *bed) asking() (names []string) {
	for _, p := range b.pods() {
		if p.Labels[podspec.VersionLabel] != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// never is a rehearsal of a new template whose image never comes.
func never(t *testing.T) (b *bed, in activities.Replacement) {
	b = newBed(t, twoOSDs)
	b.serve()
	b.change(twoOSDs + newImage)
	in = b.replacement(b.survey())
	p := (&state{Set: b.set()}).asking(podspec.OSD{Host: "a", Data: "/x"})
	b.add(p, func(p *corev1.Pod) {
		p.Spec.NodeName = "a"
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "osd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
		}}
	})
	require.Equal(t, []string{"version-of-" + in.Template}, b.asking())
	return b, in
}

// TestNobodyAsksInVain: a pod whose image never comes goes as soon as nobody needs its answer.
func TestNobodyAsksInVain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bed)
		stays  bool
	}{
		"its answer is needed": {change: func(*bed) {}, stays: true},
		"the old image again":  {change: func(b *bed) { b.change(twoOSDs) }},
		"a person says it":     {change: func(b *bed) { b.annotate(podspec.VersionAnnotation+b.set().Hash, "18.2.7") }},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := never(t)
			c.change(b)
			asked := b.asking()
			discard := b.survey().Discard
			if c.stays {
				require.Empty(t, discard)
			} else {
				require.Equal(t, asked, discard)
			}
			require.NoError(t, b.osdSets.Discard(t.Context(), b.ref, asked), "which judges anew")
			require.Equal(t, c.stays, len(b.asking()) > 0)
		})
	}
}

// TestAPersonSaysTheVersion where the program cannot be asked.
func TestAPersonSaysTheVersion(t *testing.T) {
	b, in := never(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	out, err := b.osdSets.Rehearse(ctx, in)
	require.NoError(t, err)
	annotation := podspec.VersionAnnotation + in.Template
	require.NotContains(t, out.Waits, "annotate", "an image that does not come would take an OSD down")

	b.annotate(annotation, "the newest")
	out, err = b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, &input.Error{
		Field: "metadata.annotations[" + annotation + "]", Value: "the newest",
		Allowed: "the version of Ceph that the template's image has, such as 18.2.7",
	}, out.Refused)
	b.lose("a:/x")
	b.change(twoOSDs)
	b.annotate(podspec.VersionAnnotation+b.set().Hash, "the newest")
	made, err := b.osdSets.Create(t.Context(), b.ref, []string{"a:/x"})
	require.NoError(t, err)
	require.Empty(t, made)
	require.Equal(t, []string{"make a:/x"}, b.log, "what nobody has to know may say what it likes")
	b.change(twoOSDs + newImage)

	b.annotate(annotation, "19.2.3")
	out, err = b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, out.Waits, "not all monitors are of release 19 yet")

	b.annotate(annotation, "18.2.7") // which takes it back
	out, err = b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, activities.Rehearsal{}, out)
	require.Equal(t, []string{"make a:/x"}, b.log, "no pod asked")
}

// TestWhoeverCannotBeAskedIsToldHow: the pod is rejected, has no node, or says nothing that makes sense.
func TestWhoeverCannotBeAskedIsToldHow(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.change(twoOSDs + newImage)
	b.says = "sh: ceph-osd: not found"
	in := b.replacement(b.survey())
	out, err := b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, out.Waits,
		"kubectl -n "+namespace+" annotate cephosd osds "+podspec.VersionAnnotation+in.Template+"=18.2.7")

	b.typed.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		p := a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
		return p.Labels[podspec.VersionLabel] != "", nil,
			apierrors.NewForbidden(podsResource.GroupResource(), p.Name, errors.New("exceeded quota"))
	})
	out, err = b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Contains(t, out.Waits, "exceeded quota")
	require.Contains(t, out.Waits, "annotate cephosd")
}

// TestAForeignContainerSaysNothing: one that somebody's webhook puts into every pod may never end.
func TestAForeignContainerSaysNothing(t *testing.T) {
	b := newBed(t, twoOSDs)
	b.serve()
	b.change(twoOSDs + newImage)
	in := b.replacement(b.survey())
	p := (&state{Set: b.set()}).asking(podspec.OSD{Host: "a", Data: "/x"})
	b.add(p, func(p *corev1.Pod) {
		p.Spec.NodeName = "a"
		p.Spec.Containers = append([]corev1.Container{{Name: "proxy"}}, p.Spec.Containers...)
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "osd", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: b.says}}},
			{Name: "proxy", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}
	})
	out, err := b.osdSets.Rehearse(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, activities.Rehearsal{}, out)
	require.Empty(t, b.asking())
}
