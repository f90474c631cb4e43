package longhorn

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// This file is the kubelets, and Longhorn's manager as it replaces instance managers.

// Settings of Longhorn.
const (
	settingVersion     = "current-longhorn-version"
	settingAutoscaler  = "kubernetes-cluster-autoscaler-enabled"
	settingDrainPolicy = "node-drain-policy"
	defaultDrainPolicy = longhorn.BlockIfContainsLastReplica
)

// Words of Longhorn.
const (
	running  = "running"
	stopped  = "stopped"
	starting = "starting"
	failing  = "error"
	unknown  = "unknown"
)

// installation is what Longhorn has in its books.
type installation struct {
	managers    map[string]*manager // by name
	volumesMade int
	gone        map[string]time.Time // nodes that are no more, since when
	volumes     map[string]*volume
	replicas    map[string]*replica
	ownDue      time.Time // when it looks at its budgets again
	made        int       // how many replicas were ever made
	ownNodes    map[string]*ownNode
}

func newInstallation() installation {
	return installation{
		managers: map[string]*manager{}, volumes: map[string]*volume{}, replicas: map[string]*replica{},
		gone: map[string]time.Time{}, ownNodes: map[string]*ownNode{},
	}
}

// manager is an instance manager. Its pod has the same name.
type manager struct {
	name, node string
	state      string    // what Longhorn says of it
	hears      time.Time // when Longhorn hears that it is otherwise; zero: it is not
	creates    time.Time // when Longhorn makes its pod anew; zero: it does not
	// fell is since when it does not serve, by bad luck; zero: it serves, or was evicted.
	fell time.Time
}

func uid(name string, version int) types.UID { return types.UID(fmt.Sprintf("%s-%d", name, version)) }

func managerName(node string) string { return "instance-manager-" + node }

func (w *World) addManager(node string) {
	w.managers[managerName(node)] = &manager{name: managerName(node), node: node, state: stopped}
	w.stir("InstanceManager")
}

func (w *World) managerPod(m *manager) *corev1.Pod { return w.pods[podKey(Key.Namespace, m.name)] }

func (w *World) createManagerPod(m *manager) {
	controller := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Key.Namespace, Name: m.name, Labels: map[string]string{
				kube.LonghornComponent: kube.InstanceManager, kube.LonghornNode: m.node,
				"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/instance-manager-type": "aio",
				"longhorn.io/data-engine": "v1", "longhorn.io/instance-manager-image": "imi-1",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "longhorn.io/v1beta2", Kind: "InstanceManager", Name: m.name, UID: types.UID(m.name),
				Controller: &controller,
			}},
		},
		Spec:   corev1.PodSpec{NodeName: m.node},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	w.putPod(p)
}

func (w *World) putPod(p *corev1.Pod) {
	w.pods[podKey(p.Namespace, p.Name)] = p
	w.stamp(p)
	w.stir("Pod")
}

// wrotePod gives a pod that has changed another version.
func (w *World) wrotePod(p *corev1.Pod) {
	w.stamp(p)
	w.stir("Pod")
}

func (w *World) setReady(p *corev1.Pod, is bool) {
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[is]
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	if len(p.Status.ContainerStatuses) == 0 {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{}}
	}
	p.Status.ContainerStatuses[0].Ready = is
	w.wrotePod(p)
}

func podReady(p *corev1.Pod) bool {
	return p != nil && p.DeletionTimestamp == nil && len(p.Status.Conditions) == 1 &&
		p.Status.Conditions[0].Status == corev1.ConditionTrue
}

// remove begins the end of a pod.
func (w *World) remove(p *corev1.Pod) {
	if p.DeletionTimestamp != nil {
		return
	}
	now := metav1.Now()
	p.DeletionTimestamp = &now
	w.wrotePod(p)
	w.endPod(p, w.between(200*time.Millisecond, 3*time.Second))
}

// endPod has the kubelet end a pod, which takes a kubelet.
func (w *World) endPod(p *corev1.Pod, after time.Duration) {
	w.later(after, func() {
		if n := w.nodes[p.Spec.NodeName]; n != nil && w.machines[n.Name].lost {
			w.endPod(p, 5*time.Second)
			return
		}
		w.dropPod(p)
	})
}

func (w *World) dropPod(p *corev1.Pod) {
	if key := podKey(p.Namespace, p.Name); w.pods[key] == p {
		delete(w.pods, key)
		w.stir("Pod")
	}
}

func nodeReady(n *corev1.Node) bool {
	return n != nil && kube.NodeReady(n)
}

// serves tells whether the instance manager of a node is at work.
func (w *World) serves(node string) bool {
	return nodeReady(w.nodes[node]) && podReady(w.pods[podKey(Key.Namespace, managerName(node))])
}

// tick has everything go on that takes time.
func (w *World) tick() {
	for w.pause(500 * time.Millisecond) {
		w.happens(w.pass)
	}
}

// pass brings everything to where it is by now.
func (w *World) pass() {
	for _, name := range sorted(w.nodes) {
		if w.managers[managerName(name)] == nil && nodeReady(w.nodes[name]) {
			w.addManager(name)
		}
	}
	for _, name := range sorted(w.managers) {
		w.passManager(w.managers[name])
	}
	w.passOwn()
	for _, name := range sorted(w.replicas) {
		if r := w.replicas[name]; r != nil {
			w.passReplica(r)
		}
	}
	for _, name := range sorted(w.volumes) {
		w.passVolume(w.volumes[name])
	}
	if !time.Now().Before(w.ownDue) {
		w.ownDue = time.Now().Add(w.between(time.Second, 6*time.Second))
		w.passBudgets()
	}
	w.noteReturned()
}

// actual is how an instance manager is, whatever Longhorn says of it.
func (w *World) actual(m *manager) string {
	p, n := w.managerPod(m), w.nodes[m.node]
	switch {
	case p == nil:
		return stopped
	case !nodeReady(n):
		return unknown
	case p.DeletionTimestamp != nil:
		return failing
	case podReady(p):
		return running
	case p.Status.Phase == corev1.PodPending:
		return starting
	default:
		return failing
	}
}

func (w *World) passManager(m *manager) {
	now, n := time.Now(), w.nodes[m.node]
	if n == nil {
		if m.hears.IsZero() {
			m.hears = now.Add(w.between(time.Second, 10*time.Second))
		}
		if !now.Before(m.hears) {
			delete(w.managers, m.name)
			w.stir("InstanceManager")
		}
		return
	}
	is := w.actual(m)
	switch {
	case is == m.state:
		m.hears = time.Time{}
	case m.hears.IsZero():
		m.hears = now.Add(w.between(0, 3*time.Second))
	case !now.Before(m.hears):
		m.state, m.hears = is, time.Time{}
		w.stir("InstanceManager")
	}
	if is == running {
		m.fell = time.Time{}
	}
	p := w.managerPod(m)
	switch {
	case p != nil || !nodeReady(n) || n.Spec.Unschedulable:
		m.creates = time.Time{}
	case m.creates.IsZero():
		m.creates = now.Add(w.between(time.Second, 20*time.Second))
	case !now.Before(m.creates):
		m.creates = time.Time{}
		w.createManagerPod(m)
		w.startPod(w.managerPod(m))
	}
}

// startPod has the kubelet start a pod.
func (w *World) startPod(p *corev1.Pod) {
	w.later(w.between(time.Second, 6*time.Second), func() {
		if w.pods[podKey(p.Namespace, p.Name)] == p && p.DeletionTimestamp == nil && nodeReady(w.nodes[p.Spec.NodeName]) {
			w.setReady(p, true)
		}
	})
}

// engines are those that run in an instance manager.
func (w *World) engines(node string) (names []string) {
	for _, name := range sorted(w.volumes) {
		if v := w.volumes[name]; v.engine == node {
			names = append(names, v.name+"-e-0")
		}
	}
	return names
}

// passBudgets is Longhorn's manager as it makes and deletes budgets of its own. All that it looks at is whether one of
// the name exists.
func (w *World) passBudgets() {
	for _, name := range sorted(w.budgets) {
		b := w.budgets[name]
		if b.Spec.Selector.MatchLabels[kube.LonghornComponent] == kube.InstanceManager && w.managers[name] == nil {
			w.dropBudget(name, byLonghorn)
		}
	}
	for _, name := range sorted(w.managers) {
		m := w.managers[name]
		n, has := w.nodes[m.node], w.budgets[name] != nil
		if n == nil || m.state != running {
			continue
		}
		may := w.longhornLetsGo(m.node)
		wants := w.settings[settingAutoscaler] != "true" || !may
		switch {
		case n.Spec.Unschedulable && has && may, !n.Spec.Unschedulable && has && !wants:
			w.dropBudget(name, byLonghorn)
		case !n.Spec.Unschedulable && !has && wants:
			w.makeOwnBudget(m)
		}
	}
}

// longhornLetsGo is what Longhorn's manager decides about a node by itself.
func (w *World) longhornLetsGo(node string) bool {
	drain := longhorn.DrainPolicy(w.settings[settingDrainPolicy])
	if len(w.engines(node)) > 0 {
		return false
	}
	if drain == longhorn.AlwaysAllow {
		return true
	}
	for _, r := range w.replicas {
		if r.node != node {
			continue
		}
		if drain == longhorn.BlockForEviction {
			return false
		}
		if !r.used() || drain == longhorn.AllowIfReplicaIsStopped && r.idle() {
			continue
		}
		if !w.hasProtectedPeer(r) {
			return false
		}
	}
	return true
}

func (w *World) hasProtectedPeer(r *replica) bool {
	for _, o := range w.replicas {
		n, m := w.nodes[o.node], w.managers[managerName(o.node)]
		if o.volume == r.volume && o.node != r.node && o.whole() && n != nil && !n.Spec.Unschedulable && m != nil &&
			m.state == running && w.budgets[m.name] != nil {
			return true
		}
	}
	return false
}

// managerNodes are the nodes with instance managers of which Longhorn knows.
func (w *World) managerNodes() (names []string) {
	for _, name := range sorted(w.managers) {
		names = append(names, strings.TrimPrefix(name, "instance-manager-"))
	}
	slices.Sort(names)
	return names
}
