package cli

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// cephOSD is two OSDs on each of three hosts, each in a zone of its own.
func cephOSD() *cephv1alpha1.CephOSD {
	return &cephv1alpha1.CephOSD{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ceph", Name: "osds", Generation: 4},
		Spec: cephv1alpha1.CephOSDSpec{
			Storage: []cephv1alpha1.Storage{{
				Hosts: []string{"node-a", "node-b", "node-c"},
				OSDs:  []cephv1alpha1.OSDDevices{{Data: "/dev/sda"}, {Data: "/dev/sdb"}},
			}},
			UpdateDomain: "Host",
			PodTemplate:  cephv1alpha1.PodTemplate{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "osd"}}}},
		},
	}
}

// plannedWorld is a CephOSD whose template has changed, at rest.
func plannedWorld() *world {
	w := newWorld()
	w.cephOSD = podspec.Set{CephOSD: cephOSD(), Hash: "new"}
	w.hosts = map[string]string{"node-a": "", "node-b": "", "node-c": ""}
	desired, _ := w.cephOSD.Desired()
	old := podspec.Set{CephOSD: w.cephOSD.CephOSD, Hash: "old"}
	for i, o := range desired {
		pod := old.Render(o, podspec.Knowledge{
			ID:             &i,
			FailureDomains: map[string]string{"zone": fmt.Sprintf("zone-%c", 'x'+i/2), "host": o.Host},
		})
		pod.Annotations[podspec.StateAnnotation] = string(podspec.UpToDate)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		w.osdPods = append(w.osdPods, pod)
	}
	for i := range 4 {
		node := fmt.Sprintf("node-%c", 'a'+i)
		labels := map[string]string{
			"app": "rook-ceph-osd", "ceph-osd-id": fmt.Sprint(i),
			"topology-location-zone": fmt.Sprintf("zone-%c", 'x'+i/2),
		}
		one := int32(1)
		w.hosts[node] = ""
		w.osdSets = append(w.osdSets, appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: fmt.Sprintf("rook-ceph-osd-%d", i)},
			Spec: appsv1.DeploymentSpec{
				Replicas: &one, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: node}},
				},
			},
			Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
		})
	}
	return w
}

func notReady(p *corev1.Pod) { p.Status.Conditions = nil }

func TestPlanOfAnUpdate(t *testing.T) {
	for name, edit := range map[string]func(*world){
		"by-host": func(*world) {},
		"by-zone-with-canary": func(w *world) {
			s := &w.cephOSD.Spec
			s.UpdateDomain, s.MaxParallel, s.Canary = "Zone", 8,
				&cephv1alpha1.Canary{Approval: true, Soak: &metav1.Duration{Duration: 30 * time.Minute}}
			s.PauseBetween = &metav1.Duration{Duration: time.Minute}
		},
		"by-osd-some-broken": func(w *world) {
			w.cephOSD.Spec.UpdateDomain, w.cephOSD.Spec.Paused = "OSD", true
			notReady(w.osdPods[3])
			w.osdPods = w.osdPods[1:]
			w.cephOSD.Spec.Windows = []cephv1alpha1.Window{
				{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}},
			}
		},
		"a-node-is-away": func(w *world) { w.hosts["node-b"] = "node node-b is cordoned"; notReady(w.osdPods[2]) },
		"canary-judged": func(w *world) {
			w.cephOSD.Spec.Canary = &cephv1alpha1.Canary{}
			w.jobs[updateID] = []Job{rollingOut(func(s *workflows.UpdateStatus) {
				s.Canary, s.Skip = workflows.Canary{Template: "new", OSD: "osd.0", Judged: true}, []string{"osd.1"}
			})}
		},
		"lost-the-monitors": func(w *world) { loseMonitors(w, "zone-y") },
		"nothing":           func(w *world) { w.cephOSD.Hash = "old" },
		"several-reasons": func(w *world) {
			w.osdPods[0].Annotations[podspec.HashAnnotation] = "new"
			w.osdPods[1].Annotations[podspec.HashAnnotation] = "new"
			w.osdPods[1].Annotations[podspec.DBAnnotation] = "/dev/nvme0n1p1"
			delete(w.osdPods[2].Annotations, podspec.HashAnnotation)
			twin := w.osdPods[3].DeepCopy()
			twin.Name = "osd-node-b-sdb-x7k2p"
			notReady(twin)
			w.osdPods = append(w.osdPods, twin)
			w.cephOSD.Spec.Windows = []cephv1alpha1.Window{
				{Schedule: "0 1 * * *", Duration: metav1.Duration{Duration: 3 * time.Hour}},
			}
		},
		"db-moves": func(w *world) {
			w.cephOSD.Spec.Storage[0].OSDs[1].DB = "/dev/nvme0n1p1"
			w.osdPods[0].Annotations[podspec.DBAnnotation] = "/dev/nvme0n1p1" // until now it was another OSD's
		},
		"refused": func(w *world) { w.cephOSD.Spec.MaxParallel = -1; w.policy = nil },
		"unlabelled": func(w *world) {
			for _, p := range w.osdPods {
				p.Labels = map[string]string{podspec.OwnerLabel: podspec.Owner("osds")}
			}
			w.keeperAway = errors.New("keeper/rook-ceph/rook-ceph does not run")
			w.hosts = map[string]string{"node-a": "", "node-b": ""}
		},
		"superfluous": func(w *world) {
			w.cephOSD.Spec.Storage[0].Hosts = []string{"node-a", "node-b"}
			foreign := w.osdPods[0].DeepCopy()
			foreign.Name, foreign.Annotations = "debug", nil
			w.osdPods = append(w.osdPods, foreign)
			held := drained()
			w.keeper = held.keeper
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := plannedWorld()
			edit(w)
			c, out, _ := w.command()
			p, err := c.PlanUpdate(t.Context(), "ceph/osds")
			require.NoError(t, err)
			p.Write(out)
			golden(t, "plan-update-"+name+".txt", out.String())
			assert.Empty(t, append(w.signals, w.updates...), "nothing is changed")
		})
	}
}

func TestPlanOfARestart(t *testing.T) {
	for name, edit := range map[string]func(*world, *workflows.RestartOSDsInput){
		"by-zone":    func(_ *world, in *workflows.RestartOSDsInput) { in.UpdateDomain = "zone" },
		"two-by-osd": func(_ *world, in *workflows.RestartOSDsInput) { in.MaxParallel = 2 },
		"not-osds": func(w *world, _ *workflows.RestartOSDsInput) {
			w.osdSets[0].Spec.Template.Labels = nil
			w.osdSets[1].Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
			w.osdSets[2].Spec.Paused = true
		},
		"none": func(w *world, _ *workflows.RestartOSDsInput) { w.osdSets = nil },
		"without-rights": func(w *world, _ *workflows.RestartOSDsInput) {
			w.mayNot = func(_ kube.Account, r kube.Right) bool { return r.Verb == "patch" && r.Resource == "deployments" }
		},
		"other-policy": func(_ *world, in *workflows.RestartOSDsInput) {
			in.Policy, in.ProgressDeadline = "others", 20*time.Minute
		},
		"a-policy": func(_ *world, in *workflows.RestartOSDsInput) {
			in.Policy, in.ProgressDeadline = "rook-ceph", 20*time.Minute
		},
		"image": func(w *world, in *workflows.RestartOSDsInput) {
			in.Image = "ceph/ceph:v20.2.4"
			for i := range w.osdSets {
				w.osdSets[i].Spec.Template.Spec.Containers = []corev1.Container{{Name: "osd", Image: "ceph/ceph:v18.2.7"}}
			}
		},
		"image-half-done": func(w *world, in *workflows.RestartOSDsInput) {
			in.Image = "ceph/ceph:v20.2.4"
			for i := range w.osdSets {
				w.osdSets[i].Spec.Template.Spec.Containers = []corev1.Container{
					{Name: "osd", Image: []string{in.Image, "ceph/ceph:v18.2.7"}[i%2]},
				}
			}
		},
		"scaled": func(w *world, _ *workflows.RestartOSDsInput) {
			zero := int32(0)
			w.osdSets[0].Spec.Replicas = &zero
			w.osdSets[3].Status.AvailableReplicas = 0
			w.policy.Spec.Ceph.OSDs.FailureDomainLabel = "example.com/{type}"
			w.osdSets[1].Labels = map[string]string{"example.com/zone": "zone-q"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := plannedWorld()
			in := workflows.RestartOSDsInput{Namespace: "rook-ceph", Selector: "app=rook-ceph-osd", UpdateDomain: "OSD"}
			edit(w, &in)
			c, out, _ := w.command()
			p, err := c.PlanRestart(t.Context(), in)
			require.NoError(t, err)
			p.Write(out)
			golden(t, "plan-restart-"+name+".txt", out.String())
			assert.Empty(t, w.restarts, "nothing is changed")
		})
	}
}

// Scripts rely on these names.
func TestRolloutPlanJSON(t *testing.T) {
	c, out, _ := plannedWorld().command()
	p, err := c.PlanRestart(t.Context(), workflows.RestartOSDsInput{Namespace: "rook-ceph", UpdateDomain: "Zone"})
	require.NoError(t, err)
	require.NoError(t, Encode(out, p, "json"))
	golden(t, "plan-restart.json", out.String())

	w := plannedWorld()
	s := &w.cephOSD.Spec
	s.Canary, s.PauseBetween = &cephv1alpha1.Canary{Soak: &metav1.Duration{Duration: 30 * time.Minute}},
		&metav1.Duration{Duration: time.Minute}
	s.Windows = []cephv1alpha1.Window{{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	s.Storage[0].Hosts = []string{"node-a"}
	c, out, _ = w.command()
	update, err := c.PlanUpdate(t.Context(), "ceph/osds")
	require.NoError(t, err)
	require.NoError(t, Encode(out, update, "json"))
	golden(t, "plan-update.json", out.String())
	for _, s := range p.Steps {
		for _, o := range s.OSDs {
			assert.Equal(t, storage.FailureDomain{Type: "zone", Name: o.Domain}, s.Domain,
				"a batch never leaves its failure domain")
			assert.Equal(t, rollout.DoReplace, s.Do)
		}
	}
}

func TestPlanWithoutKubernetes(t *testing.T) {
	w := plannedWorld()
	c, _, _ := w.command()
	_, err := c.PlanUpdate(t.Context(), "ceph/others")
	require.ErrorContains(t, err, `CEPHOSD: "ceph/others": no such CephOSD`)
	w.kubeAway = errors.New("the API server does not answer")
	_, err = c.PlanUpdate(t.Context(), "ceph/osds")
	require.ErrorContains(t, err, "CephOSD ceph/osds: the API server does not answer")
	_, err = c.PlanRestart(t.Context(), workflows.RestartOSDsInput{Namespace: "rook-ceph", UpdateDomain: "OSD"})
	require.ErrorContains(t, err, "list the Deployments of namespace rook-ceph: the API server does not answer")
}
