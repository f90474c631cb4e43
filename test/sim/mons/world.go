// Package mons simulates the mons of one Ceph cluster and what Kubernetes has of them: the monmap, the quorum, stores,
// Deployments, pods, claims, Services, nodes, the scheduler and the kubelets. In front of it are lockkeeper's own
// adapters, so that what fails, is repeated or gets no answer is a single request.
//
// What must never be is judged at each request that changes something (judge.go). Bad luck keeps to a rule (luck.go):
// it never takes so many mons that the rest would be no majority, counting what was promised a moment ago. So whatever
// costs the quorum here, lockkeeper has done.
package mons

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephmon"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// Ref names the CephMon. Its policy is that of the simulated storage cluster.
var Ref = cephmon.Ref{Namespace: sim.Key.Namespace, Name: "mons"}

const (
	fsid    = "11111111-2222-3333-4444-555555555555"
	dataDir = "/var/lib/rook"
	// Image is that of the mons when the world begins.
	Image = "ceph:1"
)

// Failure is what becomes of a request. Done: it is carried out, and only the answer is lost.
type Failure struct {
	Err  error
	Done bool
}

// Options of a world. Functions that are nil do nothing.
type Options struct {
	Mons    int // adopted mons, on one node each
	Zones   int // of nodes
	PerZone int // nodes in each
	// Hosts: the label kubernetes.io/hostname of nodes is another one than their name.
	Hosts bool
	// HostNetwork: mons have the addresses of their nodes.
	HostNetwork bool
	// Own: the adopted mons have a template of lockkeeper's, so that another image restarts them.
	Own bool
	// Draw draws a number below n.
	Draw func(n int) int
	// Latency is how long one request takes, by what it does: some are under way at one time.
	Latency func(op string) time.Duration
	// Fail is asked before each request. change: it changes something.
	Fail func(ctx context.Context, op string, change bool) Failure
	// May stops whoever must not do anything any more.
	May func(ctx context.Context) error
	// Lease is the mon for which the lease is held; "": none.
	Lease func() string
	Tell  func(format string, args ...any)
	// News is called, without a lock, when a mon has died or come back, a node or the spec has changed.
	News func(what string)
}

// World is the simulated cluster.
type World struct {
	opts Options

	mu          sync.Mutex
	over        bool
	version     int64
	cephMon     *v1alpha1.CephMon // nil: it is deleted
	endpoints   *corev1.ConfigMap
	deployments map[string]*appsv1.Deployment
	pods        map[string]*pod
	claims      map[string]*corev1.PersistentVolumeClaim
	volumes     map[types.UID]string // the zone of a bound claim's volume, or its node
	services    map[string]*corev1.Service
	nodes       map[string]*corev1.Node
	classes     map[string]*storagev1.StorageClass
	deadClasses map[string]bool
	deadNodes   map[string]bool      // whose machines have no power
	unheard     map[string]time.Time // nodes whose kubelet does not answer, and since when
	upset       time.Time            // when something happened to a node
	reckless    bool                 // somebody has killed mons without regard to the quorum
	draining    map[string]bool      // nodes that somebody empties, whom lockkeeper's keeper knows
	full        map[string]bool      // zones in which the scheduler has no room, though their nodes look fine
	away        bool                 // the API server
	rook        bool                 // there is a CephCluster

	worker *cephmon.Mons

	quorum
	images
	history
	violations []string
}

// history is what there was, for the judge.
type history struct {
	given   map[string]int // what names were given, and how often their Deployment was made
	proved  map[string]bool
	seen    map[string]bool      // whom the status has named in quorum: that is what lockkeeper knows
	gone    map[string]string    // mons that were in quorum and have left, with the place of their store
	acts    []string             // changes that were carried out
	removed map[string]bool      // names that have left the monmap
	left    map[string]time.Time // addresses of mons that were seen in quorum, and when they have left
	evicted map[string]string    // mons that a drain has evicted from a node where the status had them, and that node
	counted int                  // the spec's count when the last name was given
	alone   bool                 // a person has allowed that a mon leaves before its successor joins
}

// New makes a world of adopted mons that are all in quorum.
func New(opts Options) *World {
	w := &World{
		opts: opts, deployments: map[string]*appsv1.Deployment{}, pods: map[string]*pod{},
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[types.UID]string{},
		services: map[string]*corev1.Service{}, nodes: map[string]*corev1.Node{},
		classes: map[string]*storagev1.StorageClass{}, deadClasses: map[string]bool{}, deadNodes: map[string]bool{},
		unheard: map[string]time.Time{}, draining: map[string]bool{}, full: map[string]bool{},
		quorum: newQuorum(), images: newImages(), history: history{
			given: map[string]int{}, proved: map[string]bool{}, seen: map[string]bool{},
			gone: map[string]string{}, removed: map[string]bool{}, left: map[string]time.Time{}, evicted: map[string]string{},
		},
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range opts.Zones * opts.PerZone {
		w.addNode(fmt.Sprintf("n%d", i), zones[i%opts.Zones])
	}
	for _, name := range []string{"disk", "ssd"} {
		late := storagev1.VolumeBindingWaitForFirstConsumer
		w.classes[name] = &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/disks", VolumeBindingMode: &late,
		}
	}
	w.classes["local"] = w.classes["ssd"].DeepCopy()
	w.classes["local"].Name, w.classes["local"].Provisioner = "local", "kubernetes.io/no-provisioner"
	timeout := metav1.Duration{Duration: HealthTimeout}
	w.cephMon = &v1alpha1.CephMon{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Ref.Namespace, Name: Ref.Name, Generation: 1, UID: "cephmon", ResourceVersion: "1",
		},
		Spec: v1alpha1.CephMonSpec{
			Policy: sim.Key.Name, Count: int32(opts.Mons), FailureDomainLabel: corev1.LabelTopologyZone, //nolint:gosec // few
			PodTemplate:     v1alpha1.MonPodTemplate{Image: Image, HostNetwork: opts.HostNetwork},
			DataDirHostPath: dataDir, HealthTimeout: &timeout, Migrate: v1alpha1.MigrateManual,
		},
	}
	w.endpoints = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: Ref.Namespace, Name: "rook-ceph-mon-endpoints", ResourceVersion: "1"},
		Data:       map[string]string{"maxMonId": fmt.Sprint(opts.Mons - 1), "mapping": "{}"},
	}
	for i := range opts.Mons {
		w.adopt(monplan.NameOf(i), fmt.Sprintf("n%d", i))
	}
	w.endpoints.Data["data"] = w.list(w.names())
	w.pass()
	for _, p := range w.pods { // they have been running for a while
		host := p.Spec.NodeSelector[corev1.LabelHostname]
		for _, n := range w.nodes {
			if n.Labels[corev1.LabelHostname] == host {
				p.Spec.NodeName, p.Status.Phase = n.Name, corev1.PodRunning
			}
		}
		p.joins, p.ready = time.Now(), time.Now()
	}
	w.pass()
	return w
}

// HealthTimeout is that of the CephMon.
const HealthTimeout = 2 * time.Minute

var zones = []string{"x", "y", "z", "u", "v"}

// host is the label kubernetes.io/hostname of a node.
func (w *World) host(node string) string {
	if w.opts.Hosts {
		return "host-of-" + node
	}
	return node
}

func (w *World) addNode(name, zone string) {
	w.nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: w.host(name), corev1.LabelTopologyZone: zone,
		}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addressOn(name)}},
		},
	}
}

// addressOn is the address of a mon with hostNetwork on a node: "10.1.0.4" on n3.
func addressOn(node string) string { return fmt.Sprintf("10.1.0.%d", 1+node[1]-'0') }

// adopt makes a mon as Rook runs it, which is in quorum.
func (w *World) adopt(name, node string) {
	one := int32(1)
	labels := map[string]string{"app": "rook-ceph-mon", "ceph_daemon_id": name, "mon": name}
	dir := dataDir + "/mon-" + name + "/data"
	w.putDeployment(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: Ref.Namespace, Name: monspec.ResourceName(name), Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{corev1.LabelHostname: w.host(node)}, HostNetwork: w.opts.HostNetwork,
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
						TopologyKey:   corev1.LabelHostname,
						LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-mon"}},
					}},
				}},
				Volumes: []corev1.Volume{{Name: "ceph-daemon-data", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: dir},
				}}},
				Containers: []corev1.Container{{Name: "mon", Image: "ceph:0"}},
			}},
		},
	})
	ip := addressOn(node)
	if !w.opts.HostNetwork {
		s := monspec.Set{Namespace: Ref.Namespace, Name: Ref.Name}.Service(name)
		w.putService(s)
		ip = s.Spec.ClusterIP
	}
	if w.opts.Own {
		hash, err := monspec.Of(w.cephMon).TemplateHash()
		if err != nil {
			panic(err) // the image is a constant
		}
		d := w.deployments[monspec.ResourceName(name)]
		d.Spec.Template.Annotations = map[string]string{monspec.TemplateAnnotation: hash}
		d.Spec.Template.Spec.Containers[0].Image = Image
	}
	w.given[name], w.proved[name] = 1, true
	w.monmap = append(w.monmap, member{name: name, ip: ip})
	w.stores[node+dir] = &store{mon: name, joined: true}
}

func (w *World) tell(format string, args ...any) {
	if w.opts.Tell != nil {
		w.opts.Tell("mons: "+format, args...)
	}
}

// Close ends the world: nothing happens by itself any more.
func (w *World) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// wake has the controllers and the mons look again after a while.
func (w *World) wake(after time.Duration) {
	time.AfterFunc(after, func() {
		w.mu.Lock()
		if !w.over {
			w.pass()
		}
		w.mu.Unlock()
	})
}

// between draws a duration.
func (w *World) between(least, most time.Duration) time.Duration {
	const parts = 16
	n := 0
	if w.opts.Draw != nil {
		n = w.opts.Draw(parts + 1)
	}
	return least + (most-least)*time.Duration(n)/parts
}

// may tells whether whoever asks still lives.
func (w *World) may(ctx context.Context) error {
	if w.opts.May != nil {
		if err := w.opts.May(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// request is one request of lockkeeper.
func (w *World) request(ctx context.Context, op string, change bool, do func() error) error {
	if err := w.may(ctx); err != nil {
		return err
	}
	var takes time.Duration
	if w.opts.Latency != nil {
		takes = w.opts.Latency(op)
	}
	if err := pause(ctx, takes/2); err != nil {
		return err
	}
	if err := w.may(ctx); err != nil {
		return err
	}
	var failure Failure
	if w.opts.Fail != nil {
		failure = w.opts.Fail(ctx, op, change)
	}
	err := failure.Err
	if err == nil || failure.Done {
		w.mu.Lock()
		done := do()
		if change && done == nil {
			w.acts = append(w.acts, op)
			w.pass()
		}
		w.mu.Unlock()
		if err == nil {
			err = done
		}
	}
	if late := pause(ctx, takes/2); late != nil && err == nil {
		err = late
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Mons are lockkeeper's own adapters in front of this world, those of one worker: they remember what images said.
func (w *World) Mons() *cephmon.Mons {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.worker == nil {
		w.worker = cephmon.New(server{World: w}, objects{World: w}, clusters{w})
	}
	return w.worker
}

// AnotherWorker has the next Mons be those of a worker that remembers nothing.
func (w *World) AnotherWorker() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.worker = nil
}

// clusters are lockkeeper's connections to the mons.
type clusters struct{ w *World }

func (c clusters) Client(context.Context, storage.ClusterKey) (cephmon.Ceph, error) {
	return ceph.Client{Commander: commander{World: c.w}}, nil
}

// Apart takes a moment, as a connection does.
func (c clusters) Apart(ctx context.Context, _ storage.ClusterKey) (cephmon.Remover, func(), error) {
	closed := new(atomic.Bool)
	err := c.w.request(ctx, "connect", false, func() error { return nil })
	return ceph.Client{Commander: commander{c.w, closed}}, func() { closed.Store(true) }, err
}

// names are those of the monmap, sorted.
func (w *World) names() (names []string) {
	for _, m := range w.monmap {
		names = append(names, m.name)
	}
	slices.Sort(names)
	return names
}

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

var errAway = errors.New("the API server does not answer")
