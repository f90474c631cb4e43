package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
	"github.com/lockkeeper/lockkeeper/worker"
)

const (
	namespace = "rook-ceph"
	policy    = "rook-ceph"
	patience  = time.Minute // for any one step
	eachMark  = 50 * time.Millisecond
)

type world struct {
	api      *kubernetes.Clientset // the bench's own
	temporal client.Client
	ceph     *simulatedCeph
	osds     int
	perNode  int
	requests atomic.Int64  // of watcher and worker, but for those that last
	adopted  time.Duration // from the start of lockkeeper until every pod was marked
	undo     []func()
}

func (w *world) later(f func()) { w.undo = append(w.undo, f) }

func (w *world) close() {
	for _, undo := range slices.Backward(w.undo) {
		undo()
	}
}

// newWorld starts everything and returns when the keeper has seen the cluster at rest. The world is to be closed even
// if it is returned with an error.
func newWorld(ctx context.Context, domains, perDomain int) (*world, error) {
	ctrl.SetLogger(logr.Discard())
	w := &world{osds: domains * perDomain, perNode: perDomain}
	var err error
	if w.ceph, err = newCeph(domains, perDomain); err != nil {
		return w, err
	}
	cfg, err := w.startKubernetes()
	if err != nil {
		return w, err
	}
	if w.temporal, err = w.startTemporal(ctx); err != nil {
		return w, err
	}
	own := rest.CopyConfig(cfg)
	own.QPS = -1
	if w.api, err = kubernetes.NewForConfig(own); err != nil {
		return w, err
	}
	began := time.Now()
	if err := w.populate(ctx, cfg, domains); err != nil {
		return w, err
	}
	fmt.Fprintf(os.Stderr, "%d OSDs in %d failure domains: created in %s\n", w.osds, domains,
		time.Since(began).Round(time.Second))
	return w, w.startLockkeeper(ctx, cfg, w.temporal)
}

// startKubernetes starts an API server.
func (w *world) startKubernetes() (*rest.Config, error) {
	s, err := apiserver.Start(".", filepath.Join("deploy", "crds"))
	if err != nil {
		return nil, err
	}
	w.later(func() { _ = s.Stop() })
	return s.Config, nil
}

func (w *world) startTemporal(ctx context.Context) (client.Client, error) {
	s, err := testsuite.StartDevServer(ctx, testsuite.DevServerOptions{
		ExistingPath: filepath.Join("lab", "bin", "temporal"), LogLevel: "error", Stdout: io.Discard, Stderr: os.Stderr,
		ClientOptions: &client.Options{Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))},
	})
	if err != nil {
		return nil, fmt.Errorf("start Temporal: %w", err)
	}
	w.later(func() { _ = s.Stop() })
	return s.Client(), nil
}

// counted is a configuration whose requests are counted, watches apart.
func (w *world) counted(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "" {
				w.requests.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	return cfg
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *world) startLockkeeper(ctx context.Context, cfg *rest.Config, temporal client.Client) error {
	cluster, err := kube.New(w.counted(cfg))
	if err != nil {
		return err
	}
	clusters := cephcluster.New(cluster, w.ceph)
	worked := worker.New(temporal,
		worker.Adapters{Policies: cluster, Budgets: cluster, Nodes: cluster, Clusters: clusters})
	if err := worked.Start(); err != nil {
		return err
	}
	w.later(worked.Stop)
	watching, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- starter.Run(watching, w.counted(cfg), starter.NewTemporal(temporal), starter.Options{Log: logr.Discard()})
	}()
	w.later(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "the watcher:", err)
		}
	})
	began := time.Now()
	err = w.awaitRest(ctx)
	w.adopted = time.Since(began)
	return err
}

// awaitRest waits until the budget is at rest, and every pod is marked.
func (w *world) awaitRest(ctx context.Context) error {
	if _, err := w.await(ctx, "the budget is at rest", w.atRest); err != nil {
		return err
	}
	for end := time.Now().Add(patience + time.Duration(w.osds)*eachMark); time.Now().Before(end) &&
		ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		marked, err := w.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: storageview.MarkLabel})
		if err != nil {
			return err
		}
		if len(marked.Items) == w.osds {
			return nil
		}
	}
	return fmt.Errorf("in vain for a mark on every pod")
}

// populate makes the objects of a cluster that runs.
func (w *world) populate(ctx context.Context, cfg *rest.Config, domains int) error {
	crs, err := kubeclient.New(cfg, kubeclient.Options{Scheme: kube.Scheme})
	if err != nil {
		return err
	}
	core := w.api.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	endpoints := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-mon-endpoints"},
		Data:       map[string]string{"data": "a=10.0.0.1:6789"},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-mon"},
		StringData: map[string]string{"ceph-username": "client.lockkeeper", "ceph-secret": "c2VjcmV0"},
	}
	_, err1 := core.ConfigMaps(namespace).Create(ctx, endpoints, metav1.CreateOptions{})
	_, err2 := core.Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(20)
	for d := range domains {
		g.Go(func() error { return w.createNode(ctx, nodeName(d)) })
	}
	for id := range w.osds {
		g.Go(func() error { return w.createOSD(ctx, id) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// As somebody would write it, so that the API server fills in the rest.
	p := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"ceph": map[string]any{}}}}
	p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MaintenancePolicy"))
	p.SetNamespace(namespace)
	p.SetName(policy)
	return crs.Create(context.WithoutCancel(ctx), p)
}

func (w *world) createNode(ctx context.Context, name string) error {
	n, err := w.api.CoreV1().Nodes().Create(ctx,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = w.api.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}

func (w *world) createOSD(ctx context.Context, id int) error {
	node, number := nodeName(id/w.perNode), strconv.Itoa(id)
	labels := map[string]string{
		"app": "rook-ceph-osd", "ceph-osd-id": number,
		"topology-location-rack": domainName(id / w.perNode), "topology-location-host": node,
	}
	spec := corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: node},
		Containers:   []corev1.Container{{Name: "osd", Image: "none"}},
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"ceph-osd-id": number}}
	meta := metav1.ObjectMeta{Name: "rook-ceph-osd-" + number, Labels: labels}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: selector,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
	if _, err := w.api.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return err
	}
	spec.NodeName = node
	if _, err := w.api.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: spec},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	return w.setReady(ctx, id, corev1.ConditionTrue)
}

// setReady is the kubelet's word about an OSD's pod.
func (w *world) setReady(ctx context.Context, id int, ready corev1.ConditionStatus) error {
	pods := w.api.CoreV1().Pods(namespace)
	pod, err := pods.Get(ctx, "rook-ceph-osd-"+strconv.Itoa(id), metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning,
		[]corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// The time that Ceph needs to notice that an OSD is down, and an OSD to be up again.
const (
	cephNotices = 150 * time.Millisecond
	outage      = 1500 * time.Millisecond
)

// stopOne takes one OSD of a cluster at rest down and back again, and returns how long the budget needed to close.
func (w *world) stopOne(ctx context.Context, id int) (time.Duration, error) {
	took, err := w.stop(ctx, id)
	if err != nil {
		return 0, err
	}
	return took, w.awaitRest(ctx)
}

// stop takes one OSD down, and up again when the budget has closed.
func (w *world) stop(ctx context.Context, id int) (time.Duration, error) {
	if err := w.setReady(ctx, id, corev1.ConditionFalse); err != nil {
		return 0, err
	}
	down := time.Now()
	time.AfterFunc(cephNotices, func() { w.ceph.set(id, false) })
	closed, err := w.await(ctx, "the budget is closed elsewhere",
		func(b *policyv1.PodDisruptionBudget) bool { return closedBut(b, domainName(id/w.perNode)) })
	if err != nil {
		return 0, err
	}
	time.Sleep(outage)
	w.ceph.set(id, true)
	return closed.Sub(down), w.setReady(ctx, id, corev1.ConditionTrue)
}

func (w *world) atRest(b *policyv1.PodDisruptionBudget) bool {
	return least(b) == w.osds-1
}

// closedBut tells whether nobody may go, or only in this failure domain.
func closedBut(b *policyv1.PodDisruptionBudget, domain string) bool {
	open := opened(b)
	return least(b) >= budget.Everything && (len(open) == 0 || slices.Equal(open, []string{domain}))
}

// opened are the failure domains that a budget leaves out.
func opened(b *policyv1.PodDisruptionBudget) (domains []string) {
	for _, r := range b.Spec.Selector.MatchExpressions {
		if r.Key != storageview.MarkLabel {
			domains = append(domains, r.Values...)
		}
	}
	return domains
}

// least is how many pods must stay.
func least(b *policyv1.PodDisruptionBudget) int {
	if b.Spec.MinAvailable == nil {
		return 0
	}
	return b.Spec.MinAvailable.IntValue()
}

// await returns when the budget of the marked pods was seen to be so. That of the others lets nobody go at rest.
func (w *world) await(
	ctx context.Context, what string, is func(*policyv1.PodDisruptionBudget) bool,
) (time.Time, error) {
	return w.awaitFor(ctx, patience, what, is)
}

func (w *world) awaitFor(
	ctx context.Context, long time.Duration, what string, is func(*policyv1.PodDisruptionBudget) bool,
) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	budgets := w.api.PolicyV1().PodDisruptionBudgets(namespace)
	one := metav1.ListOptions{FieldSelector: "metadata.name=" + kube.ProvedBudgetName(policy)}
	list, err := budgets.List(ctx, one)
	if err != nil {
		return time.Time{}, err
	}
	for i := range list.Items {
		if is(&list.Items[i]) {
			return time.Now(), nil
		}
	}
	one.ResourceVersion = list.ResourceVersion
	changes, err := budgets.Watch(ctx, one)
	if err != nil {
		return time.Time{}, err
	}
	defer changes.Stop()
	last := "there is none"
	for e := range changes.ResultChan() {
		now := time.Now()
		if b, ok := e.Object.(*policyv1.PodDisruptionBudget); ok && e.Type != watch.Deleted {
			if is(b) {
				return now, nil
			}
			last = fmt.Sprintf("it says %s, except %v", b.Spec.MinAvailable, b.Spec.Selector.MatchExpressions)
		}
	}
	return time.Time{}, fmt.Errorf("in vain for %s: %s", what, last)
}
