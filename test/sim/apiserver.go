package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// server is the API server as one user sees it. It is as much of client-go's interface as lockkeeper and kubectl ask
// for; anything else is a nil pointer, at once, so that nobody takes silence for an answer.
type server struct {
	kubernetes.Interface
	*World
	user owner
}

// owner is who did something.
type owner string

const (
	byPerson owner = "a person"
	byHammer owner = "a hammer"
	byUs     owner = "lockkeeper"
	// The watcher has a name of its own: it may close our budgets, and change nothing else.
	byWatcher owner = kube.WatcherOwner
)

// ours tells whether a part of lockkeeper did something.
func (o owner) ours() bool { return o == byUs || o == byWatcher }

// Kubernetes is lockkeeper's own adapter, in front of the simulated API server.
func (w *World) Kubernetes() *kube.Cluster {
	return kube.NewFor(server{World: w, user: byUs}, policyClient{World: w, user: byUs}).WithServers(apiServers{w})
}

// CloseBudgets is the watcher that closes our budgets.
func (w *World) CloseBudgets(ctx context.Context, why string) error {
	w.mu.Lock()
	p := w.policy.DeepCopy()
	w.mu.Unlock()
	if p == nil {
		return nil
	}
	return w.AsWatcher().Close(ctx, p, kube.WatcherOwner, time.Now(), why)
}

// AsWatcher is the API server as the watcher reaches it.
func (w *World) AsWatcher() *kube.Cluster {
	return kube.NewFor(server{World: w, user: byWatcher}, policyClient{World: w, user: byWatcher})
}

// ask is one request. Those of lockkeeper take their time and may fail; what persons do is told of as it happens.
func (s server) ask(ctx context.Context, op string, do func() error) error {
	if s.user.ours() {
		return s.request(ctx, op, do)
	}
	if err := s.end.Err(); err != nil {
		return err
	}
	return s.act(do)
}

func (s server) CoreV1() coreclient.CoreV1Interface       { return coreAPI{server: s} }
func (s server) AppsV1() appsclient.AppsV1Interface       { return appsAPI{server: s} }
func (s server) PolicyV1() policyclient.PolicyV1Interface { return policyAPI{server: s} }
func (s server) Discovery() discovery.DiscoveryInterfaces { return kubeapi.Discovery{} }

type coreAPI struct {
	coreclient.CoreV1Interface
	server server
}

func (c coreAPI) Pods(namespace string) coreclient.PodInterface {
	return podsAPI{server: c.server, namespace: namespace}
}

func (c coreAPI) Namespaces() coreclient.NamespaceInterface {
	return namespacesAPI{server: c.server}
}
func (c coreAPI) Nodes() coreclient.NodeInterface { return nodesAPI{server: c.server} }
func (c coreAPI) ConfigMaps(string) coreclient.ConfigMapInterface {
	return configMapsAPI{server: c.server}
}
func (c coreAPI) Secrets(string) coreclient.SecretInterface { return secretsAPI{server: c.server} }

type podsAPI struct {
	coreclient.PodInterface
	server    server
	namespace string
}

func (a podsAPI) List(ctx context.Context, o metav1.ListOptions) (out *corev1.PodList, err error) {
	out = &corev1.PodList{}
	err = a.server.ask(ctx, "list pods", func() error {
		matches, err := a.server.selectors.Parse(o)
		if err != nil || a.namespace != "" && a.namespace != a.server.key.Namespace {
			return err
		}
		for _, p := range a.server.pods {
			if matches(p.labels(), fields.Set{"spec.nodeName": p.boundTo(), metav1.ObjectNameField: p.name}) {
				out.Items = append(out.Items, p.object())
			}
		}
		for _, name := range slices.Sorted(maps.Keys(a.server.versions.asking)) {
			p := a.server.asks(name)
			if matches(p.Labels, fields.Set{"spec.nodeName": p.Spec.NodeName, metav1.ObjectNameField: name}) {
				out.Items = append(out.Items, *p)
			}
		}
		return nil
	})
	return out, err
}

func (a podsAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *corev1.Pod, err error) {
	err = a.server.ask(ctx, "read pod", func() error {
		if out = a.server.asks(name); out != nil {
			return nil
		}
		for _, p := range a.server.pods {
			if p.name == name {
				x := p.object()
				out = &x
				return nil
			}
		}
		return kubeapi.NotFound("pods", name)
	})
	return out, err
}

type configMapsAPI struct {
	coreclient.ConfigMapInterface
	server server
}

func (a configMapsAPI) Get(ctx context.Context, _ string, _ metav1.GetOptions) (out *corev1.ConfigMap, err error) {
	err = a.server.ask(ctx, "read ConfigMap", func() error { return nil })
	return &corev1.ConfigMap{Data: map[string]string{"data": "a=10.0.0.1:6789"}}, err
}

type secretsAPI struct {
	coreclient.SecretInterface
	server server
}

func (a secretsAPI) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.Secret, error) {
	err := a.server.ask(ctx, "read Secret", func() error { return nil })
	return &corev1.Secret{Data: map[string][]byte{
		"ceph-username": []byte("client.lockkeeper"),
		"ceph-secret":   []byte("c2VjcmV0"),
	}}, err
}

type appsAPI struct {
	appsclient.AppsV1Interface
	server server
}

func (a appsAPI) Deployments(string) appsclient.DeploymentInterface {
	return deploymentsAPI{server: a.server}
}

func (a appsAPI) StatefulSets(string) appsclient.StatefulSetInterface {
	return statefulSetsAPI{server: a.server}
}

type deploymentsAPI struct {
	appsclient.DeploymentInterface
	server server
}

func (a deploymentsAPI) List(ctx context.Context, o metav1.ListOptions) (*appsv1.DeploymentList, error) {
	out := &appsv1.DeploymentList{}
	err := a.server.ask(ctx, "list Deployments", func() error {
		matches, err := a.server.selectors.Parse(o)
		if err != nil {
			return err
		}
		for _, d := range a.server.workloads {
			if !d.bare && matches(d.labels, nil) {
				out.Items = append(out.Items, a.server.deployment(d))
			}
		}
		return nil
	})
	return out, err
}

type statefulSetsAPI struct {
	appsclient.StatefulSetInterface
	server server
}

func (a statefulSetsAPI) List(ctx context.Context, _ metav1.ListOptions) (*appsv1.StatefulSetList, error) {
	return &appsv1.StatefulSetList{}, a.server.ask(ctx, "list StatefulSets", func() error { return nil })
}

type policyAPI struct {
	policyclient.PolicyV1Interface
	server server
}

func (a policyAPI) Evictions(string) policyclient.EvictionInterface {
	return evictionsAPI{server: a.server}
}

func (a policyAPI) PodDisruptionBudgets(string) policyclient.PodDisruptionBudgetInterface {
	return budgetsAPI{server: a.server}
}

type evictionsAPI struct {
	policyclient.EvictionInterface
	server server
}

func (a evictionsAPI) Evict(ctx context.Context, e *policyv1.Eviction) error {
	return a.server.ask(ctx, "evict", func() error {
		i := slices.IndexFunc(a.server.pods, func(p *pod) bool { return p.name == e.Name })
		if i < 0 {
			return kubeapi.NotFound("pods", e.Name)
		}
		dry := e.DeleteOptions != nil && len(e.DeleteOptions.DryRun) > 0
		return a.server.evict(a.server.pods[i], a.server.user, dry)
	})
}

type budgetsAPI struct {
	policyclient.PodDisruptionBudgetInterface
	server server
}

func (a budgetsAPI) List(ctx context.Context, o metav1.ListOptions) (*policyv1.PodDisruptionBudgetList, error) {
	out := &policyv1.PodDisruptionBudgetList{}
	err := a.server.ask(ctx, "list budgets", func() error {
		matches, err := a.server.selectors.Parse(o)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(a.server.budgets)) {
			if b := a.server.budgets[name]; matches(b.Labels, nil) {
				out.Items = append(out.Items, *b.DeepCopy())
			}
		}
		return nil
	})
	return out, err
}

func (a budgetsAPI) Get(
	ctx context.Context, name string, _ metav1.GetOptions,
) (out *policyv1.PodDisruptionBudget, err error) {
	err = a.server.ask(ctx, "read budget", func() error {
		b := a.server.budgets[name]
		if b == nil {
			return kubeapi.NotFound("poddisruptionbudgets", name)
		}
		out = b.DeepCopy()
		return nil
	})
	return out, err
}

func (a budgetsAPI) Create(
	ctx context.Context, b *policyv1.PodDisruptionBudget, _ metav1.CreateOptions,
) (out *policyv1.PodDisruptionBudget, err error) {
	err = a.server.ask(ctx, "create budget", func() error {
		if a.server.budgets[b.Name] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "poddisruptionbudgets"}, b.Name)
		}
		b = b.DeepCopy()
		b.UID = types.UID(fmt.Sprintf("%s-%d", b.Name, time.Since(a.server.started)))
		out, err = a.server.putBudget(b, a.server.user)
		return err
	})
	return out, err
}

func (a budgetsAPI) Update(
	ctx context.Context, b *policyv1.PodDisruptionBudget, _ metav1.UpdateOptions,
) (out *policyv1.PodDisruptionBudget, err error) {
	err = a.server.ask(ctx, "update budget", func() error {
		had := a.server.budgets[b.Name]
		if had == nil {
			return kubeapi.NotFound("poddisruptionbudgets", b.Name)
		}
		if b.ResourceVersion != "" && b.ResourceVersion != had.ResourceVersion {
			return kubeapi.Conflict("poddisruptionbudgets", b.Name)
		}
		out, err = a.server.putBudget(b.DeepCopy(), a.server.user)
		return err
	})
	return out, err
}

func (a budgetsAPI) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (out *policyv1.PodDisruptionBudget, err error) {
	err = a.server.ask(ctx, "update budget", func() error {
		had := a.server.budgets[name]
		if had == nil {
			return kubeapi.NotFound("poddisruptionbudgets", name)
		}
		next := &policyv1.PodDisruptionBudget{}
		if err := kubeapi.Patched(had, next, kind, data); err != nil {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "PodDisruptionBudget"}, name, nil)
		}
		out, err = a.server.putBudget(next, a.server.user)
		return err
	})
	return out, err
}

func (a budgetsAPI) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	return a.server.ask(ctx, "delete budget", func() error {
		if a.server.budgets[name] == nil {
			return kubeapi.NotFound("poddisruptionbudgets", name)
		}
		a.server.dropBudget(name, a.server.user)
		return nil
	})
}

type namespacesAPI struct {
	coreclient.NamespaceInterface
	server server
}

func (n namespacesAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	out := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := n.server.ask(ctx, "read namespace", func() error {
		if !n.server.ending.IsZero() {
			out.DeletionTimestamp = &metav1.Time{Time: n.server.ending}
		}
		return nil
	})
	return out, err
}
