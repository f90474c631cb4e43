package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

var _ cephcluster.Dialer = (*World)(nil)

// Key names the one policy of a World, unless Options.Key does.
var Key = storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"}

// FSID is the ID of the World's Ceph.
const (
	FSID          = "9c0a5a1e-0000-4000-8000-000000000000"
	FSIDOfAnother = "9c0a5a1e-0000-4000-8000-000000000001"
)

// Options of a World. The zero value is three zones of two nodes with one OSD each, a mon on the first node of each
// zone, one mgr, and adapters that answer at once.
type Options struct {
	// Key names the policy; zero: Key. It is also where the pods run. Another Key is of another storage cluster.
	Key storage.ClusterKey
	// Shift moves the nodes that many zones on, so that nodes of one zone are in several of another World.
	Shift                     int
	NodesPerZone, OSDsPerNode int
	// MonNodes: the mons have nodes of their own, which come after those with OSDs.
	MonNodes bool
	// Spec of the policy; nil: all defaults.
	Spec *v1alpha1.CephSpec
	// CephOSD, if set, is the spec of a CephOSD that all OSDs are of, as people write it, but for storage and podTemplate.
	// Without it each OSD has a Deployment, as Rook's have.
	CephOSD map[string]any
	// ReportPeriod is the time between two reports of an OSD; 0: a second. Ceph's default is 5 s.
	ReportPeriod time.Duration
	// MayFlush: the Ceph user may tell OSDs to report at once.
	MayFlush bool
	// DBs gives each OSD of the CephOSD a device of its own for RocksDB.
	DBs bool
	// ByOSD: the pool's rule puts each copy on another OSD, wherever that is, so that OSDs are the failure domains. Copies
	// are so many OSDs apart: with two OSDs on a node, 1 puts two copies on some nodes, and 2 on none as long as all OSDs
	// are in. 0: by zone.
	ByOSD int
	// Hybrid adds a pool whose rule may put two copies into one zone, without data.
	Hybrid bool
	// JudgeCanary: a canary goes first, alone, and has its time. That is not so where a person excuses it.
	JudgeCanary bool
	// Latency is how long a request of an adapter takes before it is carried out.
	Latency func() time.Duration
	// Reaction is how long lockkeeper may take to answer to what nobody announced; 0: two seconds.
	Reaction time.Duration
	// Grace is how long the pod of an OSD takes to end, while its daemon serves; 0: a moment. Kubernetes gives it half a
	// minute.
	Grace time.Duration
	// Remediator is how patient what fences nodes is; zero: less than anybody has it.
	Remediator Waits
	// Fail may make a request fail.
	Fail func(ctx context.Context, op string) Failure
}

// Failure is what becomes of a request. The zero Failure is success.
type Failure struct {
	Err error // what the client gets
	// Done: the request is carried out all the same; after Late, when the client has long given up.
	Done bool
	Late time.Duration
}

// Zones are the failure domains of a World.
var Zones = []string{"zone-x", "zone-y", "zone-z"}

// defaultReaction is Options.Reaction when requests take no time.
const defaultReaction = 2 * time.Second

// How long things take.
const (
	podGrace = 200 * time.Millisecond // from an eviction to the end of the process
	// longer than a pod takes to start: who does not wait has two daemons on a device
	bareGrace      = 700 * time.Millisecond
	podReplaced    = 50 * time.Millisecond  // from an eviction to the next pod
	osdDownAfter   = 150 * time.Millisecond // from the end of the process to the map
	podStarts      = 300 * time.Millisecond
	osdBoots       = 1200 * time.Millisecond // after the start of its pod
	recovers       = 2 * time.Second         // a copy, after its OSD came up
	downOutAfter   = 30 * time.Second        // mon_osd_down_out_interval
	statsPeriod    = time.Second             // of OSDs' reports and of the manager's
	managerMissed  = 30 * time.Second        // until mgrmap.available turns false
	managerStarts  = 1500 * time.Millisecond // after the start of its pod
	budgetComputed = 10 * time.Millisecond   // from a change to a budget's status
	reboots        = 3 * time.Second
	monTimeout     = 3 * time.Second         // rados_mon_op_timeout
	monJoins       = 2250 * time.Millisecond // after the start of its pod
	election       = 600 * time.Millisecond  // when a mon comes
	monMissed      = 5600 * time.Millisecond // when one goes: until the others have a quorum without it
	leaderLease    = 2 * time.Second         // for so long the others tell what they know after the leader went
	peonMissed     = 4 * time.Second         // likewise after another one went
	quorumNamed    = 4 * time.Second         // for so long a mon without a quorum names its old friends
	hangNoticed    = 7 * time.Second         // osd_heartbeat_grace, by reporters on two other hosts
	hangMissed     = 30 * time.Second        // with fewer reporters, until the mons miss the OSD's beacon
)

// World is a storage cluster and its Kubernetes. All methods may be called at any time from any goroutine of the
// bubble.
type World struct {
	opts    Options
	key     storage.ClusterKey // of the policy
	started time.Time
	end     context.Context //nolint:containedctx // the World's own life
	close   context.CancelFunc

	mu         sync.Mutex
	changed    chan struct{} // closed at every change
	awaited    bool          // somebody waits for it
	stepped    bool          // something changed since the invariants were checked
	story      []string
	violations []string
	violated   map[string]bool
	watching   watching
	belated    bool // a request is carried out now of which its sender has heard nothing and may have given up on

	names       []string // of nodes
	nodes       map[string]*node
	workloads   []*workload
	pods        []*pod
	budgets     map[string]*policyv1.PodDisruptionBudget
	covering    map[string]labels.Selector  // of budgets, by name
	params      []parameters                // of the guard of deletions, the last ones last
	guards      bool                        // it is installed
	lateBy      time.Duration               // how late one of two API servers is
	computing   bool                        // the disruption controller is about to
	computed    time.Time                   // when it last did
	policy      *v1alpha1.MaintenancePolicy // nil: deleted
	machines    *Machines                   // nil: it has none
	edited      time.Time                   // when its spec was last changed
	retiring    time.Time                   // when a person began to delete it
	ending      time.Time                   // when the namespace began to be deleted; zero: it is not
	older       *v1alpha1.MaintenancePolicy // another one, of the same storage cluster; nil: none
	elsewhere   *v1alpha1.MaintenancePolicy // one of another namespace; nil: none
	others      time.Time                   // when one of these was last taken away
	unreachable bool                        // no new line to the mons can be made
	fsid        string                      // of the Ceph cluster that answers now
	version     int                         // of the last object that was written
	selectors   kubeapi.Selectors
	commands    sync.Map // to Ceph, parsed, by their texts

	cephCluster
	cephOSD
	versions  versions
	held      map[string]time.Time // until when somebody held the lease for a host or an OSD
	unguarded time.Time            // until when nobody can be blamed for bad luck
	slipped   bool                 // see Slipped
	tampered  time.Time            // until when nobody can be blamed for what the budgets say, since a person changed them
	guarding  time.Time            // since when our budget covers all OSDs; zero: it does not
	stirred   time.Time            // when a node or a pod last changed
	homeless  time.Time            // since when no node could take another pod; zero: one could
	blind     bool                 // no watcher tells what happens in Kubernetes
	sighted   time.Time            // when one began to, or ended
	listener  func()               // told of changes in Kubernetes
	drains    map[string]int       // by kubectl, under way, of each node
}

// New makes a World in which all is well, and the policy was just created.
func New(opts Options) *World {
	opts.NodesPerZone, opts.OSDsPerNode = cmp.Or(opts.NodesPerZone, 2), cmp.Or(opts.OSDsPerNode, 1)
	opts.Reaction = cmp.Or(opts.Reaction, defaultReaction)
	w := &World{
		opts: opts, started: time.Now(), changed: make(chan struct{}), violated: map[string]bool{},
		nodes: map[string]*node{}, budgets: map[string]*policyv1.PodDisruptionBudget{}, drains: map[string]int{},
		covering: map[string]labels.Selector{}, selectors: kubeapi.Selectors{},
	}
	w.fsid, w.key = FSID, Key
	if opts.Key != (storage.ClusterKey{}) {
		w.key, w.fsid = opts.Key, FSIDOfAnother
	}
	spec := v1alpha1.CephSpec{}
	if opts.Spec != nil {
		spec = *opts.Spec
	}
	w.createPolicy(spec)
	w.end, w.close = context.WithCancel(context.Background())
	w.populate()
	go w.tick()
	return w
}

func (w *World) createPolicy(spec v1alpha1.CephSpec) {
	w.policy = &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.key.Namespace, Name: w.key.Name, Generation: 1, UID: types.UID(fmt.Sprint("policy-", w.version)),
		},
		Spec: v1alpha1.MaintenancePolicySpec{Ceph: &spec},
	}
	w.versioned()
}

// populate sets the cluster up as one that has been at rest for long.
func (w *World) populate() {
	w.initCeph()
	w.initCephOSD()
	withOSDs := w.opts.NodesPerZone * len(Zones)
	firstMon, nodes := 0, withOSDs
	if w.opts.MonNodes {
		firstMon, nodes = withOSDs, withOSDs+len(Zones)
	}
	for i := range nodes {
		n := &node{name: "node-" + string(rune('a'+i)), zone: Zones[(i+w.opts.Shift)%len(Zones)], boot: 1, ready: true}
		n.uid = "uid-" + n.name
		w.nodes[n.name], w.names = n, append(w.names, n.name)
		for j := 0; i < withOSDs && j < w.opts.OSDsPerNode; j++ {
			d := w.addOSD(n).workload()
			if w.deploy(d, n); w.cr != nil {
				w.adopt(d)
			}
		}
		if i >= firstMon && i < firstMon+len(Zones) {
			w.deploy(w.addMon(n).workload(), n)
		}
	}
	w.deploy(&workload{kind: "mgr", id: "a", replicas: 1}, w.nodes[w.names[len(w.names)-1]])
	w.settleCeph()
}

// deploy starts a workload, long ago.
func (w *World) deploy(d *workload, n *node) {
	d.label()
	d.namespace = w.key.Namespace
	d.generation, d.observed, d.image = 1, 1, FirstImage
	w.workloads = append(w.workloads, d)
	w.pods = append(w.pods, &pod{
		name: d.name() + "-1", of: d, node: n.name, bound: true, state: storage.PodReady,
		runs: true, began: true, revision: 1, has: d.image,
	})
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
	w.stepped = true
	w.story = append(w.story, fmt.Sprintf("%9.3fs  ", time.Since(w.started).Seconds())+fmt.Sprintf(format, args...))
}

// violate notes an invariant that does not hold, once: what lasts is checked again and again.
func (w *World) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	if w.violated[v] {
		return
	}
	w.violated[v] = true
	w.tell("VIOLATION %s", v)
	w.violations = append(w.violations, v)
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

// act is one step of the World. The invariants are checked after each.
func (w *World) act(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := do()
	if w.stepped {
		w.stepped = false
		w.checkTruth()
	}
	return err
}

// broadcast wakes who waits for any change.
func (w *World) broadcast() {
	w.stepped = true
	if w.awaited {
		close(w.changed)
		w.changed, w.awaited = make(chan struct{}), false
	}
}

// kubeChanged is for changes of nodes and pods.
func (w *World) kubeChanged() {
	w.stirred = time.Now()
	w.computeBudgets()
	w.tellWatcher()
}

// tellWatcher is broadcast for changes that a watcher of Kubernetes sees.
func (w *World) tellWatcher() {
	w.broadcast()
	if w.listener != nil {
		go w.listener()
	}
}

// later takes a step after a while, unless the World has ended.
func (w *World) later(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		if w.end.Err() == nil {
			_ = w.act(func() error { f(); return nil })
		}
	})
}

// await waits until cond holds and tells whether it does. cond runs under the World's lock.
func (w *World) await(ctx context.Context, cond func() bool) bool {
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.awaited = true
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

// request is one request of an adapter: it takes its time, may fail, and does what it is for in one step.
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
	if w.opts.Fail == nil {
		return w.act(do)
	}
	f := w.opts.Fail(ctx, op)
	switch {
	case f.Err != nil && !f.Done:
	case f.Err != nil && f.Late > 0:
		w.later(f.Late, func() {
			w.tell("late: %s", op)
			w.belated = true
			_ = do()
			w.belated = false
		})
	default:
		if err := w.act(do); err != nil {
			return err
		}
	}
	return f.Err
}

func now() metav1.Time { return metav1.NewTime(time.Now()) }
