package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// toyStore is storage of another kind than Ceph, and its Kubernetes, in memory: one daemon on each node, and volumes
// with copies on nodes. A node that is cordoned and has lost its pod reboots; its pod comes back when it is uncordoned,
// and its copies are whole a while later.
type toyStore struct {
	scene      context.Context
	mu         sync.Mutex
	changed    chan struct{}
	version    int
	volumes    map[string][]string // the nodes with a copy of each
	nodes      map[string]*toyNode
	memory     []byte // the policy's
	mayDrain   string
	specs      budget.Specs
	generation int64
	away       int      // nodes without a pod at once, at most
	bad        []string // what must never happen
	silent     bool     // the store answers nobody
	detaches   bool     // the policy has what was attached by hand be detached
	mayNot     string   // why that is refused
	kind       storage.Kind
}

type toyNode struct {
	cordoned, pod bool
	byHand        []string      // what somebody attached to it
	signs         leaving.Signs // beside the cordon
	incarnation   int           // rises when the node is registered again
	boot          int
	serves        time.Time // since when; its copies are whole soon after
}

// How long things take.
const (
	toyReboots  = 5 * time.Second
	toyRebuilds = 7 * time.Second
)

const toyID = "a store of the tests"

func newToy(volumes map[string][]string) *toyStore {
	t := &toyStore{
		volumes: volumes, nodes: map[string]*toyNode{}, changed: make(chan struct{}), memory: []byte("{}"),
		kind: workflows.ToyKind,
	}
	t.specs.Daemons.MinAvailable = budget.Everything
	for _, copies := range volumes {
		for _, node := range copies {
			t.nodes[node] = &toyNode{pod: true}
		}
	}
	return t
}

// happens is one change of the world.
func (t *toyStore) happens(what func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	what()
	t.version++
	close(t.changed)
	t.changed = make(chan struct{})
}

// await waits until something is so, and looks again at every change and now and then.
func (t *toyStore) await(ctx context.Context, is func() bool) error {
	for {
		t.mu.Lock()
		ok, changed := is(), t.changed
		t.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *toyStore) whole(node string) bool {
	n := t.nodes[node]
	return n != nil && n.pod && time.Since(n.serves) >= toyRebuilds
}

// summary is what a look sees in the words of the kind.
func (t *toyStore) summary() workflows.ToySummary {
	out := workflows.ToySummary{}
	for node := range t.nodes {
		n := workflows.ToyNode{Whole: t.whole(node)}
		for _, v := range slices.Sorted(maps.Keys(t.volumes)) {
			if slices.Contains(t.volumes[v], node) {
				n.Volumes = append(n.Volumes, v)
			}
		}
		out[node] = n
	}
	return out
}

// fingerprint changes with everything that a decision depends on, also with what time alone changes.
func (t *toyStore) fingerprint() string {
	text, _ := json.Marshal(t.summary())
	return fmt.Sprint(t.silent, t.kind, string(text))
}

// Observe implements activities.StorageCluster.
func (t *toyStore) Observe(context.Context, activities.Look) (activities.Seen, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := storage.View{At: time.Now(), FailureDomainType: "node", Daemons: len(t.nodes)}
	if t.silent {
		return activities.Seen{View: storage.View{Unavailable: "the store is silent"}}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := storage.Node{Name: name, Domain: name, Cordoned: t.nodes[name].cordoned, Daemons: []string{"toy." + name}}
		if !t.nodes[name].pod {
			n.Down = n.Daemons
		}
		v.Nodes = append(v.Nodes, n)
	}
	own, err := json.Marshal(t.summary())
	return activities.Seen{View: v, ID: toyID, Kind: t.kind, Own: own}, err
}

// Watch implements activities.StorageCluster.
func (t *toyStore) Watch(
	ctx context.Context, in activities.Watching, beat func(activities.Watched),
) (w activities.Watched, err error) {
	err = t.await(ctx, func() bool {
		beat(in.Last)
		w.Fingerprint = t.fingerprint()
		return w.Fingerprint != in.Last.Fingerprint
	})
	return w, err
}

var errNotAToys = errors.New("nobody may ask a toy for this")

// Mark implements activities.StorageCluster.
func (t *toyStore) Mark(context.Context, activities.Marking, func(activities.Marked)) (m activities.Marked, err error) {
	return m, errNotAToys
}

// Unmark implements activities.StorageCluster.
func (t *toyStore) Unmark(
	context.Context, activities.Unmarking, func(activities.Marked),
) (m activities.Marked, err error) {
	return m, errNotAToys
}

// Life implements activities.StorageCluster.
func (t *toyStore) Life(context.Context, activities.Asking, func()) (l storage.Life, err error) {
	return l, errNotAToys
}

// SetFlag implements activities.StorageCluster.
func (t *toyStore) SetFlag(context.Context, ...string) ([]activities.FlagRefusal, error) {
	return nil, errNotAToys
}

// UnsetFlag implements activities.StorageCluster.
func (t *toyStore) UnsetFlag(context.Context, ...storage.Host) ([]activities.FlagRefusal, error) {
	return nil, errNotAToys
}

// DetachByHand implements activities.Detacher.
func (t *toyStore) DetachByHand(_ context.Context, node string) (names []string, a storage.Answer, err error) {
	t.happens(func() {
		if a.Reason = t.mayNot; a.Reason == "" {
			names, t.nodes[node].byHand = t.nodes[node].byHand, nil
		}
	})
	return names, a, nil
}

// StorageCluster implements activities.StorageClusters.
func (t *toyStore) StorageCluster(context.Context, storage.ClusterKey) (activities.StorageCluster, error) {
	return t, nil
}

// StorageClusterOf implements activities.StorageClusters.
func (t *toyStore) StorageClusterOf(context.Context, activities.Policy) (activities.StorageCluster, error) {
	return t, nil
}

// Policy implements activities.Policies.
func (t *toyStore) Policy(_ context.Context, key storage.ClusterKey) (p activities.Policy, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p = activities.Policy{Key: key, Generation: 1}
	p.Settings = storage.Settings{ManagePodBudgets: true, MaintenanceTimeout: time.Hour, DetachOnCordon: t.detaches}
	err = json.Unmarshal(t.memory, &p.Memory)
	p.Listed = []precedence.Policy{{Key: key, Claim: p.Memory.Claim}}
	return p, err
}

// ReportStatus implements activities.Policies.
func (t *toyStore) ReportStatus(_ context.Context, _ storage.ClusterKey, r activities.Report) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memory, err = json.Marshal(r.Memory)
	t.mayDrain = r.MayDrain
	return err
}

// HostedByPods implements activities.Policies.
func (t *toyStore) HostedByPods(context.Context, activities.Policy) (map[string]fencing.Hosted, error) {
	return nil, nil
}

// RenewStatus implements activities.Policies.
func (t *toyStore) RenewStatus(context.Context, storage.ClusterKey, activities.Renewal) (bool, error) {
	return false, nil
}

// Guard implements activities.Policies.
func (t *toyStore) Guard(context.Context, storage.ClusterKey, bool) error { return nil }

// Ending implements activities.Policies.
func (t *toyStore) Ending(context.Context, storage.ClusterKey) (budget.Ending, error) {
	return budget.Ending{}, nil
}

// TellOfNamespace implements activities.Policies.
func (t *toyStore) TellOfNamespace(context.Context, storage.ClusterKey, activities.Event) error {
	return nil
}

func (t *toyStore) book() budget.Book {
	return budget.Book{budget.Unmarked: {UID: "budget", Generation: t.generation, Alarm: budget.NoAlarm}}
}

// ReadBudgets implements activities.Budgets.
func (t *toyStore) ReadBudgets(context.Context, storage.ClusterKey) (budget.Book, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.book(), false, nil
}

// TakeBackOverrides implements activities.Budgets.
func (*toyStore) TakeBackOverrides(context.Context, storage.ClusterKey, []storage.Override) error {
	return nil
}

// ApplyBudgets implements activities.Budgets.
func (t *toyStore) ApplyBudgets(_ context.Context, in activities.BudgetInput) (r activities.BudgetResult, err error) {
	t.happens(func() {
		if in.LetsGo() && !in.Before.Same(t.book()) {
			r.Moved = "the budget has changed"
			return
		}
		t.specs, r.Changed = in.Specs, true
		t.generation++
		r.Book = t.book()
	})
	return r, nil
}

// RaiseAlarm implements activities.Budgets.
func (t *toyStore) RaiseAlarm(context.Context, storage.ClusterKey, string) error {
	t.happens(func() {
		t.specs = budget.Specs{Daemons: budget.Spec{MinAvailable: budget.Everything}}
		t.generation++
	})
	return nil
}

// ApplyStaticBudgets implements activities.Budgets.
func (t *toyStore) ApplyStaticBudgets(
	context.Context, activities.StaticBudgetsInput,
) (activities.StaticBudgetsResult, error) {
	return activities.StaticBudgetsResult{}, nil
}

// Relocate implements activities.Budgets.
func (t *toyStore) Relocate(context.Context, activities.RelocateInput) (activities.RelocateResult, error) {
	return activities.RelocateResult{}, nil
}

// RemoveBudgets implements activities.Budgets.
func (t *toyStore) RemoveBudgets(context.Context, storage.ClusterKey, func(int), func() error) error {
	return nil
}

func (t *toyStore) state(name string) activities.NodeState {
	n := t.nodes[name]
	if n == nil {
		return activities.NodeState{}
	}
	n.signs.Cordoned = n.cordoned
	return activities.NodeState{
		Found: true, Ready: true, Cordoned: n.cordoned, UID: fmt.Sprint("uid-", name, "-", n.incarnation),
		BootID: fmt.Sprint("boot ", n.boot), Tainted: n.signs.Key(time.Now(), 0), Leaving: n.signs,
	}
}

// Node implements activities.Nodes.
func (t *toyStore) Node(_ context.Context, name string) (activities.NodeState, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state(name), nil
}

// AwaitNode implements activities.Nodes.
func (t *toyStore) AwaitNode(
	ctx context.Context, name string, until func(activities.NodeState) bool,
) (now activities.NodeState, err error) {
	err = t.await(ctx, func() bool { now = t.state(name); return until(now) })
	return now, err
}

// Cordon implements activities.Nodes.
func (t *toyStore) Cordon(_ context.Context, name, _ string, on bool) (bool, error) {
	t.happens(func() {
		n := t.nodes[name]
		if n.cordoned = on; !on && !n.pod {
			n.pod, n.serves = true, time.Now()
		}
	})
	return true, nil
}

// EvictOnce implements activities.Nodes.
func (t *toyStore) EvictOnce(_ context.Context, in activities.Eviction) (p activities.EvictionProgress, err error) {
	t.happens(func() {
		n := t.nodes[in.Node]
		if p.Total = 1; !n.pod {
			return
		}
		if !slices.Contains(t.specs.Daemons.Except, in.Node) {
			p.Remaining, p.Blocked = 1, []string{"toy-" + in.Node}
			return
		}
		t.goes(in.Node)
		time.AfterFunc(toyReboots, func() { t.happens(func() { n.boot++ }) })
	})
	return p, nil
}

// goes is the end of the pod of a node.
func (t *toyStore) goes(node string) {
	t.judge(node)
	t.nodes[node].pod = false
	gone := 0
	for _, x := range t.nodes {
		if !x.pod {
			gone++
		}
	}
	t.away = max(t.away, gone)
}

// judge tells whether the pod of a node may go: every volume has another whole copy.
func (t *toyStore) judge(node string) {
	for v, copies := range t.volumes {
		other := slices.ContainsFunc(copies, func(x string) bool { return x != node && t.whole(x) })
		if slices.Contains(copies, node) && !other {
			t.bad = append(t.bad, fmt.Sprintf("I6: the last whole copy of %s goes with %s", v, node))
		}
	}
}

// PodsGone implements activities.Nodes.
func (t *toyStore) PodsGone(context.Context, string) (<-chan struct{}, error) {
	return nil, errNotAToys
}

// PoliciesOf implements activities.Nodes.
func (t *toyStore) PoliciesOf(context.Context, string) ([]storage.ClusterKey, storage.Answer, error) {
	return []storage.ClusterKey{sim.Key}, storage.Answer{OK: true}, nil
}

// FencingPolicies implements activities.Nodes.
func (t *toyStore) FencingPolicies(context.Context) ([]storage.ClusterKey, error) { return nil, nil }
