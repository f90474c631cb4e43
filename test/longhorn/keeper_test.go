package longhorn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	evictions "github.com/lockkeeper/lockkeeper/test/hammer"
)

const removalTaint = "ToBeDeletedByClusterAutoscaler"

// keeper has lockkeeper look after the installation, while everything is evicted all the time for which that is
// allowed: no two nodes with replicas of one volume are ever without their instance managers, whoever is dead.
func keeper(w *world) {
	w.remove("vol") // its two replicas would have a say in what may go
	k := w.MoveIn("--longhorn")
	defer k.Stop()
	w.await("Longhorn's own are empty, and ours are there", func() bool {
		return w.mayDrain() == "a node once it is cordoned" && len(w.budgeted()) == 3 && !w.anyFull()
	})
	w.set("kubernetes-cluster-autoscaler-enabled", "true")
	w.Lab("volume", "create", "data", "--replicas", "3", "--size", "8Mi")
	w.Lab("volume", "attach", "data", "node-a")
	w.Lab("load", "start", "--volume", "data")
	time.Sleep(time.Second)
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "data")
	w.await("one of two", func() bool { return strings.HasPrefix(w.mayDrain(), "one of ") })
	w.await("the autoscalers are held back from the third", func() bool {
		held := w.heldBack()
		return len(held) == 1 && !strings.Contains(w.mayDrain(), held[0])
	})

	stays := w.heldBack()[0]
	w.InLab(`kubectl annotate node "$1" cluster-autoscaler.kubernetes.io/scale-down-disabled- >/dev/null`, stays)
	w.await("they still are when somebody takes away what held them", func() bool {
		return slices.Contains(w.heldBack(), stays)
	})
	w.guardsDeletions(stays)

	e := w.evictEverything()
	w.await("one goes, and another one when it is back", func() bool { return len(e.went()) >= 2 })
	w.since(e, 0)

	// All three are to be removed at once: none goes, until one of them is not to be any more.
	for _, n := range allNodes {
		w.taint(n, true)
	}
	w.await("all stay", func() bool { return w.mayDrain() == "a node once it is cordoned" })
	w.awaitAllRun()
	before := len(e.went())
	time.Sleep(3 * time.Second)
	require.Len(w, e.went(), before, "the last healthy replica of a volume went")
	w.taint("node-b", false)
	w.await("the two others go", func() bool { return len(w.since(e, before)) >= 1 })
	first := w.since(e, before)[0]
	require.NotEqual(w, "node-b", first)
	w.taint(first, false)
	w.await("and the other one, after the first", func() bool {
		return slices.ContainsFunc(w.since(e, before), func(n string) bool { return n != first && n != "node-b" })
	})
	for _, n := range allNodes {
		w.taint(n, false)
	}
	w.awaitAllRun()
	e.stop()

	// With everything of ours dead one more node goes, and no second one.
	w.await("one of two", func() bool { return strings.HasPrefix(w.mayDrain(), "one of ") })
	k.Kill()
	e = w.evictEverything()
	time.Sleep(8 * time.Second)
	went := e.stop()
	require.LessOrEqual(w, len(went), 1, "%v", went)
	w.awaitAllRun()
	k.Start()

	w.drainsWithVolume()
	w.detachesByHand()
	w.movesAway()
	w.handsBack()
}

// remove deletes a volume, and waits until its replicas are gone, too.
func (w *world) remove(volume string) {
	w.Helper()
	of := func(kind string) *unstructured.UnstructuredList {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: kind + "List"})
		require.NoError(w, w.List(w.Context(), list, client.InNamespace(namespace)))
		return list
	}
	for _, v := range of("Volume").Items {
		if v.GetName() == volume {
			require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), &v)))
		}
	}
	w.await("the volume is gone", func() bool {
		return !slices.ContainsFunc(of("Replica").Items, func(r unstructured.Unstructured) bool {
			name, _, _ := unstructured.NestedString(r.Object, "spec", "volumeName")
			return name == volume
		})
	})
}

// drainsWithVolume drains a node to which a volume is attached: it waits until it is detached, and then goes.
func (w *world) drainsWithVolume() {
	w.Helper()
	w.Lab("volume", "attach", "data", "node-c")
	w.lockkeeper("drain", "node-c")
	w.await("it is cordoned", func() bool {
		n, err := w.Typed.CoreV1().Nodes().Get(w.Context(), "node-c", metav1.GetOptions{})
		return err == nil && n.Spec.Unschedulable
	})
	time.Sleep(time.Second)
	require.Contains(w, w.explain("node-c"), "engine data-e-0 runs here")
	require.Equal(w, 3, w.running(), "a volume is attached")
	w.Lab("volume", "detach", "data")
	w.await("its instance manager goes", func() bool { return w.running() == 2 })
	w.cordon("node-c", false)
	w.await("the drain is done", func() bool {
		return strings.Contains(w.lockkeeper("status", "node-c"), "Done")
	})
	w.awaitAllRun() // without an instance manager there the volume is attached, and not healthy
	w.Lab("volume", "attach", "data", "node-a")
	w.Lab("load", "start", "--volume", "data")
	time.Sleep(time.Second)
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "data")
}

// detachesByHand drains a node to which a volume is attached by hand, and has another one announce its removal: where
// the policy says so, and the right is granted, it is detached without anybody.
func (w *world) detachesByHand() {
	w.Helper()
	p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "longhorn"}}
	require.NoError(w, w.Patch(w.Context(), p, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"longhorn":{"detachOnCordon":true}}}`))))
	w.Lab("volume", "attach", "data", "node-b")
	w.lockkeeper("drain", "node-b")
	w.await("it says what it lacks", func() bool {
		return strings.Contains(w.lockkeeper("status", "node-b"), "deploy/storage-namespace-longhorn-detach.yaml")
	})
	require.Equal(w, 3, w.running(), "the volume is attached still")
	w.InLab("kubectl -n " + namespace + " apply -f ../../deploy/storage-namespace-longhorn-detach.yaml")
	w.lockkeeper("pause", "node-b")
	w.lockkeeper("resume", "node-b")
	w.await("its instance manager goes", func() bool { return w.running() == 2 })
	w.cordon("node-b", false)
	w.await("the drain is done", func() bool {
		return strings.Contains(w.lockkeeper("status", "node-b"), "Done")
	})
	require.Contains(w, w.lockkeeper("history", "node-b"), "detached data from node-b, which was attached by hand")
	w.awaitAllRun()
	w.Lab("volume", "attach", "data", "node-a")
	w.taint("node-a", true)
	w.await("the volume is detached", func() bool { return !strings.Contains(w.explain("node-a"), "engine data-e-0") })
	w.taint("node-a", false)
	w.Lab("volume", "attach", "data", "node-c")
	w.Lab("load", "start", "--volume", "data")
	time.Sleep(time.Second)
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "data")
}

// movesAway has a node with the only replica of a volume be about to be removed: where the policy says so, and the
// right is granted, Longhorn moves it to another node, and then the node goes, while all is evicted that may be.
func (w *world) movesAway() {
	w.Helper()
	w.Lab("volume", "create", "one", "--replicas", "1", "--size", "64Mi")
	w.Lab("volume", "attach", "one", "node-a")
	w.Lab("load", "start", "--volume", "one")
	time.Sleep(time.Second)
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "one")
	from := w.replicasOf("one")[0]
	w.await("it stays", func() bool { return slices.Contains(w.heldBack(), from) })

	p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "longhorn"}}
	require.NoError(w, w.Patch(w.Context(), p, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"longhorn":{"evictOnRemoval":true}}}`))))
	w.await("an autoscaler may choose it", func() bool { return !slices.Contains(w.heldBack(), from) })
	w.taint(from, true)
	w.await("it says what it lacks", func() bool {
		said := w.InLab(`../../bin/lockkeeper explain "$1" || test $? = 5`, from) // the answer is no
		return strings.Contains(said, "deploy/storage-namespace-longhorn-evict.yaml")
	})
	w.taint(from, false)
	w.InLab("kubectl -n " + namespace + " apply -f ../../deploy/storage-namespace-longhorn-evict.yaml")
	w.awaitAllRun()

	e := w.evictEverything()
	before := len(e.went())
	w.taint(from, true)
	w.await("Longhorn moves it", func() bool { return !slices.Contains(w.replicasOf("one"), from) })
	w.await("and the node goes", func() bool { return slices.Contains(w.since(e, before), from) })
	w.taint(from, false)
	w.await("Longhorn's node is as it was", func() bool {
		return w.ownNode(from) == "allowScheduling true, evictionRequested false"
	})
	e.stop()
	w.awaitAllRun()
	w.Lab("volume", "attach", "one", from)
	w.Lab("load", "start", "--volume", "one")
	time.Sleep(time.Second)
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "one")
}

// replicasOf are the nodes on which a volume has replicas.
func (w *world) replicasOf(volume string) (nodes []string) {
	w.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: "ReplicaList"})
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(namespace)))
	for _, r := range list.Items {
		name, _, _ := unstructured.NestedString(r.Object, "spec", "volumeName")
		if node, _, _ := unstructured.NestedString(r.Object, "spec", "nodeID"); name == volume && node != "" {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// ownNode is what Longhorn's own object says of a node, with what of that is ours.
func (w *world) ownNode(name string) string {
	n := &unstructured.Unstructured{}
	n.SetGroupVersionKind(schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: "Node"})
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, n); err != nil {
		return err.Error()
	}
	allows, _, _ := unstructured.NestedBool(n.Object, "spec", "allowScheduling")
	evicts, _, _ := unstructured.NestedBool(n.Object, "spec", "evictionRequested")
	return strings.TrimSpace(fmt.Sprintf("allowScheduling %t, evictionRequested %t %s", allows, evicts,
		n.GetAnnotations()[kube.Relocates]))
}

// guardsDeletions has deletions wait as evictions do, from here on, while Longhorn replaces its instance managers.
func (w *world) guardsDeletions(kept string) {
	w.Helper()
	w.InLab("kubectl apply -f ../../deploy/guard-deletions/policy.yaml")
	w.InLab("sed s/rook-ceph/" + namespace + "/ ../../deploy/guard-deletions/namespace.yaml | kubectl apply -f -")
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{
		LabelSelector: managers + "," + kube.LonghornNode + "=" + kept,
	})
	require.NoError(w, err)
	require.Len(w, pods.Items, 1)
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	w.await("its deletion waits for its turn", func() bool {
		err := w.Typed.CoreV1().Pods(namespace).Delete(w.Context(), pods.Items[0].Name, dry)
		return err != nil && strings.Contains(err.Error(), "has to wait for its turn")
	})
}

// handsBack takes the admission policy away: Longhorn's own budgets decide again, and ours go when they are there. Then
// the policy goes, and leaves nothing behind.
func (w *world) handsBack() {
	w.Helper()
	w.InLab("kubectl delete validatingadmissionpolicybinding lockkeeper-guard-deletions-" + namespace)
	w.set("kubernetes-cluster-autoscaler-enabled", "false")
	w.uninstall("../../deploy/longhorn/one-writer.yaml")
	w.lockkeeper("status") // which is not refused meanwhile
	w.cordon("node-b", true)
	w.cordon("node-b", false) // so that the keeper looks
	handedBack := func() bool { return w.anyFull() && len(w.ourBudgets()) == 0 }
	w.await("Longhorn's own are full again, and ours gone", handedBack)
	w.emptiesByItself()
	var p v1alpha1.MaintenancePolicy
	key := client.ObjectKey{Namespace: namespace, Name: "longhorn"}
	require.NoError(w, w.Get(w.Context(), key, &p))
	require.NoError(w, w.Delete(w.Context(), &p))
	w.await("Longhorn's own are full once more, and ours gone", handedBack)
	w.await("the policy is gone", func() bool { return w.Get(w.Context(), key, &p) != nil })
	require.Empty(w, w.heldBack())
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{
		LabelSelector: managers + ",lockkeeper.io/proved",
	})
	require.NoError(w, err)
	require.Empty(w, pods.Items, "marks are left")
}

// mayDrain is what the policy's status answers.
func (w *world) mayDrain() string {
	var p v1alpha1.MaintenancePolicy
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: "longhorn"}, &p); err != nil {
		return err.Error()
	}
	return p.Status.MayDrain
}

func (w *world) ourBudgets() []policyv1.PodDisruptionBudget {
	w.Helper()
	var all policyv1.PodDisruptionBudgetList
	require.NoError(w, w.List(w.Context(), &all, client.InNamespace(namespace),
		client.MatchingLabels{kube.LabelManagedBy: kube.FieldOwner}))
	return all.Items
}

// anyFull tells whether a budget of Longhorn's own decides anything.
func (w *world) anyFull() bool {
	return slices.ContainsFunc(w.longhornsBudgets(), func(b policyv1.PodDisruptionBudget) bool {
		return *b.Spec.MinAvailable != intstr.FromInt32(0)
	})
}

func (w *world) heldBack() (names []string) {
	w.Helper()
	nodes, err := w.Typed.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, n := range nodes.Items {
		if n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] == "true" {
			names = append(names, n.Name)
		}
	}
	return names
}

// taint has a node be about to be removed, or not any more.
func (w *world) taint(node string, on bool) {
	w.Helper()
	taints := "[]"
	if on {
		taints = fmt.Sprintf(`[{"key":%q,"value":"%d","effect":"NoSchedule"}]`, removalTaint, time.Now().Unix())
	}
	_, err := w.Typed.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType,
		[]byte(`{"spec":{"taints":`+taints+`}}`), patchOptions)
	require.NoError(w, err)
}

// running counts the instance managers that run.
func (w *world) running() (n int) {
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{LabelSelector: managers})
	if err != nil {
		return 0
	}
	for _, p := range pods.Items {
		s := p.Status.ContainerStatuses
		if p.DeletionTimestamp == nil && len(s) == 1 && s[0].Ready {
			n++
		}
	}
	return n
}

func (w *world) awaitAllRun() {
	w.Helper()
	w.await("all instance managers run", func() bool { return w.running() == 3 })
}

// evictor evicts whatever it is allowed to, and notes what went.
type evictor struct {
	stopped context.CancelFunc
	done    sync.WaitGroup
	mu      sync.Mutex
	nodes   []string // whose instance managers went, in their order
	wrong   []string
}

// evictEverything begins to evict all instance managers all the time, with several clients. All three nodes have a
// replica of the same volume, so that at any time at most one may be without its instance manager.
func (w *world) evictEverything() *evictor {
	e := &evictor{}
	var ctx context.Context
	ctx, e.stopped = context.WithCancel(context.Background())
	for range 3 {
		e.done.Go(func() {
			for ctx.Err() == nil {
				w.evictAll(ctx, e)
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	w.Cleanup(func() { e.stop() })
	return e
}

func (w *world) evictAll(ctx context.Context, e *evictor) {
	pods := w.Typed.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: managers})
	if err != nil {
		return
	}
	for _, p := range list.Items {
		s := p.Status.ContainerStatuses
		if p.DeletionTimestamp != nil || len(s) != 1 || !s[0].Ready {
			continue
		}
		options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
		if err := evictions.Evict(ctx, w.Typed, &p, options); err != nil {
			continue
		}
		left := w.running()
		e.mu.Lock()
		if e.nodes = append(e.nodes, p.Spec.NodeName); left < len(allNodes)-1 {
			e.wrong = append(e.wrong, fmt.Sprintf("after that of %s %d instance managers run", p.Spec.NodeName, left))
		}
		e.mu.Unlock()
	}
}

func (e *evictor) went() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.nodes)
}

func (w *world) since(e *evictor, n int) []string {
	w.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Empty(w, e.wrong)
	return slices.Clone(e.nodes[n:])
}

// stop ends the evictions, and tells whose instance managers went.
func (e *evictor) stop() []string {
	e.stopped()
	e.done.Wait()
	return e.nodes
}

// lockkeeper runs the command in the lab's environment.
func (w *world) lockkeeper(args ...string) string {
	w.Helper()
	return w.InLab(`exec ../../bin/lockkeeper "$@"`, args...)
}
