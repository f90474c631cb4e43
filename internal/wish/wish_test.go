package wish_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

var refused = time.Unix(1_800_000_000, 0)

func meta(name string, owner ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), OwnerReferences: owner}
}

func by(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID("uid of " + name), Controller: new(true),
	}
}

// pod runs, and is ready.
func pod(name string, owner metav1.OwnerReference, edit ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: meta(name, owner), Spec: corev1.PodSpec{NodeName: "node-a"}}
	p.Labels = map[string]string{}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "osd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	for _, e := range edit {
		e(&p)
	}
	return p
}

func label(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func unready(p *corev1.Pod)     { p.Status.Conditions = nil }
func crashed(p *corev1.Pod)     { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }
func terminating(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(refused)) }

func replicaSet(name, deployment string, replicas int32) appsv1.ReplicaSet {
	r := appsv1.ReplicaSet{ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
	if deployment != "" {
		r.OwnerReferences = []metav1.OwnerReference{by("Deployment", deployment)}
	}
	return r
}

func deployment(name string, replicas int32) appsv1.Deployment {
	return appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
}

// changed is a Deployment whose template has changed, and whose old pod was refused to go.
func changed(pods ...corev1.Pod) wish.Objects {
	old := replicaSet("osd-3-old", "osd-3", 0)
	old.Status.Conditions = []appsv1.ReplicaSetCondition{{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedDelete",
		LastTransitionTime: metav1.NewTime(refused),
	}}
	return wish.Objects{
		Deployments: []appsv1.Deployment{deployment("osd-3", 1)},
		ReplicaSets: []appsv1.ReplicaSet{old, replicaSet("osd-3-new", "osd-3", 1)}, Pods: pods,
	}
}

// again is a Deployment that was deleted and made again while the pod of the first one waits.
func again(old corev1.Pod) wish.Objects {
	return wish.Objects{
		Deployments: []appsv1.Deployment{deployment("osd-3", 1)},
		ReplicaSets: []appsv1.ReplicaSet{replicaSet("osd-3-again", "osd-3", 1)},
		Pods:        []corev1.Pod{old, pod("osd-3-again-x", by("ReplicaSet", "osd-3-again"))},
		Daemon:      func(p *corev1.Pod) string { return p.Labels["id"] },
	}
}

func statefulSet(edit func(*appsv1.StatefulSet), pods ...corev1.Pod) wish.Objects {
	s := appsv1.StatefulSet{ObjectMeta: meta("osd")}
	s.Spec.Replicas, s.Status.UpdateRevision = new(int32(3)), "new"
	if edit != nil {
		edit(&s)
	}
	return wish.Objects{StatefulSets: []appsv1.StatefulSet{s}, Pods: pods}
}

func ordinal(n int, revision string, edit ...func(*corev1.Pod)) corev1.Pod {
	return pod(fmt.Sprintf("osd-%d", n), by("StatefulSet", "osd"),
		append(edit, label(appsv1.StatefulSetRevisionLabel, revision))...)
}

func daemonSet(edit func(*appsv1.DaemonSet), pods ...corev1.Pod) wish.Objects {
	d := appsv1.DaemonSet{ObjectMeta: meta("osd")}
	d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
	d.Status.DesiredNumberScheduled = int32(len(pods)) //nolint:gosec // a handful
	if edit != nil {
		edit(&d)
	}
	return wish.Objects{DaemonSets: []appsv1.DaemonSet{d}, Pods: pods}
}

func onNode(node, generation string, edit ...func(*corev1.Pod)) corev1.Pod {
	return pod("osd-"+node, by("DaemonSet", "osd"), append(edit, label("pod-template-generation", generation))...)
}

func cephOSD(edit ...func(*cephv1alpha1.CephOSD)) cephv1alpha1.CephOSD {
	c := cephv1alpha1.CephOSD{ObjectMeta: meta("osds")}
	for _, e := range edit {
		e(&c)
	}
	return c
}

// ofCephOSD is a pod of the CephOSD osds, of an older version of its API.
func ofCephOSD(there ...cephv1alpha1.CephOSD) wish.Objects {
	owner := by(cephv1alpha1.Kind, "osds")
	owner.APIVersion = cephv1alpha1.GroupVersion.Group + "/v1alpha0"
	return wish.Objects{Pods: []corev1.Pod{pod("osd-a-sda", owner)}, CephOSDs: there, KnowsCephOSDs: true}
}

func TestFind(t *testing.T) {
	old := func(edit ...func(*corev1.Pod)) corev1.Pod {
		return pod("osd-3-old-x", by("ReplicaSet", "osd-3-old"), edit...)
	}
	for name, c := range map[string]struct {
		objects wish.Objects
		edit    func(*wish.Objects)
		want    []string // "pod owner", with + for newer and ! for an orphan
	}{
		"a changed Deployment":   {objects: changed(old()), want: []string{"osd-3-old-x Deployment/osd-3+"}},
		"its old pod terminates": {objects: changed(old(terminating))},
		"its old pod crashed":    {objects: changed(old(crashed))},
		"its old pod is not ready and runs": {
			objects: changed(old(unready)),
			want:    []string{"osd-3-old-x Deployment/osd-3+"},
		},
		"rolled back": {
			objects: changed(old()),
			edit: func(o *wish.Objects) {
				o.ReplicaSets[0].Spec.Replicas, o.ReplicaSets[1].Spec.Replicas = new(int32(1)), new(int32(0))
			},
		},
		"paused in the middle": {
			objects: changed(old()),
			edit:    func(o *wish.Objects) { o.Deployments[0].Spec.Paused = true },
		},
		"scaled to 0": {
			objects: changed(old()), edit: func(o *wish.Objects) { o.Deployments[0].Spec.Replicas = new(int32(0)) },
			want: []string{"osd-3-old-x Deployment/osd-3"},
		},
		"scaled down": {
			objects: wish.Objects{
				Deployments: []appsv1.Deployment{deployment("mon", 1)}, ReplicaSets: []appsv1.ReplicaSet{replicaSet("mon-1",
					"mon", 1)},
				Pods: []corev1.Pod{pod("mon-a", by("ReplicaSet", "mon-1")), pod("mon-b", by("ReplicaSet", "mon-1"), unready)},
			},
			want: []string{"mon-b Deployment/mon"},
		},
		"a ReplicaSet of its own": {
			objects: wish.Objects{
				ReplicaSets: []appsv1.ReplicaSet{replicaSet("osd", "", 0)}, Pods: []corev1.Pod{pod("osd-x", by("ReplicaSet",
					"osd"))},
			},
			want: []string{"osd-x ReplicaSet/osd"},
		},
		"deleted in the background": {
			objects: wish.Objects{Pods: []corev1.Pod{old()}}, want: []string{"osd-3-old-x ReplicaSet/osd-3-old!"},
		},
		"deleted in the foreground": {
			objects: changed(old()), edit: func(o *wish.Objects) {
				o.ReplicaSets[0].Spec.Replicas, o.ReplicaSets[0].DeletionTimestamp = new(int32(1)), new(metav1.NewTime(refused))
			},
			want: []string{"osd-3-old-x ReplicaSet/osd-3-old!"},
		},
		"made again, its pod is there": {objects: again(old()), want: []string{"osd-3-old-x Deployment/osd-3+!"}},
		"made again, its pod crashes": {
			objects: again(old()), edit: func(o *wish.Objects) { crashed(&o.Pods[1]); unready(&o.Pods[1]) },
			want: []string{"osd-3-old-x Deployment/osd-3+!"},
		},
		"made again, its pod is another daemon's": {
			objects: again(old()), edit: func(o *wish.Objects) { o.Pods[1].Labels["id"] = "4" },
			want: []string{"osd-3-old-x ReplicaSet/osd-3-old!"},
		},
		"made again, its pod terminates": {
			objects: again(old()), edit: func(o *wish.Objects) { terminating(&o.Pods[1]) },
			want: []string{"osd-3-old-x ReplicaSet/osd-3-old!"},
		},
		"made again and deleted again": {
			objects: again(old()), edit: func(o *wish.Objects) { o.ReplicaSets = nil },
			want: []string{"osd-3-again-x ReplicaSet/osd-3-again!", "osd-3-old-x ReplicaSet/osd-3-old!"},
		},
		"made again and scaled to 0": {
			objects: again(old()), edit: func(o *wish.Objects) {
				o.ReplicaSets[0].Spec.Replicas, o.Deployments[0].Spec.Replicas = new(int32(0)), new(int32(0))
			},
			want: []string{"osd-3-again-x Deployment/osd-3", "osd-3-old-x ReplicaSet/osd-3-old!"},
		},
		"made again, nobody knows the daemons": {
			objects: again(old()), edit: func(o *wish.Objects) { o.Daemon = nil },
			want: []string{"osd-3-old-x ReplicaSet/osd-3-old!"},
		},
		"another owner is still there": {objects: changed(old()), edit: func(o *wish.Objects) {
			o.Pods[0].OwnerReferences[0].UID = "gone"
			o.Pods[0].OwnerReferences = append(o.Pods[0].OwnerReferences, by("ReplicaSet", "osd-3-new"))
			o.Pods[0].OwnerReferences[1].Controller = nil
		}},
		"a bare pod": {objects: changed(old()), edit: func(o *wish.Objects) { o.Pods[0].OwnerReferences = nil }},
		"of a kind that is not known": {objects: changed(old()), edit: func(o *wish.Objects) {
			o.Pods[0].OwnerReferences[0].APIVersion, o.Pods[0].OwnerReferences[0].UID = "example.com/v1", "gone"
			o.KnowsCephOSDs = true
		}},

		"CephOSD: it is there": {objects: ofCephOSD(cephOSD())},
		"CephOSD: deleted":     {objects: ofCephOSD(), want: []string{"osd-a-sda CephOSD/osds!"}},
		"CephOSD: another one of its name": {
			objects: ofCephOSD(cephOSD(func(c *cephv1alpha1.CephOSD) { c.UID = "later" })),
			want:    []string{"osd-a-sda CephOSD/osds!"},
		},
		"CephOSD: deleted in the foreground": {
			objects: ofCephOSD(cephOSD(func(c *cephv1alpha1.CephOSD) { c.DeletionTimestamp = new(metav1.NewTime(refused)) })),
			want:    []string{"osd-a-sda CephOSD/osds!"},
		},
		"CephOSD: nobody has read which there are": {
			objects: ofCephOSD(), edit: func(o *wish.Objects) { o.KnowsCephOSDs = false },
		},

		"StatefulSet: the highest first": {
			objects: statefulSet(nil, ordinal(0, "old"), ordinal(1, "old"), ordinal(2, "old")),
			want:    []string{"osd-2 StatefulSet/osd+"},
		},
		"StatefulSet: then the next": {
			objects: statefulSet(nil, ordinal(0, "old"), ordinal(1, "old"), ordinal(2, "new")),
			want:    []string{"osd-1 StatefulSet/osd+"},
		},
		"StatefulSet: it waits for the one before": {
			objects: statefulSet(nil, ordinal(0, "old"), ordinal(1, "old"), ordinal(2, "new", unready)),
		},
		"StatefulSet: the one before is being made": {objects: statefulSet(nil, ordinal(0, "old"), ordinal(1, "old"))},
		"StatefulSet: the one before terminates": {
			objects: statefulSet(nil, ordinal(0, "old"), ordinal(1, "old"), ordinal(2, "old", terminating)),
		},
		"StatefulSet: a partition": {
			objects: statefulSet(func(s *appsv1.StatefulSet) {
				s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
			}, ordinal(0, "old"), ordinal(1, "old"), ordinal(2, "new")),
		},
		"StatefulSet: OnDelete": {
			objects: statefulSet(func(s *appsv1.StatefulSet) {
				s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			}, ordinal(2, "old")),
		},
		"StatefulSet: scaled down": {
			objects: statefulSet(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) },
				ordinal(0, "new"), ordinal(1, "new"), ordinal(2, "new")),
			want: []string{"osd-2 StatefulSet/osd"},
		},
		"StatefulSet: scaled down in parallel": {
			objects: statefulSet(func(s *appsv1.StatefulSet) {
				s.Spec.Replicas, s.Spec.PodManagementPolicy = new(int32(1)), appsv1.ParallelPodManagement
			}, ordinal(0, "new"), ordinal(1, "new"), ordinal(2, "new")),
			want: []string{"osd-1 StatefulSet/osd", "osd-2 StatefulSet/osd"},
		},

		"DaemonSet: any of the old ones": {
			objects: daemonSet(nil, onNode("a", "1"), onNode("b", "2"), onNode("c", "1")),
			want:    []string{"osd-a DaemonSet/osd+", "osd-c DaemonSet/osd+"},
		},
		"DaemonSet: one is away": {objects: daemonSet(nil, onNode("a", "1"), onNode("b", "2", unready))},
		"DaemonSet: the one that is away is old": {
			objects: daemonSet(nil, onNode("a", "1"), onNode("b", "1", unready)), want: []string{"osd-b DaemonSet/osd+"},
		},
		"DaemonSet: two may be away": {
			objects: daemonSet(func(d *appsv1.DaemonSet) {
				d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(2))}
			}, onNode("a", "1"), onNode("b", "2", unready)),
			want: []string{"osd-a DaemonSet/osd+"},
		},
		"DaemonSet: OnDelete": {
			objects: daemonSet(func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType },
				onNode("a", "1")),
		},
		"DaemonSet: deleted": {
			objects: wish.Objects{Pods: []corev1.Pod{onNode("a", "1")}}, want: []string{"osd-a DaemonSet/osd!"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(&c.objects)
			}
			var got []string
			for _, w := range wish.Find(c.objects) {
				s := w.Pod + " " + w.Owner
				if w.Newer {
					s += "+"
				}
				if w.Orphan {
					s += "!"
				}
				got = append(got, s)
				require.Equal(t, "node-a", w.Node)
			}
			require.Equal(t, c.want, got)
		})
	}
	require.Equal(t, refused, wish.Find(changed(old()))[0].Since, "the ReplicaSet says since when")
}

// TestOnlyWhatSomebodyWants: whatever the objects, a wish is a running pod that its owner has too many of, or no owner;
// and none is left when every owner has what it wants.
func TestOnlyWhatSomebodyWants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o wish.Objects
		excess := map[types.UID]int{}
		for i := range rapid.IntRange(0, 4).Draw(t, "owners") {
			name := fmt.Sprintf("r%d", i)
			r := replicaSet(name, name, rapid.Int32Range(0, 2).Draw(t, "replicas"))
			if rapid.Bool().Draw(t, "there") {
				o.ReplicaSets = append(o.ReplicaSets, r)
			}
			live := 0
			for j := range rapid.IntRange(0, 3).Draw(t, "pods") {
				p := pod(fmt.Sprintf("%s-%d", name, j), by("ReplicaSet", name))
				edits := []func(*corev1.Pod){func(*corev1.Pod) {}, unready, crashed, terminating}
				rapid.SampledFrom(edits).Draw(t, "how")(&p)
				if p.DeletionTimestamp == nil {
					live++
				}
				o.Pods = append(o.Pods, p)
			}
			excess[r.UID] = live - int(*r.Spec.Replicas)
		}
		there := func(uid types.UID) bool {
			return slices.ContainsFunc(o.ReplicaSets, func(r appsv1.ReplicaSet) bool { return r.UID == uid })
		}
		found := wish.Find(o)
		seen := map[types.UID]int{}
		for _, w := range found {
			at := slices.IndexFunc(o.Pods, func(p corev1.Pod) bool { return p.UID == w.UID })
			owner := o.Pods[at].OwnerReferences[0].UID
			seen[owner]++
			require.True(t, wish.Runs(&o.Pods[at]))
			require.Equal(t, !there(owner), w.Orphan)
			require.False(t, w.Newer, "nothing says that another one comes")
		}
		for uid, n := range seen {
			if there(uid) {
				require.LessOrEqual(t, n, excess[uid])
			}
		}
		slices.Reverse(o.Pods)
		slices.Reverse(o.ReplicaSets)
		require.Equal(t, found, wish.Find(o), "in whatever order they are listed")

		for i := range o.ReplicaSets {
			o.ReplicaSets[i].Spec.Replicas = new(int32(3))
		}
		for _, w := range wish.Find(o) {
			require.True(t, w.Orphan, "every owner has what it wants")
		}
	})
}
