package cephosd

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

var deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")

// newRookBed has two Deployments, osd-0 on a in zone x and osd-1 on b in zone y, of ceph:1, and wants ceph:2.
func newRookBed(t *testing.T) *bed {
	b := newBed(t, twoOSDs)
	b.ref = activities.OSDSetRef{
		Kind: activities.OSDSetDeployments, Namespace: namespace, Name: "now", Selector: "app=rook-ceph-osd",
		UpdateDomain: "Zone", Image: "ceph:2",
	}
	for id, host := range []string{"a", "b"} {
		labels := map[string]string{"app": "rook-ceph-osd", podspec.IDLabel: fmt.Sprint(id)}
		x := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: osdDeployment(id), Labels: labels},
			Spec:       appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}},
			Status:     appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
		}
		x.Spec.Template.Labels = labels
		x.Spec.Template.Spec = corev1.PodSpec{
			NodeSelector:   map[string]string{corev1.LabelHostname: host},
			InitContainers: []corev1.Container{{Name: "activate", Image: "ceph:1"}, {Name: "wait", Image: "busybox"}},
			Containers: []corev1.Container{
				{Name: "log-collector", Image: "logs:1"},
				{Name: "osd", Image: "ceph:1", Args: []string{"--id", fmt.Sprint(id)}},
			},
			Volumes: []corev1.Volume{{Name: "data"}},
		}
		require.NoError(t, b.typed.Tracker().Create(deploymentsResource, x, namespace))
		b.ceph.osds = append(b.ceph.osds,
			cephcluster.OSD{ID: id, Up: true, UpFrom: 5, Serving: true, Domain: string("xy"[id])})
		b.add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: osdDeployment(id) + "-pod",
			Labels: labels,
		}})
	}
	b.typed.PrependReactor("patch", "deployments", func(a ktesting.Action) (bool, runtime.Object, error) {
		action := a.(ktesting.PatchActionImpl)
		dry := len(action.PatchOptions.DryRun) > 0
		require.NotContains(b, string(action.GetPatch()), "null", "which would take away what is there")
		b.log = append(b.log, map[bool]string{true: "try ", false: "change "}[dry]+action.GetName())
		return dry, &appsv1.Deployment{}, nil
	})
	return b
}

func osdDeployment(id int) string { return fmt.Sprintf("osd-%d", id) }

// deployment changes one, and returns it.
func (b *bed) deployment(id int, change func(*appsv1.Deployment)) *appsv1.Deployment {
	x, err := b.typed.Tracker().Get(deploymentsResource, namespace, osdDeployment(id))
	require.NoError(b, err)
	d := x.(*appsv1.Deployment).DeepCopy()
	if change != nil {
		change(d)
		require.NoError(b, b.typed.Tracker().Update(deploymentsResource, d, namespace))
	}
	return d
}

func images(d *appsv1.Deployment) (out []string) {
	for _, c := range append(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers...) {
		out = append(out, c.Name+" "+c.Image)
	}
	return out
}

// TestDeploymentsGetAnotherImage: first one alone, asked for its version before; then the others.
func TestDeploymentsGetAnotherImage(t *testing.T) {
	b := newRookBed(t)
	s := b.survey()
	require.True(t, s.Next.Canary)
	require.Equal(t, []string{"osd-0"}, keysOf(s.Next.OSDs))
	out, err := b.osdSets.Rehearse(t.Context(), b.replacement(s))
	require.NoError(t, err)
	require.Equal(t, activities.Rehearsal{}, out)
	require.Equal(t, []string{"try osd-0", "ask ceph:2"}, b.log)
	require.Empty(t, b.asking(), "none is left behind")
	require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)))
	require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)), "again changes nothing")
	require.Equal(t, []string{"try osd-0", "ask ceph:2", "change osd-0"}, b.log)
	x := b.deployment(0, nil)
	require.Equal(t, []string{"activate ceph:2", "wait busybox", "log-collector logs:1", "osd ceph:2"}, images(x))
	require.Equal(t, []string{"--id", "0"}, x.Spec.Template.Spec.Containers[1].Args)
	require.Len(t, x.Spec.Template.Spec.Volumes, 1)

	require.Equal(t, rollout.DoAwait, b.survey().Next.Do, "it is up since before")
	b.ceph.osds[0].UpFrom = 6
	in := activities.AwaitInput{OSDSet: b.ref, Keys: []string{"osd-0"}, Template: s.Template}
	a, err := b.osdSets.Await(t.Context(), in, func(activities.Arrival) {})
	require.NoError(t, err)
	require.Empty(t, a)
	require.NoError(t, b.osdSets.Confirm(t.Context(), in))
	b.ceph.osds[0].Slow = true
	canary, err := b.osdSets.Survey(t.Context(), activities.SurveyInput{OSDSet: b.ref, CanaryOf: "now", Canary: "osd-0"})
	require.NoError(t, err)
	require.Equal(t, "osd.0 has slow operations", canary.CanaryTrouble)
	b.ceph.osds[0].Slow = false
	canary, err = b.osdSets.Survey(t.Context(), activities.SurveyInput{OSDSet: b.ref, CanaryOf: "now", Canary: "osd-0"})
	require.NoError(t, err)
	require.Equal(t, "osd.0 runs Ceph 18.2.4, and ceph:2 has 18.2.7", canary.CanaryTrouble)

	s = b.survey()
	require.Equal(t, []string{"osd-1"}, keysOf(s.Next.OSDs))
	require.False(t, s.Next.Canary, "one serves with it")
}

// TestDeploymentsWithTheImageStay: somebody began, and gave up; what serves with the image is not restarted for it.
func TestDeploymentsWithTheImageStay(t *testing.T) {
	b := newRookBed(t)
	b.deployment(0, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Image = "ceph:2" })
	b.ceph.versions.OSDs[0] = upgrade.Version{Release: 20, Minor: 2, Patch: 4}
	s := b.survey()
	require.Equal(t, []string{"osd-1"}, keysOf(s.Next.OSDs))
	require.False(t, s.Next.Canary)
	require.Equal(t, 1, s.Counts.UpToDate)
	out, err := b.osdSets.Rehearse(t.Context(), b.replacement(s))
	require.NoError(t, err)
	require.Equal(t, activities.Rehearsal{}, out, "osd.0 said 20.2.4, and the image says 18.2.7")
	require.Equal(t, []string{"try osd-1", "ask ceph:2"}, b.log, "what osd.0 said may be of before it had the image")

	b.deployment(0, func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 0 })
	require.Equal(t, rollout.DoAwait, b.survey().Next.Do, "whoever does not come back with it keeps the others waiting")
}

// TestVersionsBeforeDeploymentsChange: what the storage cluster cannot take is known before anything stops.
func TestVersionsBeforeDeploymentsChange(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(*bed)
		refused, waits string
	}{
		"a patch": {},
		"mons are older": {
			change: func(b *bed) { b.says = "ceph version 20.2.4 (2c) tentacle (stable)" },
			waits:  "not all monitors are of release 20 yet",
		},
		"back": {
			change:  func(b *bed) { b.says = "ceph version 18.2.2 (1) reef (stable)" },
			refused: "osd.0 runs Ceph 18.2.4, and an OSD cannot go back to 18.2.2",
		},
		"not a word": {
			change: func(b *bed) { b.says = "sh: ceph-osd: not found" },
			waits:  "restart-osds with --ceph-version",
		},
		"a person says it": {
			change: func(b *bed) { b.says, b.ref.CephVersion = "sh: ceph-osd: not found", "19.2.3" },
			waits:  "not all monitors are of release 19 yet",
		},
		"cephadm is at it": {
			change: func(b *bed) { b.ceph.versions.Elsewhere = "cephadm is at it: Upgrade to 18.2.7" },
			waits:  "cephadm is at it",
		},
		"Ceph does not answer": {change: func(b *bed) { b.ceph.versions.Unavailable = "no quorum" }, waits: "no quorum"},
		"no right to ask": {change: func(b *bed) {
			b.typed.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(podsResource.GroupResource(), "", fmt.Errorf("cannot create resource"))
			})
		}, waits: "cannot create resource; who knows its version can say so: `lockkeeper abort restart-osds/" + namespace},
		"rejected": {change: func(b *bed) {
			b.typed.PrependReactor("patch", "deployments", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(deploymentsResource.GroupResource(), "osd-0",
					fmt.Errorf("images of strangers are not allowed"))
			})
		}, waits: "the API server does not take ceph:2 in Deployment osd-0: the API server rejects"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRookBed(t)
			if c.change != nil {
				c.change(b)
			}
			out, err := b.osdSets.Rehearse(t.Context(), b.replacement(b.survey()))
			require.NoError(t, err)
			require.Contains(t, out.Waits, c.waits)
			require.Equal(t, c.waits != "", out.Waits != "", out.Waits)
			require.Equal(t, c.refused != "", out.Refused != nil)
			if out.Refused != nil {
				require.Equal(t, "image", out.Refused.Field)
				require.Equal(t, "ceph:2", out.Refused.Value)
				require.Contains(t, out.Refused.Allowed, c.refused)
			}
			require.NotContains(t, b.log, "change osd-0")
			require.Empty(t, b.asking(), "none is left behind")
		})
	}
}

// TestWhoTakesTheImageBack is not fought: each time an OSD would stop.
func TestWhoTakesTheImageBack(t *testing.T) {
	b := newRookBed(t)
	s := b.survey()
	require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)))
	b.deployment(0, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Image = "ceph:1" })
	refused := b.survey().Refused
	require.Len(t, refused, 1)
	require.Equal(t, "image", refused[0].Field)
	require.Contains(t, refused[0].Allowed, "this restart gave it to Deployment osd-0, which has ceph:1 now")
}

// TestAskingForDeployments: the pod has nothing of the OSD's, and is in nobody's way.
func TestAskingForDeployments(t *testing.T) {
	b := newRookBed(t)
	p := deployments{OSDSets: b.osdSets, ref: b.ref}.asking(b.deployment(1, nil))
	require.Len(t, p.Spec.Containers, 1)
	require.Equal(t, "ceph:2", p.Spec.Containers[0].Image)
	require.Empty(t, p.Spec.Volumes)
	require.Empty(t, p.Spec.InitContainers)
	require.Equal(t, map[string]string{corev1.LabelHostname: "b"}, p.Spec.NodeSelector)
	require.NotContains(t, p.Labels, "app")
	require.NotContains(t, p.Labels, podspec.IDLabel)
	require.NotNil(t, metav1.GetControllerOf(p), "kubectl drain refuses pods that nobody manages")
	require.NotNil(t, p.Spec.ActiveDeadlineSeconds)
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.NotContains(t, string(text), "--id")
}
