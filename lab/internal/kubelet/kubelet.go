package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// Config is what the kubelets need to know.
type Config struct {
	Client kubernetes.Interface
	// Dir is where nodes keep their pods.
	Dir string
	// Disk is where the files are that a node has of its own.
	Disk func(node string) string
	// Furnish puts onto a node's disk what its pods expect there, before any of them starts; nil: nothing. It is called
	// for every pod.
	Furnish func(disk string) error
	// Images are the images that the lab knows beside those of Ceph, by name.
	Images map[string]Image
	// Lab is the lab's folder, below which host paths are taken as they are.
	Lab string
	// Port is where Serve listens, on 127.0.0.1.
	Port int
	// Env is what every container finds in its environment.
	Env map[string]string
	// CPUs is how many each node says it has.
	CPUs int
	// Network numbers the range of pod addresses, 0 to 63: labs that run at the same time should differ.
	Network int
	// Zones have volumes that a person would have made: those of class static-disk.
	Zones []string
}

// Kubelet runs the nodes of a lab.
type Kubelet struct {
	Config
	addresses *addresses
	events    record.EventRecorder
	pods      cache.SharedIndexInformer
	broken    brokenClasses

	mu    sync.Mutex
	nodes map[string]*node
}

// Start begins to watch the API server; AddNode gives it something to do.
func Start(ctx context.Context, cfg Config) (*Kubelet, error) {
	k := &Kubelet{Config: cfg, addresses: newAddresses(cfg.Network), nodes: map[string]*node{}}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: cfg.Client.CoreV1().Events("")})
	k.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"})

	factory := informers.NewSharedInformerFactory(cfg.Client, 0)
	k.pods = factory.Core().V1().Pods().Informer()
	if err := k.pods.AddIndexers(cache.Indexers{byNode: nodeOf}); err != nil {
		return nil, err
	}
	if _, err := k.pods.AddEventHandler(handler(k.podChanged, k.podDeleted)); err != nil {
		return nil, err
	}
	nodes := handler(nil, k.nodeDeleted)
	nodes.AddFunc = func(o any) { k.adopt(ctx, o.(*corev1.Node)) }
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(nodes); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("cannot list %v", kind)
		}
	}
	return k, k.startProvisioner(ctx)
}

const byNode = "node"

func nodeOf(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil }

// handler calls changed for objects that are new or different, and deleted for those that are gone.
func handler[T any](changed, deleted func(T)) cache.ResourceEventHandlerFuncs {
	if changed == nil {
		changed = func(T) {}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(o.(T)) },
		UpdateFunc: func(_, o any) { changed(o.(T)) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if object, ok := o.(T); ok {
				deleted(object)
			}
		},
	}
}

func (k *Kubelet) podChanged(p *corev1.Pod) {
	if n := k.node(p.Spec.NodeName); n != nil {
		n.sync(p)
	}
}

func (k *Kubelet) podDeleted(p *corev1.Pod) {
	if n := k.node(p.Spec.NodeName); n != nil {
		n.forget(p.UID)
	}
}

func (k *Kubelet) nodeDeleted(o *corev1.Node) {
	n := k.node(o.Name)
	if n == nil || !n.deleted(o.UID) || !n.adopted {
		return
	}
	if err := k.discard(n); err != nil {
		slog.Warn("disk not removed", "node", n.name, "error", err)
	}
}

func (k *Kubelet) node(name string) *node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[name]
}

func (k *Kubelet) allNodes() []*node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.nodes), func(a, b *node) int { return strings.Compare(a.name, b.name) })
}

// bound are the pods that the API server has bound to a node.
func (k *Kubelet) bound(name string) map[types.UID]*corev1.Pod {
	list, _ := k.pods.GetIndexer().ByIndex(byNode, name) // fails without the index only
	pods := map[types.UID]*corev1.Pod{}
	for _, o := range list {
		p := o.(*corev1.Pod)
		pods[p.UID] = p
	}
	return pods
}

// AddNode adds a machine to the cluster, which lives until ctx ends. One that was removed may be added again.
func (k *Kubelet) AddNode(ctx context.Context, name, zone string) error {
	if old := k.switchOn(ctx, newNode(k, name, zone)); old != nil && !old.renew(zone) {
		return fmt.Errorf("node %s exists already", name)
	}
	return nil
}

// switchOn lets a machine work until ctx ends, unless there is one of that name: it returns that one then.
func (k *Kubelet) switchOn(ctx context.Context, n *node) (old *node) {
	k.mu.Lock()
	if old = k.nodes[n.name]; old != nil {
		k.mu.Unlock()
		return old
	}
	k.nodes[n.name] = n
	ctx, n.end = context.WithCancel(ctx)
	k.mu.Unlock()
	go n.heartbeat(ctx)
	n.syncAll()
	return nil
}

// RemoveNode takes a machine away, as the cloud does that it is rented from. Its Node object is left to whoever made it
// a member of the cluster.
func (k *Kubelet) RemoveNode(name string) {
	if n := k.node(name); n != nil {
		n.terminate()
	}
}

// DiscardNode takes a machine away for good, as a cloud does that is told to: its processes, its disk, and its Node
// object, as the cloud's controller does when it finds the machine gone.
func (k *Kubelet) DiscardNode(ctx context.Context, name string) error {
	return k.with(name, func(n *node) error {
		if err := k.discard(n); err != nil {
			return err
		}
		err := k.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// discard ends a machine for good, and removes its disk.
func (k *Kubelet) discard(n *node) error {
	n.terminate()
	n.end()
	k.mu.Lock()
	delete(k.nodes, n.name)
	k.mu.Unlock()
	return os.RemoveAll(n.path())
}

// AwaitReady waits until all nodes may be used, and pods may be created in the default namespace.
func (k *Kubelet) AwaitReady(ctx context.Context) error {
	return poll(ctx, func() bool {
		list, err := k.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) < len(k.allNodes()) {
			return false
		}
		for _, n := range list.Items {
			if n.Spec.Unschedulable || k.node(n.Name) == nil {
				continue // somebody's choice; it was so before a restart
			}
			for _, t := range n.Spec.Taints {
				if strings.HasPrefix(t.Key, "node.kubernetes.io/") {
					return false
				}
			}
		}
		_, err = k.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

// Stop ends all pods, politely. Nothing of it is reported: after a restart of the lab they run again.
func (k *Kubelet) Stop() {
	var wg sync.WaitGroup
	for _, n := range k.allNodes() {
		wg.Go(n.shutDown)
	}
	wg.Wait()
}

func (n *node) path(elem ...string) string {
	return filepath.Join(append([]string{n.kubelet.Dir, n.name}, elem...)...)
}
