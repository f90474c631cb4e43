package longhorn

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is the API server by controller-runtime: policies, Longhorn's objects, the admission policy, events; and
// the caches of who only wants to hear of changes.

type objects struct {
	client.Client
	*World
	user owner
}

// Objects is a client that reads the API server directly.
func (w *World) Objects() longhorncluster.API { return objects{World: w, user: byUs} }

func (o objects) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return o.request(ctx, "read "+key.Name, false, func() error { return o.get(key, into) })
}

func (w *World) get(key client.ObjectKey, into client.Object) error {
	switch into := into.(type) {
	case *v1alpha1.MaintenancePolicy:
		if w.policy == nil || key != policyKey() {
			return kubeapi.NotFound("maintenancepolicies", key.Name)
		}
		w.policy.DeepCopyInto(into)
	case *corev1.Node:
		if w.nodes[key.Name] == nil {
			return kubeapi.NotFound("nodes", key.Name)
		}
		w.nodes[key.Name].DeepCopyInto(into)
	case *metav1.PartialObjectMetadata:
		if !w.oneWriter {
			return kubeapi.NotFound(into.Kind, key.Name)
		}
	default:
		return fmt.Errorf("the simulated API server does not know %T", into)
	}
	return nil
}

func policyKey() client.ObjectKey { return client.ObjectKey{Namespace: Key.Namespace, Name: Key.Name} }

func (o objects) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return o.request(ctx, fmt.Sprintf("list %T", into), false, func() error { return o.list(into, opts) })
}

func (w *World) list(into client.ObjectList, opts []client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch l := into.(type) {
	case *v1alpha1.MaintenancePolicyList:
		l.Items = nil
		if w.policy != nil {
			l.Items = append(l.Items, *w.policy.DeepCopy())
		}
	case *corev1.NodeList:
		l.Items = nil
		for _, name := range sorted(w.nodes) {
			l.Items = append(l.Items, *w.nodes[name].DeepCopy())
		}
	case *corev1.PodList:
		l.Items = nil
		for _, key := range sorted(w.pods) {
			p := w.pods[key]
			if (o.Namespace == "" || o.Namespace == p.Namespace) &&
				(o.LabelSelector == nil || o.LabelSelector.Matches(labelSet(p.Labels))) {
				l.Items = append(l.Items, *p.DeepCopy())
			}
		}
	case *policyv1.PodDisruptionBudgetList:
		l.Items = nil
		for _, name := range sorted(w.budgets) {
			l.Items = append(l.Items, *w.budgets[name].DeepCopy())
		}
	case *appsv1.DeploymentList, *appsv1.StatefulSetList:
	case *unstructured.UnstructuredList:
		return w.listLonghorn(l)
	default:
		return fmt.Errorf("the simulated API server does not list %T", into)
	}
	return nil
}

// listLonghorn lists objects of Longhorn's own kinds.
func (w *World) listLonghorn(l *unstructured.UnstructuredList) error {
	l.Items = nil
	add := func(kind, name string, content map[string]any) {
		o := unstructured.Unstructured{Object: content}
		o.SetAPIVersion("longhorn.io/v1beta2")
		o.SetKind(kind)
		o.SetNamespace(Key.Namespace)
		o.SetName(name)
		l.Items = append(l.Items, o)
	}
	switch l.GetKind() {
	case "SettingList":
		for _, name := range sorted(w.settings) {
			add("Setting", name, map[string]any{"value": w.settings[name]})
		}
	case "VolumeList":
		for _, name := range sorted(w.volumes) {
			add("Volume", name, map[string]any{"status": map[string]any{"state": w.volumes[name].state}})
		}
	case "ReplicaList":
		for _, name := range sorted(w.replicas) {
			r := w.replicas[name]
			at := map[bool]string{true: "2026-01-01T00:00:00Z"}
			add("Replica", name, map[string]any{
				"spec": map[string]any{
					"nodeID": r.node, "volumeName": r.volume, "healthyAt": at[r.healthy], "failedAt": at[r.failed],
					"desireState": map[bool]string{true: running, false: stopped}[r.wanted], "evictionRequested": r.evicted,
				},
				"status": map[string]any{"currentState": r.process, "instanceManagerName": managerName(r.node)},
			})
		}
	case "InstanceManagerList":
		for _, node := range w.managerNodes() {
			engines := map[string]any{}
			for _, e := range w.engines(node) {
				engines[e] = map[string]any{}
			}
			add("InstanceManager", managerName(node), map[string]any{
				"spec": map[string]any{"nodeID": node, "type": "aio"},
				"status": map[string]any{
					"currentState": w.managers[managerName(node)].state, "instanceEngines": engines,
				},
			})
		}
	case "NodeList":
		for name := range w.nodes {
			w.own(name)
		}
		for _, name := range sorted(w.ownNodes) {
			content := w.ownObject(name)
			add("Node", name, content)
		}
	default:
		return fmt.Errorf("the simulated API server does not list %s", l.GetKind())
	}
	return nil
}

// Create knows events.
func (o objects) Create(ctx context.Context, object client.Object, _ ...client.CreateOption) error {
	return o.request(ctx, "create event", true, func() error {
		e, ok := object.(*corev1.Event)
		if !ok {
			return fmt.Errorf("the simulated API server does not create %T", object)
		}
		if e.InvolvedObject.Kind != "Node" { // the policy has the same
			o.tell("event %s: %s", e.Reason, e.Message)
		}
		return nil
	})
}

func (o objects) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	if own, is := object.(*unstructured.Unstructured); is && own.GetKind() == "Node" {
		return o.request(ctx, "update node of Longhorn's", true, func() error { return o.patchOwn(own, patch) })
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	return o.request(ctx, "update policy", true, func() error {
		if o.policy == nil {
			return kubeapi.NotFound("maintenancepolicies", object.GetName())
		}
		next := &v1alpha1.MaintenancePolicy{}
		if err := kubeapi.Patched(o.policy, next, patch.Type(), data); err != nil {
			return err
		}
		if next.ResourceVersion != o.policy.ResourceVersion {
			return kubeapi.Conflict("maintenancepolicies", object.GetName())
		}
		o.putPolicy(next)
		return nil
	})
}

// putPolicy is any change of the policy but that of its status.
func (w *World) putPolicy(next *v1alpha1.MaintenancePolicy) {
	if !equality.Semantic.DeepEqual(next.Spec, w.policy.Spec) {
		next.Generation++
	}
	w.policy = next
	w.stamp(next)
	w.stir("Policy")
	if next.DeletionTimestamp != nil && len(next.Finalizers) == 0 {
		w.tell("the policy is gone")
		w.policy = nil
		for _, name := range sorted(w.budgets) { // those that it owns
			if isOurs(w.budgets[name]) {
				w.dropBudget(name, "the garbage collector")
			}
		}
	}
}

func (o objects) Status() client.SubResourceWriter { return statusAPI{objects: o} }

type statusAPI struct {
	client.SubResourceWriter
	objects objects
}

// Update writes a status through JSON, as it would go over the wire: times lose what is below a second.
func (s statusAPI) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	p, ok := o.(*v1alpha1.MaintenancePolicy)
	if !ok {
		return fmt.Errorf("the simulated API server knows no status of %T", o)
	}
	text, err := json.Marshal(p.Status)
	if err != nil {
		return err
	}
	return s.write(ctx, "report status", o, p.ResourceVersion, func(into *v1alpha1.MaintenancePolicy) error {
		into.Status = v1alpha1.MaintenancePolicyStatus{}
		return json.Unmarshal(text, &into.Status)
	})
}

// Patch writes a part of a status.
func (s statusAPI) Patch(
	ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return s.write(ctx, "patch status", o, "", func(into *v1alpha1.MaintenancePolicy) error {
		next := &v1alpha1.MaintenancePolicy{}
		if err := kubeapi.Patched(into, next, patch.Type(), data); err != nil {
			return invalid("MaintenancePolicy", o.GetName()) // a test that failed
		}
		if next.ResourceVersion != into.ResourceVersion {
			return kubeapi.Conflict("maintenancepolicies", o.GetName())
		}
		into.Status = next.Status
		return nil
	})
}

func (s statusAPI) write(
	ctx context.Context, op string, o client.Object, version string, change func(*v1alpha1.MaintenancePolicy) error,
) error {
	w := s.objects.World
	return s.objects.request(ctx, op, true, func() error {
		switch {
		case w.policy == nil:
			return kubeapi.NotFound("maintenancepolicies", o.GetName())
		case version != "" && version != w.policy.ResourceVersion:
			return kubeapi.Conflict("maintenancepolicies", o.GetName())
		}
		next := w.policy.DeepCopy()
		if err := change(next); err != nil {
			return err
		}
		w.policy = next
		w.stamp(next)
		w.stir("Policy")
		return nil
	})
}

// Cache is what a watcher knows: it takes no time, and never fails.
func (w *World) Cache() client.Reader { return cached{World: w} }

// NewCache makes a cache that tells of changes.
func (w *World) NewCache(string) (cache.Cache, error) { return cached{World: w}, nil }

type cached struct {
	cache.Cache
	*World
}

func (c cached) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return c.act(func() error { return c.get(key, into) })
}

func (c cached) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return c.act(func() error { return c.list(into, opts) })
}

// Start implements cache.Cache.
func (c cached) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// GetInformer implements cache.Cache.
func (c cached) GetInformer(
	_ context.Context, o client.Object, _ ...cache.InformerGetOption,
) (cache.Informer, error) {
	i := &informer{kind: o.GetObjectKind().GroupVersionKind().Kind, nodes: map[string]*corev1.Node{}}
	switch o.(type) {
	case *corev1.Node:
		i.kind = "Node"
	case *corev1.Pod:
		i.kind = "Pod"
	}
	c.happens(func() { c.informers = append(c.informers, i) })
	return i, nil
}

// informer tells of changes of one kind of objects.
type informer struct {
	cache.Informer
	kind    string
	handler toolscache.ResourceEventHandler
	nodes   map[string]*corev1.Node // as they were told of
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	i.handler = h
	return nil, nil //nolint:nilnil // nobody asks for it
}

// changed tells of what has changed. Of nodes it says what they were: most of their updates matter to nobody.
func (i *informer) changed(w *World) {
	if i.handler == nil {
		return
	}
	if i.kind != "Node" {
		i.handler.OnUpdate(nil, nil)
		return
	}
	for _, name := range sorted(w.nodes) {
		now, was := w.nodes[name].DeepCopy(), i.nodes[name]
		switch {
		case was == nil:
			i.handler.OnAdd(now, false)
		case was.ResourceVersion != now.ResourceVersion:
			i.handler.OnUpdate(was, now)
		}
		i.nodes[name] = now
	}
	for _, name := range sorted(i.nodes) {
		if w.nodes[name] == nil {
			i.handler.OnDelete(i.nodes[name])
			delete(i.nodes, name)
		}
	}
}

// heldBack is for which policy autoscalers are held back from a node; "": for none.
func heldBack(n *corev1.Node) string { return n.Annotations[kube.HeldBack] }
