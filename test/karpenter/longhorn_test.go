package karpenter

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/scaling"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// TestKarpenterUnderLonghorn has Karpenter need none of the three nodes any more that hold the replicas of a volume.
func TestKarpenterUnderLonghorn(t *testing.T) {
	const what = "the real Karpenter under Longhorn"
	turns.Await(t, what, 3*time.Minute)
	turns.Need(t, what, "../../lab/bin/longhorn/longhorn-manager", "longhorn")
	w := startKarpenter(t, "--longhorn", "--temporal")
	p := &pool{name: "lh", consolidate: true, alone: true, nodes: 3}
	w.create(p)
	w.Await("the nodes are there", func() bool { return len(w.nodesOf(p)) == int(p.nodes) })
	nodes := w.nodesOf(p)
	w.SetLonghorn("Node", "node-a", `{"spec":{"allowScheduling":false}}`)
	w.Await("an instance manager runs on each node", func() bool { return len(w.Managers()) == 1+len(nodes) })
	ends := w.followManagers()

	w.MoveIn("--longhorn")
	w.SetLonghorn("Setting", "kubernetes-cluster-autoscaler-enabled", `{"value":"true"}`)
	w.Lab("volume", "create", "data", "--replicas", "3", "--size", "8Mi")
	bytes := w.use(nodes[0])
	var held string
	w.Await("Karpenter is held back from one of the three", func() bool {
		all := w.heldBack(nodes)
		if len(all) == 1 {
			held = all[0]
		}
		return len(all) == 1
	})

	// Karpenter chooses the two others in the same moment; lockkeeper lets one after the other go.
	began := time.Now()
	w.leave(p, p.big())
	var gone []string
	w.Await("two go", func() bool {
		gone = nil
		for _, n := range nodes {
			if w.Journal.Has(n, scaling.Gone) {
				gone = append(gone, n)
			}
		}
		return len(gone) == 2
	})
	first, second := gone[0], gone[1]
	if w.Journal.When(second, scaling.Gone).Before(w.Journal.When(first, scaling.Gone)) {
		first, second = second, first
	}
	for _, n := range []string{first, second} {
		w.Logf("tainted after %s, its instance manager told to end after %s, gone after %s",
			w.Journal.When(n, scaling.Tainted).Sub(began), ends.of(n).Sub(began), w.Journal.When(n, scaling.Gone).Sub(began))
	}
	require.NotContains(t, gone, held)
	require.True(t, w.Journal.When(second, scaling.Tainted).Before(w.Journal.When(first, scaling.Gone)), "both at once")
	require.True(t, ends.of(second).After(w.Journal.When(first, scaling.Gone)), "one after the other")
	require.Equal(t, []string{held}, w.heldBack(nodes))
	require.False(t, w.Journal.Has(held, scaling.Tainted))
	w.SetLonghorn("Volume", "data", `{"spec":{"numberOfReplicas":1}}`) // or nobody would call it healthy again
	require.True(t, bytes == w.read(held), "the volume has other bytes than before")

	w.expires(held)
	require.True(t, bytes == w.read("node-a"), "the volume has other bytes where it was moved")
}

// expires has Karpenter remove the node with the last replica of a volume as it removes one that is too old: its
// NodeClaim is deleted, and nobody is asked. The node stays for its replica, until Longhorn is told to move it.
func (w world) expires(node string) {
	w.Helper()
	var claims unstructured.UnstructuredList
	claims.SetAPIVersion("karpenter.sh/v1")
	claims.SetKind("NodeClaimList")
	require.NoError(w, w.List(w.Context(), &claims))
	for i := range claims.Items {
		if name, _, _ := unstructured.NestedString(claims.Items[i].Object, "status", "nodeName"); name == node {
			require.NoError(w, w.Delete(w.Context(), &claims.Items[i]))
		}
	}
	began := time.Now()
	w.Await("it is to go", func() bool {
		return w.Journal.Has(node, scaling.Tainted) && w.Journal.Has(node, scaling.Deleted)
	})
	time.Sleep(12 * time.Second) // in which Karpenter asks for an eviction at least twice
	require.False(w, w.Journal.Has(node, scaling.Gone))
	require.Contains(w, w.Managers(), node)

	w.SetLonghorn("Node", "node-a", `{"spec":{"allowScheduling":true}}`)
	w.InLab("kubectl -n " + scaling.Longhorn + " apply -f ../../deploy/storage-namespace-longhorn-evict.yaml")
	w.InLab("kubectl -n " + scaling.Longhorn + " patch maintenancepolicy longhorn --type=merge " +
		`-p '{"spec":{"longhorn":{"evictOnRemoval":true}}}'`)
	w.Await("it goes, too", func() bool { return w.Journal.Has(node, scaling.Gone) })
	w.Logf("gone %s after its NodeClaim was deleted", w.Journal.When(node, scaling.Gone).Sub(began))
}

// nodesOf are the ready nodes of a NodePool.
func (w world) nodesOf(p *pool) (names []string) {
	w.Helper()
	list, err := w.Typed.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{LabelSelector: poolLabel + "=" + p.name})
	require.NoError(w, err)
	for i := range list.Items {
		if kube.NodeReady(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// heldBack are those of the nodes from which lockkeeper holds Karpenter back.
func (w world) heldBack(nodes []string) (names []string) {
	w.Helper()
	for _, name := range nodes {
		n, err := w.Typed.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
		if client.IgnoreNotFound(err) == nil && n.Annotations[doNotDisrupt] == "true" && n.Annotations[kube.HeldBack] != "" {
			names = append(names, name)
		}
	}
	return names
}

// managerEnds are when instance managers were told to end, by their nodes.
type managerEnds struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (e *managerEnds) of(node string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at[node]
}

// followManagers notes when instance managers are told to end.
func (w world) followManagers() *managerEnds {
	w.Helper()
	e := &managerEnds{at: map[string]time.Time{}}
	factory := informers.NewSharedInformerFactoryWithOptions(w.Typed, 0, informers.WithNamespace(scaling.Longhorn),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = scaling.InstanceManagers }))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if p := o.(*corev1.Pod); p.DeletionTimestamp != nil && e.at[p.Spec.NodeName].IsZero() {
				e.at[p.Spec.NodeName] = time.Now()
			}
		},
	})
	require.NoError(w, err)
	factory.Start(w.Context().Done())
	factory.WaitForCacheSync(w.Context().Done())
	return e
}

// use writes to the volume, attached to a node, and returns all of its bytes.
func (w world) use(node string) string {
	w.Helper()
	w.Lab("volume", "attach", "data", node)
	w.Lab("load", "start", "--volume", "data")
	time.Sleep(time.Second)
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")
	bytes := w.Lab("volume", "read", "data")
	require.NotEmpty(w, strings.Trim(bytes, "\x00"), "nothing was written")
	w.Lab("volume", "detach", "data")
	return bytes
}

// read returns all bytes of the volume, attached to a node.
func (w world) read(node string) string {
	w.Helper()
	w.Lab("volume", "attach", "data", node)
	bytes := w.Lab("volume", "read", "data")
	w.Lab("volume", "detach", "data")
	return bytes
}
