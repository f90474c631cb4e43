package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Key names the one policy of a World.
var Key = storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"}

// Options of a World. The zero value is three zones of two nodes with one OSD each, and adapters that answer at once.
type Options struct {
	NodesPerZone, OSDsPerNode int
	// Spec of the policy; nil: all defaults.
	Spec *v1alpha1.CephSpec
	// Latency is how long a request of an adapter takes before it is carried out.
	Latency func() time.Duration
	// Reaction is how long lockkeeper may take to answer to what nobody announced; 0: two seconds.
	Reaction time.Duration
	// Fail may make a request fail. deed says whether the request is carried out all the same.
	Fail func(ctx context.Context, op string) (deed bool, err error)
}

// Zones are the failure domains of a World.
var Zones = []string{"x", "y", "z"}

// How long things take.
const (
	podGrace       = 200 * time.Millisecond // from an eviction to the end of the process
	osdDownAfter   = 150 * time.Millisecond // from the end of the process to the map
	podStarts      = 300 * time.Millisecond
	osdBoots       = 1200 * time.Millisecond // after the start of its pod
	recovers       = 2 * time.Second         // a copy, after its OSD came up
	downOutAfter   = 30 * time.Second        // mon_osd_down_out_interval
	statsPeriod    = time.Second             // of OSDs' reports and of the manager's
	managerMissed  = 30 * time.Second        // until mgrmap.available turns false
	budgetComputed = 10 * time.Millisecond   // from a budget's write to its status
	reboots        = 3 * time.Second
	monTimeout     = 3 * time.Second // rados_mon_op_timeout
)

// World is a storage cluster and its Kubernetes. All methods may be called at any time from any goroutine of the bubble.
type World struct {
	opts    Options
	started time.Time
	end     context.Context //nolint:containedctx // the World's own life
	close   context.CancelFunc

	mu         sync.Mutex
	changed    chan struct{} // closed at every change
	story      []string
	violations []string

	nodes   map[string]*node
	pods    []*pod
	budgets map[string]*budgetObject
	policy  *v1alpha1.MaintenancePolicy // nil: deleted
	memory  activities.Memory
	report  activities.Report

	cephCluster
	unguarded time.Time // until when nobody can be blamed for bad luck
	guarding  time.Time // since when our budget covers all OSDs; zero: it does not
	stirred   time.Time // when a node or a pod last changed
	listener  func()    // told of changes in Kubernetes
}

// New makes a World in which all is well, and the policy was just created.
func New(opts Options) *World {
	if opts.NodesPerZone == 0 {
		opts.NodesPerZone = 2
	}
	if opts.OSDsPerNode == 0 {
		opts.OSDsPerNode = 1
	}
	if opts.Reaction == 0 {
		opts.Reaction = 2 * time.Second
	}
	spec := v1alpha1.CephSpec{}
	if opts.Spec != nil {
		spec = *opts.Spec
	}
	w := &World{
		opts: opts, started: time.Now(), changed: make(chan struct{}),
		nodes: map[string]*node{}, budgets: map[string]*budgetObject{},
		policy: &v1alpha1.MaintenancePolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: Key.Name, Generation: 1},
			Spec:       v1alpha1.MaintenancePolicySpec{Ceph: &spec},
		},
	}
	w.end, w.close = context.WithCancel(context.Background())
	w.populate()
	go w.tick()
	return w
}

// populate sets the cluster up as one that has been at rest for long.
func (w *World) populate() {
	w.initCeph()
	name := 'a'
	for _, zone := range Zones {
		for range w.opts.NodesPerZone {
			n := &node{name: string(name), zone: zone, uid: "uid-" + string(name), boot: 1, ready: true}
			w.nodes[n.name] = n
			name++
			for range w.opts.OSDsPerNode {
				o := w.addOSD(n)
				w.pods = append(w.pods, &pod{name: fmt.Sprintf("osd-%d-1", o.id), osd: o.id, node: n.name, state: storage.PodReady, bound: true})
			}
		}
	}
	w.settleCeph()
}

// Close ends the World: whoever waits for something in it gets an error.
func (w *World) Close() { w.close() }

// Tell adds a line to the story.
func (w *World) Tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(format, args...)
}

func (w *World) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%10.3fs  ", time.Since(w.started).Seconds())+fmt.Sprintf(format, args...))
}

func (w *World) violate(format string, args ...any) {
	w.tell("VIOLATION "+format, args...)
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// Story is what happened, a line each.
func (w *World) Story() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.story)
}

// Violations are the invariants that did not hold.
func (w *World) Violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}

// OnKubernetes has f called after every change of what the API server knows. f must not block.
func (w *World) OnKubernetes(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener = f
}

// broadcast wakes who waits for any change.
func (w *World) broadcast() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// kubeChanged is broadcast for changes of nodes and pods.
func (w *World) kubeChanged() {
	w.stirred = time.Now()
	w.tellWatcher()
}

// tellWatcher is broadcast for changes that a watcher of Kubernetes sees.
func (w *World) tellWatcher() {
	w.broadcast()
	if w.listener != nil {
		go w.listener()
	}
}

// later runs f under the World's lock after a while, unless the World has ended.
func (w *World) later(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.end.Err() == nil {
			f()
		}
	})
}

// await waits until cond holds, at most for the given time, and tells whether it does. cond runs under the World's lock.
func (w *World) await(ctx context.Context, within time.Duration, cond func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-w.end.Done():
			return false
		}
	}
}

// request is one request of an adapter: it takes its time, may fail, and does what it is for under the World's lock.
func (w *World) request(ctx context.Context, op string, do func() error) error {
	if w.opts.Latency != nil {
		select {
		case <-time.After(w.opts.Latency()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := w.end.Err(); err != nil {
		return fmt.Errorf("the world has ended: %w", err)
	}
	var failure error
	deed := true
	if w.opts.Fail != nil {
		deed, failure = w.opts.Fail(ctx, op)
	}
	if failure != nil && !deed {
		return failure
	}
	w.mu.Lock()
	err := do()
	w.mu.Unlock()
	if failure != nil {
		return failure
	}
	return err
}
