package longhorn

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is the API server by client-go, as much of it as lockkeeper and kubectl ask for. Anything else is a nil
// pointer, at once, so that nobody takes silence for an answer.

type server struct {
	kubernetes.Interface
	*World
	user owner
}

// Kubernetes is lockkeeper's own adapter, in front of the simulated API server.
func (w *World) Kubernetes() *kube.Cluster {
	return kube.NewFor(server{World: w, user: byUs}, objects{World: w, user: byUs})
}

// AsWatcher is the same as the watcher reaches it.
func (w *World) AsWatcher() *kube.Cluster {
	return kube.NewFor(server{World: w, user: byWatcher}, objects{World: w, user: byWatcher})
}

func (s server) ask(ctx context.Context, op string, change bool, do func() error) error {
	return s.request(ctx, op, change, do)
}

func (s server) CoreV1() coreclient.CoreV1Interface       { return coreAPI{server: s} }
func (s server) PolicyV1() policyclient.PolicyV1Interface { return policyAPI{server: s} }
func (s server) Discovery() discovery.DiscoveryInterfaces { return kubeapi.Discovery{} }

func invalid(kind, name string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: kind}, name, nil)
}

type coreAPI struct {
	coreclient.CoreV1Interface
	server server
}

func (c coreAPI) Pods(namespace string) coreclient.PodInterface {
	return podsAPI{server: c.server, namespace: namespace}
}
func (c coreAPI) Nodes() coreclient.NodeInterface           { return nodesAPI{server: c.server} }
func (c coreAPI) Namespaces() coreclient.NamespaceInterface { return namespacesAPI{server: c.server} }

type namespacesAPI struct {
	coreclient.NamespaceInterface
	server server
}

func (a namespacesAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}},
		a.server.ask(ctx, "read namespace", false, func() error { return nil })
}

type podsAPI struct {
	coreclient.PodInterface
	server    server
	namespace string
}

func podFields(p *corev1.Pod) fields.Set {
	return fields.Set{metav1.ObjectNameField: p.Name, "spec.nodeName": p.Spec.NodeName}
}

// podsLike are the pods of a namespace that match, by name; "": of all.
func (w *World) podsLike(namespace string, matches func(map[string]string, fields.Set) bool) (out []*corev1.Pod) {
	for _, key := range sorted(w.pods) {
		if p := w.pods[key]; (namespace == "" || p.Namespace == namespace) && matches(p.Labels, podFields(p)) {
			out = append(out, p)
		}
	}
	return out
}

func (a podsAPI) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	out := &corev1.PodList{}
	return out, a.server.ask(ctx, "list pods", false, func() error {
		matches, err := a.server.selectors.Parse(o)
		if err != nil {
			return err
		}
		for _, p := range a.server.podsLike(a.namespace, matches) {
			out.Items = append(out.Items, *p.DeepCopy())
		}
		return nil
	})
}

// Patch is how marks are set and taken away.
func (a podsAPI) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (out *corev1.Pod, err error) {
	err = a.server.ask(ctx, "mark pod", true, func() error {
		had := a.server.pods[podKey(a.namespace, name)]
		if had == nil {
			return kubeapi.NotFound("pods", name)
		}
		next := &corev1.Pod{}
		if err := kubeapi.Patched(had, next, kind, data); err != nil {
			return invalid("Pod", name)
		}
		if next.UID != had.UID {
			return kubeapi.Conflict("pods", name)
		}
		if maps.Equal(had.Labels, next.Labels) {
			out = had.DeepCopy()
			return nil
		}
		w := a.server.World
		w.tell("%s marks %s: %q", a.server.user, name, next.Labels[storageview.MarkLabel])
		had.Labels = next.Labels
		w.wrotePod(had)
		out = had.DeepCopy()
		return nil
	})
	return out, err
}

// Watch tells of pods that go, from now on.
func (a podsAPI) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	last := map[types.UID]*corev1.Pod{}
	var matches func(map[string]string, fields.Set) bool
	look := func() map[types.UID]*corev1.Pod {
		now := map[types.UID]*corev1.Pod{}
		for _, p := range a.server.podsLike(a.namespace, matches) {
			now[p.UID] = p
		}
		return now
	}
	err := a.server.ask(ctx, "watch pods", false, func() (err error) {
		if matches, err = a.server.selectors.Parse(o); err == nil {
			last = look()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return kubeapi.Watch(ctx, func(ctx context.Context) (gone []watch.Event) {
		a.server.await(ctx, func() bool {
			now := look()
			for uid, p := range last {
				if now[uid] == nil {
					gone = append(gone, watch.Event{Type: watch.Deleted, Object: p.DeepCopy()})
				}
			}
			last = now
			return len(gone) > 0
		})
		return gone
	}), nil
}

type nodesAPI struct {
	coreclient.NodeInterface
	server server
}

func (a nodesAPI) List(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	out := &corev1.NodeList{}
	return out, a.server.ask(ctx, "list nodes", false, func() error {
		matches, err := a.server.selectors.Parse(o)
		if err != nil {
			return err
		}
		for _, name := range sorted(a.server.nodes) {
			if n := a.server.nodes[name]; matches(n.Labels, fields.Set{metav1.ObjectNameField: name}) {
				out.Items = append(out.Items, *n.DeepCopy())
			}
		}
		return nil
	})
}

func (a nodesAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *corev1.Node, err error) {
	err = a.server.ask(ctx, "read node", false, func() error {
		n := a.server.nodes[name]
		if n == nil {
			return kubeapi.NotFound("nodes", name)
		}
		out = n.DeepCopy()
		return nil
	})
	return out, err
}

// Patch is how nodes are cordoned, and autoscalers held back.
func (a nodesAPI) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (out *corev1.Node, err error) {
	err = a.server.ask(ctx, "patch node", true, func() error {
		had := a.server.nodes[name]
		if had == nil {
			return kubeapi.NotFound("nodes", name)
		}
		next := &corev1.Node{}
		if err := kubeapi.Patched(had, next, kind, data); err != nil {
			return invalid("Node", name)
		}
		w := a.server.World
		if had.Spec.Unschedulable != next.Spec.Unschedulable {
			w.cordon(name, next.Spec.Unschedulable, a.server.user)
		}
		if !maps.Equal(had.Annotations, next.Annotations) {
			had.Annotations = next.Annotations
			w.wroteNode(had)
		}
		out = had.DeepCopy()
		return nil
	})
	return out, err
}

// Watch tells of one node, from now on.
func (a nodesAPI) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	f, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return nil, err
	}
	name, _ := f.RequiresExactMatch(metav1.ObjectNameField)
	version := func() string {
		if n := a.server.nodes[name]; n != nil {
			return n.ResourceVersion
		}
		return ""
	}
	var last string
	if err := a.server.ask(ctx, "watch node", false, func() error { last = version(); return nil }); err != nil {
		return nil, err
	}
	return kubeapi.Watch(ctx, func(ctx context.Context) []watch.Event {
		var e watch.Event
		changed := a.server.await(ctx, func() bool {
			was := last
			if last = version(); last == "" {
				e = watch.Event{Type: watch.Deleted, Object: &corev1.Node{}}
			} else {
				e = watch.Event{Type: watch.Modified, Object: a.server.nodes[name].DeepCopy()}
			}
			return was != last
		})
		if !changed {
			return nil
		}
		return []watch.Event{e}
	}), nil
}

type policyAPI struct {
	policyclient.PolicyV1Interface
	server server
}

func (a policyAPI) Evictions(string) policyclient.EvictionInterface {
	return evictionsAPI{server: a.server}
}

func (a policyAPI) PodDisruptionBudgets(namespace string) policyclient.PodDisruptionBudgetInterface {
	return budgetsAPI{server: a.server, namespace: namespace}
}

type evictionsAPI struct {
	policyclient.EvictionInterface
	server server
}

func (a evictionsAPI) Evict(ctx context.Context, e *policyv1.Eviction) error {
	return a.server.ask(ctx, "evict", true, func() error {
		p := a.server.pods[podKey(e.Namespace, e.Name)]
		if p == nil {
			return kubeapi.NotFound("pods", e.Name)
		}
		return a.server.evict(p, a.server.user)
	})
}

type budgetsAPI struct {
	policyclient.PodDisruptionBudgetInterface
	server    server
	namespace string
}

func (a budgetsAPI) List(ctx context.Context, o metav1.ListOptions) (*policyv1.PodDisruptionBudgetList, error) {
	out := &policyv1.PodDisruptionBudgetList{}
	return out, a.server.ask(ctx, "list budgets", false, func() error {
		matches, err := a.server.selectors.Parse(o)
		if err != nil || a.namespace != Key.Namespace {
			return err
		}
		for _, name := range sorted(a.server.budgets) {
			if b := a.server.budgets[name]; matches(b.Labels, nil) {
				out.Items = append(out.Items, *b.DeepCopy())
			}
		}
		return nil
	})
}

func (a budgetsAPI) Create(
	ctx context.Context, b *policyv1.PodDisruptionBudget, _ metav1.CreateOptions,
) (out *policyv1.PodDisruptionBudget, err error) {
	err = a.server.ask(ctx, "create budget", true, func() error {
		if a.server.budgets[b.Name] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "poddisruptionbudgets"}, b.Name)
		}
		out, err = a.server.putBudget(b.DeepCopy(), a.server.user)
		return err
	})
	return out, err
}

func (a budgetsAPI) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (out *policyv1.PodDisruptionBudget, err error) {
	err = a.server.ask(ctx, "update budget", true, func() error {
		had := a.server.budgets[name]
		if had == nil {
			return kubeapi.NotFound("poddisruptionbudgets", name)
		}
		next := &policyv1.PodDisruptionBudget{}
		if err := kubeapi.Patched(had, next, kind, data); err != nil {
			return invalid("PodDisruptionBudget", name)
		}
		out, err = a.server.putBudget(next, a.server.user)
		return err
	})
	return out, err
}

func (a budgetsAPI) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return a.server.ask(ctx, "delete budget", true, func() error {
		b := a.server.budgets[name]
		if b == nil {
			return kubeapi.NotFound("poddisruptionbudgets", name)
		}
		if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != b.UID {
			return kubeapi.Conflict("poddisruptionbudgets", name)
		}
		a.server.dropBudget(name, a.server.user)
		return nil
	})
}

// wroteNode gives a node that has changed another version.
func (w *World) wroteNode(n *corev1.Node) {
	w.stamp(n)
	w.stir("Node")
}

// cordon cordons a node or uncordons it.
func (w *World) cordon(name string, on bool, who owner) {
	n := w.nodes[name]
	if n == nil || n.Spec.Unschedulable == on {
		return
	}
	w.tell("%s %s %s", who, map[bool]string{true: "cordons", false: "uncordons"}[on], name)
	n.Spec.Unschedulable = on
	n.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl-cordon", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`),
	}}
	if who == byUs {
		n.ManagedFields = slices.Clone(kube.CordonFields)
	}
	w.noteStays(name)
	w.wroteNode(n)
}
