// Package longhorn simulates one Longhorn installation and what Kubernetes has of it: nodes, instance managers and
// their pods, volumes with replicas and engines, workloads, budgets, the eviction API, the disruption controller, the
// admission policy that empties Longhorn's budgets, autoscalers and people. In front of it are lockkeeper's own
// adapters, so that what fails, is repeated or gets no answer is a single request.
//
// What must never be is judged when it happens, from what the World itself knows (judge.go). Bad luck may strike
// anywhere; lockkeeper is judged by what it could have known.
package longhorn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// Key names the policy.
var Key = storage.ClusterKey{Namespace: "longhorn-system", Name: "longhorn"}

// apps is the namespace of the workloads.
const apps = "apps"

// Failure is what becomes of a request. The zero Failure is success.
type Failure struct {
	Err error // what the client gets
	// Done: the request is carried out all the same; after Late, when the client has long given up.
	Done bool
	Late time.Duration
}

// Options of a World. Functions that are nil do nothing.
type Options struct {
	Nodes int
	// Volumes are how many replicas each volume has that is there from the beginning.
	Volumes []int
	// Moves is evictOnRemoval of the policy.
	Moves bool
	// ByWorker: the API server empties no budgets, and the policy says that lockkeeper does.
	ByWorker bool
	// Turn and TaintExpiry are turnTimeout and removalTaintExpiry of the policy.
	Turn, TaintExpiry time.Duration
	// Reaction is how long lockkeeper may take to answer to what nobody announced.
	Reaction time.Duration
	// Draw draws a number below n.
	Draw func(n int) int
	// Latency is how long a request of lockkeeper takes.
	Latency func() time.Duration
	// Fail is asked before each request of lockkeeper. change: it changes something.
	Fail func(change bool) Failure
	// May stops whoever must not do anything any more.
	May  func(ctx context.Context) error
	Tell func(format string, args ...any)
}

// World is the installation and its Kubernetes. All methods may be called at any time from any goroutine of the bubble.
type World struct {
	opts    Options
	started time.Time
	end     context.Context //nolint:containedctx // the World's own life
	close   context.CancelFunc

	mu       sync.Mutex
	changed  chan struct{} // closed at every change
	stirred  kinds         // what has changed since everybody was told
	version  int
	nodes    map[string]*corev1.Node
	machines map[string]*machine
	pods     map[string]*corev1.Pod // by namespace/name
	budgets  map[string]*policyv1.PodDisruptionBudget
	covering map[string]labels.Selector // of budgets, by name
	policy   *v1alpha1.MaintenancePolicy
	settings map[string]string
	// oneWriter: the admission policy is installed. full are Longhorn's budgets that were made while it was not.
	oneWriter bool
	full      map[string]bool
	computing bool // the disruption controller is about to
	selectors kubeapi.Selectors

	installation
	informers []*informer
	listener  func()
	judge
}

// kinds are those of objects of which some have changed.
type kinds map[string]bool

// machine is what runs behind a Node.
type machine struct {
	lost    bool // it has no power
	boot    int
	removed bool // for good
}

// New makes a World in which all is well: Longhorn has been running for long, and the policy was just created.
func New(opts Options) *World {
	w := &World{
		opts: opts, started: time.Now(), changed: make(chan struct{}), stirred: kinds{}, nodes: map[string]*corev1.Node{},
		machines: map[string]*machine{}, pods: map[string]*corev1.Pod{},
		budgets: map[string]*policyv1.PodDisruptionBudget{}, covering: map[string]labels.Selector{},
		settings: map[string]string{
			settingVersion: "v1.10.0", settingAutoscaler: "true", settingDrainPolicy: string(defaultDrainPolicy),
		},
		full: map[string]bool{}, selectors: kubeapi.Selectors{}, installation: newInstallation(), judge: newJudge(),
	}
	w.end, w.close = context.WithCancel(context.Background())
	w.policy = &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: Key.Name, Generation: 1, UID: "policy"},
		Spec: v1alpha1.MaintenancePolicySpec{Longhorn: &v1alpha1.LonghornSpec{
			EvictOnRemoval:     opts.Moves,
			BudgetsEmptiedBy:   map[bool]string{true: v1alpha1.EmptiedByWorker}[opts.ByWorker],
			TurnTimeout:        &metav1.Duration{Duration: opts.Turn},
			RemovalTaintExpiry: &metav1.Duration{Duration: opts.TaintExpiry},
		}},
	}
	w.stamp(w.policy)
	for i := range opts.Nodes {
		w.addNode(nodeName(i))
		w.addManager(nodeName(i))
	}
	for _, m := range w.managers { // long ago
		w.createManagerPod(m)
		w.setReady(w.pods[podKey(Key.Namespace, m.name)], true)
		m.state = running
	}
	for i, copies := range opts.Volumes {
		w.addVolume(copies)
		for k := range copies {
			r := w.addReplica(w.volumes[volumeName(i)], nodeName((i+k)%opts.Nodes))
			r.healthy, r.since = true, time.Time{}
		}
	}
	w.passBudgets() // full ones, of before
	for _, name := range sorted(w.budgets) {
		w.compute(w.budgets[name])
	}
	w.oneWriter = !opts.ByWorker
	go w.tick()
	return w
}

func nodeName(i int) string { return "node-" + string(rune('a'+i)) }

func volumeName(i int) string { return fmt.Sprintf("v%d", i+1) }

func podKey(namespace, name string) string { return namespace + "/" + name }

func (w *World) addNode(name string) *corev1.Node {
	m := w.machines[name]
	if m == nil {
		m = &machine{}
		w.machines[name] = m
	}
	m.lost = false
	m.boot++
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: fmt.Sprint("boot-", m.boot)},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	w.nodes[name] = n
	w.stamp(n)
	w.stir("Node")
	return n
}

// Close ends the World: whoever waits for something in it gets an error.
func (w *World) Close() { w.close() }

func (w *World) tell(format string, args ...any) {
	if w.opts.Tell != nil {
		w.opts.Tell(format, args...)
	}
}

// stamp gives an object what the API server gives it.
func (w *World) stamp(o metav1.Object) {
	w.version++
	o.SetResourceVersion(fmt.Sprint(w.version))
	if o.GetUID() == "" {
		o.SetUID(uid(o.GetName(), w.version))
		o.SetCreationTimestamp(metav1.Now())
	}
}

// stir notes that objects of a kind have changed.
func (w *World) stir(kind string) { w.stirred[kind] = true }

// act is one step of the World. What must never be is checked after each, and then everybody hears of it.
func (w *World) act(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := do()
	if len(w.stirred) == 0 {
		return err
	}
	w.judgeBudgets()
	close(w.changed)
	w.changed = make(chan struct{})
	if w.stirred["Pod"] || w.stirred["Node"] {
		w.computeBudgets()
	}
	for _, i := range w.informers {
		if w.stirred[i.kind] {
			i.changed(w)
		}
	}
	if w.listener != nil && (w.stirred["Pod"] || w.stirred["Node"] || w.stirred["Budget"] || w.stirred["Policy"]) {
		w.listener()
	}
	w.stirred = kinds{}
	return err
}

// happens is a step that cannot fail.
func (w *World) happens(do func()) { _ = w.act(func() error { do(); return nil }) }

// later takes a step after a while, unless the World has ended.
func (w *World) later(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		if w.end.Err() == nil {
			w.happens(f)
		}
	})
}

// await waits until cond holds and tells whether it does. cond runs under the World's lock.
func (w *World) await(ctx context.Context, cond func() bool) bool {
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

// pause waits, and tells whether the World is still there.
func (w *World) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.end.Done():
		return false
	}
}

// between draws a duration.
func (w *World) between(least, most time.Duration) time.Duration {
	const parts = 64
	n := parts / 2
	if w.opts.Draw != nil {
		n = w.opts.Draw(parts + 1)
	}
	return least + (most-least)*time.Duration(n)/parts
}

func (w *World) draw(n int) int {
	if w.opts.Draw == nil {
		return 0
	}
	return w.opts.Draw(n)
}

var errEnded = errors.New("the world has ended")

// request is one request of lockkeeper: it takes its time, may fail, and does what it is for in one step.
func (w *World) request(ctx context.Context, op string, change bool, do func() error) error {
	if w.opts.May != nil {
		if err := w.opts.May(ctx); err != nil {
			return err
		}
	}
	if w.opts.Latency != nil {
		select {
		case <-time.After(w.opts.Latency()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if w.end.Err() != nil {
		return errEnded
	}
	var f Failure
	if w.opts.Fail != nil {
		f = w.opts.Fail(change)
	}
	switch {
	case f.Err != nil && !f.Done:
	case f.Err != nil && f.Late > 0:
		w.later(f.Late, func() {
			w.tell("late: %s", op)
			_ = do()
		})
	default:
		if err := w.act(do); err != nil {
			return err
		}
	}
	return f.Err
}

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
