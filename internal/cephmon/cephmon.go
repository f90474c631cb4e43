// Package cephmon is what lockkeeper does with mons in Kubernetes and Ceph: it looks at them, and carries out one act
// of a step at a time. What comes next package monplan decides. Every act looks before it acts and may be repeated: a
// job that repeats it after a crash finds what was done.
package cephmon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephimage"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Ceph is what is asked of a Ceph cluster. None of it does harm if the mons do it late, for nobody.
type Ceph interface {
	QuorumStatus(ctx context.Context) (ceph.QuorumStatus, error)
	ProvedQuorum(ctx context.Context) (ceph.QuorumStatus, error)
	OKToStopMon(ctx context.Context, name string) (storage.Answer, error)
	OKToAddMon(ctx context.Context) (storage.Answer, error)
	OSDDump(ctx context.Context) (*ceph.OSDMap, error)
	MonVersions(ctx context.Context) (map[string]string, error)
}

// Remover takes mons out of the monmap of a Ceph cluster, and asks whether it may.
type Remover interface {
	ProvedQuorum(ctx context.Context) (ceph.QuorumStatus, error)
	OKToRemoveMon(ctx context.Context, name string) (storage.Answer, error)
	RemoveMon(ctx context.Context, name string) error
}

// Clusters are the Ceph clusters of all policies. A ceph.Client is what both ask.
type Clusters interface {
	// Client asks over a connection that others use, too.
	Client(ctx context.Context, key storage.ClusterKey) (Ceph, error)
	// Apart asks over a connection of its own, until it is closed: then the monitors drop what they have not begun.
	Apart(ctx context.Context, key storage.ClusterKey) (r Remover, closes func(), err error)
}

// Mons are the mons of all CephMons.
type Mons struct {
	typed    kubernetes.Interface
	api      client.Client
	clusters Clusters
	images   *cephimage.Images
}

// New makes Mons of two clients of one API server and of what connects to Ceph.
func New(typed kubernetes.Interface, api client.Client, clusters Clusters) *Mons {
	return &Mons{typed: typed, api: api, clusters: clusters, images: cephimage.New(typed)}
}

func (m *Mons) ceph(ctx context.Context, key storage.ClusterKey) (Ceph, error) {
	return m.clusters.Client(ctx, key)
}

// Ref names a CephMon.
type Ref = activities.MonsRef

// Memory is what a job knows beyond what is in the cluster.
type Memory = activities.MonMemory

// world is all that is read of the Kubernetes cluster at one moment.
type world struct {
	cephMon     *v1alpha1.CephMon
	set         monspec.Set
	policy      *v1alpha1.MaintenancePolicy
	endpoints   *corev1.ConfigMap
	deployments []appsv1.Deployment
	pods        []corev1.Pod
	nodes       []corev1.Node
	claims      []corev1.PersistentVolumeClaim
	volumes     []corev1.PersistentVolume // read only if it matters where one is
	service     bool                      // there is a Service of the newcomer
	others      []string                  // further CephMons of the same policy
	addresses   map[string]string         // of the monmap
	release     int                       // the oldest that a mon may have
	silent      bool                      // no image may be asked for its version
	unasked     bool                      // the next step takes an image whose version nobody has asked for yet
	rook        string                    // the CephCluster of the namespace; "": there is none
}

// read reads a CephMon and what belongs to it.
func (m *Mons) read(ctx context.Context, ref Ref) (*world, error) {
	var c v1alpha1.CephMon
	if err := m.api.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &c); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("CephMon %s: %w", ref, activities.ErrNotFound)
		}
		return nil, err
	}
	w := &world{cephMon: &c, set: monspec.Of(&c), policy: &v1alpha1.MaintenancePolicy{}}
	if err := m.api.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: c.Spec.Policy}, w.policy); err != nil {
		if apierrors.IsNotFound(err) {
			return w, input.Wrong("spec.policy", c.Spec.Policy, "no such MaintenancePolicy in namespace "+ref.Namespace)
		}
		return nil, err
	}
	selector := kube.MonSelector(w.policy)
	if len(selector.MatchExpressions) > 0 {
		return w, input.Wrong("spec.policy", c.Spec.Policy, "has spec.ceph.daemons.mon.matchExpressions, which is not "+
			"allowed with a CephMon: new mons get the labels that matchLabels names")
	}
	w.set.Selector = selector.MatchLabels
	return w, m.readAll(ctx, ref, w)
}

// readAll reads what a decision is made of beside the CephMon and its policy. What does not depend on anything else is
// asked for at once: an act looks twice, and a look would be a dozen requests one after the other.
func (m *Mons) readAll(ctx context.Context, ref Ref, w *world) error {
	var g errgroup.Group
	g.Go(func() (err error) {
		w.endpoints, err = m.typed.CoreV1().ConfigMaps(ref.Namespace).Get(ctx,
			w.policy.Spec.Ceph.Connection.MonEndpoints.Name, metav1.GetOptions{})
		return err
	})
	g.Go(func() (err error) {
		w.rook, err = m.cephCluster(ctx, ref.Namespace)
		return err
	})
	g.Go(func() error {
		names, err := m.cephMons(ctx, storage.ClusterKey{Namespace: ref.Namespace, Name: w.policy.Name})
		w.others = slices.DeleteFunc(names, func(name string) bool { return name == ref.Name })
		return err
	})
	g.Go(func() error { return m.listPods(ctx, ref.Namespace, w) })
	g.Go(func() error { return m.listClaims(ctx, ref.Namespace, w) })
	return g.Wait()
}

// cephCluster is the first CephCluster of a namespace. Where Rook was never installed there is no such resource.
func (m *Mons) cephCluster(ctx context.Context, namespace string) (string, error) {
	text, err := m.typed.CoreV1().RESTClient().Get().
		AbsPath("/apis/ceph.rook.io/v1/namespaces/" + namespace + "/cephclusters").Do(ctx).Raw()
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text, &list); err != nil || len(list.Items) == 0 {
		return "", err
	}
	return "CephCluster " + list.Items[0].Name, nil
}

// listPods lists Deployments, then pods, then nodes: a mon that has neither of the former two has none, since nobody
// makes a pod for a Deployment that is gone; and a pod on a node that there is not is on one that was deleted.
func (m *Mons) listPods(ctx context.Context, namespace string, w *world) error {
	deployments, err := m.typed.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := m.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes, err := m.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w.deployments, w.pods, w.nodes = deployments.Items, pods.Items, nodes.Items
	return nil
}

func (m *Mons) listClaims(ctx context.Context, namespace string, w *world) error {
	claims, err := m.typed.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w.claims = claims.Items
	return nil
}

// deployment is that of a mon, or of a canary, by its name's label; nil: there is none.
func (w *world) deployment(match func(template map[string]string) bool) *appsv1.Deployment {
	for i := range w.deployments {
		if match(w.deployments[i].Spec.Template.Labels) {
			return &w.deployments[i]
		}
	}
	return nil
}

func (w *world) isMon(mon string) func(map[string]string) bool {
	selector := labels.SelectorFromSet(w.set.Selector)
	return func(l map[string]string) bool {
		return selector.Matches(labels.Set(l)) && l[kube.MonLabel] == mon && mon != "" && l["mon_canary"] == ""
	}
}

func isCanary(mon string) func(map[string]string) bool {
	return func(l map[string]string) bool { return l[monspec.CanaryLabel] == mon && mon != "" }
}

// pod is the newest of a Deployment's pods that is not on its way out.
func (w *world) pod(match func(map[string]string) bool) *corev1.Pod {
	var newest *corev1.Pod
	for i := range w.pods {
		p := &w.pods[i]
		ended := p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if match(p.Labels) && !ended && (newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	return newest
}

func (w *world) node(name string) *corev1.Node {
	i := slices.IndexFunc(w.nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &w.nodes[i]
}

// hostname is the value of a node's label kubernetes.io/hostname. Clouds give nodes another name than that; without the
// label, or the node, it is taken for the same.
func (w *world) hostname(name string) string {
	if n := w.node(name); n != nil && n.Labels[corev1.LabelHostname] != "" {
		return n.Labels[corev1.LabelHostname]
	}
	return name
}

// boundTo is the name of the only node on which a pod could run; "": it could run on several. A node that is gone is
// known by its label kubernetes.io/hostname alone.
func (w *world) boundTo(spec corev1.PodSpec) string {
	spec.NodeName = ""
	host := kube.PodNode(&corev1.Pod{Spec: spec})
	i := slices.IndexFunc(w.nodes, func(n corev1.Node) bool { return n.Labels[corev1.LabelHostname] == host })
	if host == "" || i < 0 {
		return host
	}
	return w.nodes[i].Name
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	i := slices.IndexFunc(w.claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &w.claims[i]
}

// zone is the zone of a node, if there are zones.
func (w *world) zone(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Labels[w.set.Label()]
}

// endpointNames are the mons that the endpoints name: "a=10.0.0.1:6789,b=…".
func (w *world) endpointNames() (names []string) {
	for _, entry := range strings.Split(w.endpoints.Data[w.endpointsKey()], ",") {
		if name, _, named := strings.Cut(strings.TrimSpace(entry), "="); named {
			names = append(names, name)
		}
	}
	return names
}

func (w *world) endpointsKey() string { return w.policy.Spec.Ceph.Connection.MonEndpoints.Key }
