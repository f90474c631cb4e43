package clusterapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/kubelet"
)

// This file is the infrastructure provider: it gives each LabMachine a node, and takes the node away when the
// LabMachine is deleted.

// Nodes are the machines that can be had.
type Nodes interface {
	AddNode(ctx context.Context, name, zone string) error
	RemoveNode(name string)
	RebootNode(ctx context.Context, name string, down time.Duration) error
	Nodes() []kubelet.NodeState
}

// finalizer keeps a LabMachine until its node is off.
const finalizer = infrastructure + "/lab"

// provider handles one LabMachine after the other, so that no two get the same node.
type provider struct {
	*ClusterAPI
	life  context.Context
	store cache.Store
	queue workqueue.TypedRateLimitingInterface[string]
}

// provide starts the provider, which works until life ends.
func (c *ClusterAPI) provide(ctx, life context.Context) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.client, 0, Namespace, nil)
	informer, requests := factory.ForResource(labMachines).Informer(), factory.ForResource(remediations).Informer()
	p := &provider{
		ClusterAPI: c, life: life, store: informer.GetStore(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
			50*time.Millisecond, 5*time.Second)),
	}
	enqueue := func(o any) {
		if key, err := cache.MetaNamespaceKeyFunc(o); err == nil {
			p.queue.Add(key)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) },
	}); err != nil {
		return err
	}
	if _, err := requests.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { go p.reboot(o.(*unstructured.Unstructured).GetName()) },
	}); err != nil {
		return err
	}
	factory.Start(life.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced, requests.HasSynced) {
		return ctx.Err()
	}
	go func() {
		<-life.Done()
		p.queue.ShutDown()
	}()
	go p.work()
	return nil
}

func (p *provider) work() {
	for {
		key, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		switch err := p.handle(key); {
		case err == nil || p.life.Err() != nil:
			p.queue.Forget(key)
		case apierrors.IsConflict(err): // Cluster API wrote meanwhile, and what it wrote comes
			p.queue.AddRateLimited(key)
		default:
			slog.Warn("LabMachine", "name", key, "error", err)
			p.queue.AddRateLimited(key)
		}
		p.queue.Done(key)
	}
}

// handle does the next step for a LabMachine. Its node is written down before it is switched on.
func (p *provider) handle(key string) error {
	o, exists, err := p.store.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	m := o.(*unstructured.Unstructured)
	zone, _, _ := unstructured.NestedString(m.Object, "spec", "zone")
	id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
	ready, _, _ := unstructured.NestedBool(m.Object, "status", "initialization", "provisioned")
	switch {
	case m.GetDeletionTimestamp() != nil:
		if id != "" {
			p.Nodes.RemoveNode(nodeOf(id))
		}
		return p.letGo(m)
	case zone == "" || ready: // the control plane runs nowhere
		return nil
	case id == "":
		name := p.choose(zone)
		return p.patch(m, map[string]any{
			"metadata": map[string]any{"finalizers": []string{finalizer}, "resourceVersion": m.GetResourceVersion()},
			"spec":     map[string]any{"providerID": kubelet.ProviderID(zone, name)},
		})
	}
	if name := nodeOf(id); !p.exists(name) {
		if err := p.Nodes.AddNode(p.life, name, zone); err != nil {
			return err
		}
	}
	status := provisioned()
	status["failureDomain"] = zone
	return p.patch(m, map[string]any{"status": status}, "status")
}

// rebootTime is how long a node is away that is rebooted because it is unhealthy.
const rebootTime = 2 * time.Second

// reboot fulfils a remediation request, which has the name of its Machine, as the Machine's LabMachine has. Cluster API
// deletes the request when the node is healthy again.
func (p *provider) reboot(machine string) {
	o, exists, err := p.store.GetByKey(Namespace + "/" + machine)
	if err != nil || !exists {
		slog.Warn("LabRemediation without a LabMachine", "name", machine, "error", err)
		return
	}
	id, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "providerID")
	if err := p.Nodes.RebootNode(p.life, nodeOf(id), rebootTime); err != nil {
		slog.Warn("LabRemediation", "name", machine, "error", err)
	}
}

// choose finds a node for a new LabMachine: one that the lab began with, as long as there are any without a Machine, or
// a new one with a name that none ever had.
func (p *provider) choose(zone string) string {
	taken := map[string]bool{}
	for _, o := range p.store.List() {
		if id, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "providerID"); id != "" {
			taken[nodeOf(id)] = true
		}
	}
	running := map[string]bool{}
	for _, n := range p.Nodes.Nodes() {
		running[n.Name] = n.State == kubelet.StateRunning
		taken[n.Name] = taken[n.Name] || !running[n.Name]
	}
	own := p.Topology.Nodes()
	for _, n := range own[:min(len(own), p.Topology.Machines)] {
		if n.Zone == zone && running[n.Name] && !taken[n.Name] {
			return n.Name
		}
	}
	for i := len(own); ; i++ {
		name := instance.NodeName(i)
		_, known := running[name]
		_, err := os.Stat(p.Instance.Path("nodes", name))
		if !known && !taken[name] && errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
}

func (p *provider) exists(name string) bool {
	for _, n := range p.Nodes.Nodes() {
		if n.Name == name {
			return true
		}
	}
	return false
}

func nodeOf(providerID string) string { return providerID[strings.LastIndex(providerID, "/")+1:] }

// letGo lets a LabMachine go whose node is off.
func (p *provider) letGo(m *unstructured.Unstructured) error {
	var rest []string
	for _, f := range m.GetFinalizers() {
		if f != finalizer {
			rest = append(rest, f)
		}
	}
	err := p.patch(m, map[string]any{
		"metadata": map[string]any{"finalizers": rest, "resourceVersion": m.GetResourceVersion()},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *provider) patch(m *unstructured.Unstructured, change map[string]any, subresource ...string) error {
	b, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = p.client.Resource(labMachines).Namespace(Namespace).Patch(p.life, m.GetName(), types.MergePatchType, b,
		metav1.PatchOptions{FieldManager: fieldOwner}, subresource...)
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	return nil
}
