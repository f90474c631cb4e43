package longhorn_test

import (
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// model is the slow and plain reading of the rules: no index, no greedy choice, every question answered by going
// through all replicas.
type model struct{ longhorn.World }

func (m model) find(name string) (longhorn.Node, bool) {
	for _, n := range m.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return longhorn.Node{}, false
}

func (m model) tainted(n longhorn.Node) bool {
	at, err := strconv.ParseInt(n.RemovalTaint, 10, 64)
	return n.HasRemovalTaint && (err != nil || m.Now.Sub(time.Unix(at, 0)) < m.TaintExpiry)
}

// removed: a taint is not to be known while Longhorn's setting is off, and a cordon is.
func (m model) removed(n longhorn.Node) bool {
	unknown := n.Cordoned && !m.Settings.ClusterAutoscaler
	return n.Deleting || !unknown && (n.Disrupted || m.tainted(n))
}

func (m model) leaving(n longhorn.Node) bool { return n.Cordoned || m.removed(n) }

// asked tells whether the node may be opened because it is leaving.
func (m model) asked(n longhorn.Node) bool {
	return n.Deleting || n.Cordoned && !m.removed(n) || m.removed(n) && m.Settings.ClusterAutoscaler
}

// living tells whether a volume could go on with the replica, and nobody has asked its node to leave, nor the replica
// if there is another one like it.
func (m model) living(r longhorn.Replica) bool {
	return m.alive(r) && (!r.Evicted || !m.lasts(r.Volume))
}

func (m model) lasts(volume string) bool {
	return slices.ContainsFunc(m.Replicas, func(r longhorn.Replica) bool {
		return r.Volume == volume && !r.Evicted && m.alive(r)
	})
}

func (m model) alive(r longhorn.Replica) bool {
	n, exists := m.find(r.Node)
	runs := slices.ContainsFunc(m.Managers, func(i longhorn.Manager) bool {
		return i.Node == r.Node && i.Kind != longhorn.Engine && i.State == "running"
	})
	return exists && n.Ready && !m.leaving(n) && runs && r.Healthy && !r.Failed
}

func data(r longhorn.Replica) bool { return r.Healthy || r.Failed }

// excused tells whether the policy says that a drain need not think of the replica.
func (m model) excused(r longhorn.Replica) bool {
	n, exists := m.find(r.Node)
	lost := n.Deleting || n.Disrupted || m.tainted(n) // with the node, whether Longhorn is to know of that or not
	return m.Settings.DrainPolicy == longhorn.AllowIfReplicaIsStopped && exists && n.Cordoned && !lost &&
		r.Desired == "stopped" && r.Current == "stopped"
}

func (m model) engineOn(node string) bool {
	return slices.ContainsFunc(m.Managers, func(i longhorn.Manager) bool { return i.Node == node && len(i.Engines) > 0 })
}

func (m model) attached(volume string) bool {
	return slices.ContainsFunc(m.Volumes, func(v longhorn.Volume) bool {
		return v.Name == volume && v.State != "detached"
	})
}

// mustStay tells whether a node stays whatever the others do.
func (m model) mustStay(n longhorn.Node) bool {
	policy := m.Settings.DrainPolicy
	if m.engineOn(n.Name) || m.removed(n) && m.Settings.ClusterAutoscaler && len(n.Helpers) > 0 {
		return true
	}
	if !m.Settings.ClusterAutoscaler && !m.asked(n) {
		return true
	}
	if policy == longhorn.AlwaysAllow {
		return false
	}
	for _, r := range m.Replicas {
		if r.Node != n.Name {
			continue
		}
		if policy == longhorn.BlockForEviction || m.becomesLast(r) ||
			data(r) && !m.excused(r) && !m.livesAnywhere(r.Volume) ||
			!m.leaving(n) && m.attached(r.Volume) && r.Current == "running" && !r.Failed {
			return true
		}
	}
	return false
}

// becomesLast tells whether a volume is about to live on the replica alone, which Longhorn still makes.
func (m model) becomesLast(r longhorn.Replica) bool {
	moves := !m.livesAnywhere(r.Volume) && slices.ContainsFunc(m.Replicas, func(o longhorn.Replica) bool {
		n, exists := m.find(o.Node)
		return o.Volume == r.Volume && data(o) && m.EvictOnRemoval && exists && m.removed(n) && m.asked(n)
	})
	evicted := slices.ContainsFunc(m.Replicas, func(o longhorn.Replica) bool {
		return o.Volume == r.Volume && o.Healthy && !o.Failed && o.Evicted
	})
	return !data(r) && (moves || evicted && !m.lasts(r.Volume))
}

func (m model) livesAnywhere(volume string) bool {
	return slices.ContainsFunc(m.Replicas, func(r longhorn.Replica) bool { return r.Volume == volume && m.living(r) })
}

// livesWithout tells whether a volume has a living replica outside of some nodes.
func (m model) livesWithout(volume string, away map[string]bool) bool {
	return slices.ContainsFunc(m.Replicas, func(r longhorn.Replica) bool {
		return r.Volume == volume && m.living(r) && !away[r.Node]
	})
}

// smallest is how many nodes have to be kept, besides those that must stay, so that each volume that lives has a living
// replica on one that is kept: every set of nodes is tried.
func (m model) smallest() int {
	if m.Settings.DrainPolicy == longhorn.AlwaysAllow {
		return 0
	}
	stay := map[string]bool{}
	for _, n := range m.Nodes {
		stay[n.Name] = m.mustStay(n)
	}
	best := len(m.Nodes)
	for set := range 1 << len(m.Nodes) {
		kept := map[string]bool{}
		for i, n := range m.Nodes {
			kept[n.Name] = stay[n.Name] || set&(1<<i) != 0
		}
		covers := true
		for _, r := range m.Replicas {
			if !data(r) || !m.livesAnywhere(r.Volume) {
				continue
			}
			covers = covers && slices.ContainsFunc(m.Replicas, func(k longhorn.Replica) bool {
				return k.Volume == r.Volume && m.living(k) && kept[k.Node]
			})
		}
		if covers {
			best = min(best, bits.OnesCount(uint(set)))
		}
	}
	return best
}

func (m model) share(a, b string) bool {
	for _, r := range m.Replicas {
		for _, q := range m.Replicas {
			if data(r) && data(q) && r.Volume == q.Volume && r.Node == a && q.Node == b {
				return true
			}
		}
	}
	return false
}

// check compares a decision with the rules. exact tells whether the cover must be as small as one can be.
func (m model) check(t require.TestingT, d longhorn.Decision, exact bool) {
	state := map[string]longhorn.State{}
	open, spare := open(d), spare(d)
	for _, n := range d.Nodes {
		state[n.Node] = n.State
		require.NotEmpty(t, n.Leaving == longhorn.Gone || n.Reason != "", "%s has no reason", n.Node)
	}
	covering := 0
	for _, n := range m.Nodes {
		must := m.mustStay(n)
		switch {
		case must:
			require.Equal(t, longhorn.Kept, state[n.Name], "%s must stay", n.Name)
		case !m.leaving(n) && state[n.Name] == longhorn.Kept:
			covering++
		case !m.leaving(n):
			require.Equal(t, longhorn.Spare, state[n.Name], "%s need not stay", n.Name)
		case m.asked(n) && state[n.Name] != longhorn.Open:
			require.True(t, slices.ContainsFunc(open, func(o string) bool { return m.share(o, n.Name) }),
				"%s could leave", n.Name)
		}
	}
	require.Len(t, d.Kept, covering)
	if exact {
		require.Equal(t, m.smallest(), covering, "nodes that are kept for others")
	}
	m.checkOpen(t, d, open, spare)
}

// checkOpen goes through everything that the budgets let happen without another decision.
func (m model) checkOpen(t require.TestingT, d longhorn.Decision, open, spare []string) {
	require.Equal(t, len(open) == 0 && !m.checkEvictions(t, d), d.OneMore)
	if m.Settings.DrainPolicy == longhorn.AlwaysAllow {
		return
	}
	for i, a := range open {
		for _, b := range open[:i] {
			require.False(t, m.share(a, b), "%s and %s share a volume", a, b)
		}
	}
	m.survives(t, open)
	if d.OneMore {
		for _, s := range spare {
			m.survives(t, []string{s})
		}
	}
}

// checkEvictions: who is leaving gets no more replicas, and only who is removed loses those that it has. moves: some
// do.
func (m model) checkEvictions(t require.TestingT, d longhorn.Decision) (moves bool) {
	for _, v := range d.Nodes {
		n, exists := m.find(v.Node)
		told := exists && m.EvictOnRemoval && m.asked(n)
		require.Equal(t, told, v.Evict != longhorn.NotEvicted, v.Node)
		goes := slices.ContainsFunc(m.Replicas, func(r longhorn.Replica) bool { return r.Node == n.Name && r.Evicted })
		keeps := v.Reason == longhorn.Evicting
		require.Equal(t, told && m.removed(n) && (goes || keeps), v.Evict == longhorn.Evicted, v.Node)
		require.False(t, told && m.removed(n) && v.Reason == longhorn.LastReplica, v.Node)
		moves = moves || v.Evict == longhorn.Evicted
	}
	return moves
}

// survives tells whether each volume that matters has a living replica when some nodes are away.
func (m model) survives(t require.TestingT, away []string) {
	gone := map[string]bool{}
	for _, n := range away {
		gone[n] = true
	}
	for _, r := range m.Replicas {
		if gone[r.Node] && data(r) && !m.excused(r) {
			require.True(t, m.livesWithout(r.Volume, gone), "volume %s without %v", r.Volume, away)
		}
	}
	for _, n := range away {
		require.False(t, m.engineOn(n), "engine on %s", n)
	}
}

// TestEveryWorldOfOneVolume goes through all worlds of three nodes and one volume.
func TestEveryWorldOfOneVolume(t *testing.T) {
	every(t, 1, []int{5, 5, 5}, 4, 7)
}

// TestEveryWorldOfTwoVolumes goes through all worlds of three nodes and two detached volumes.
func TestEveryWorldOfTwoVolumes(t *testing.T) {
	every(t, 2, []int{4, 4, 4}, 1, 3)
}

// every goes through all worlds: the ways in which each node can be, the places of an engine, and of each replica.
func every(t *testing.T, volumes int, nodeKinds []int, engines, replicaKinds int) {
	t.Helper()
	choices := slices.Clone(nodeKinds)
	for range volumes * len(nodeKinds) {
		choices = append(choices, replicaKinds)
	}
	choices = append(choices, engines, len(longhorn.DrainPolicies), 2)
	total := 1
	for _, c := range choices {
		total *= c
	}
	step := 17 // prime to all choices, so that each of them is met with each other
	if os.Getenv("TEST_ALL") != "" {
		step = 1
	}
	for number := 0; number < total; number += step {
		w, rest := build(number, choices, len(nodeKinds), volumes)
		if rest != 0 {
			t.Fatal("a world has no number")
		}
		d := longhorn.Decide(w.World)
		failed := &failure{}
		model{w.World}.check(failed, d, true)
		if failed.said != "" {
			t.Fatalf("world %d of %d: %s\n%+v\n%+v", number, total, failed.said, w.World, d)
		}
	}
}

// failure keeps the first complaint: formatting one for each of a million worlds would take longer than they do.
type failure struct{ said string }

func (f *failure) Errorf(format string, args ...any) {
	if f.said == "" {
		f.said = fmt.Sprintf(format, args...)
	}
}
func (f *failure) FailNow() {}

func build(number int, choices []int, nodes, volumes int) (*world, int) {
	next := func() int {
		c := number % choices[0]
		number /= choices[0]
		choices = choices[1:]
		return c
	}
	names := []string{"a", "b", "c"}[:nodes]
	w := newWorld(names...)
	for _, n := range names {
		setNode(w, n, next())
	}
	for v := range volumes {
		volume := fmt.Sprintf("v%d", v)
		w.Volumes = append(w.Volumes, longhorn.Volume{Name: volume, State: longhorn.Detached})
		for _, n := range names {
			addReplica(w, volume, n, next())
		}
	}
	if engine := next(); engine > 0 {
		w.attach("v0", names[engine-1])
	}
	w.Settings.DrainPolicy = longhorn.DrainPolicies[next()]
	w.Settings.ClusterAutoscaler = next() == 1
	return w, number
}

func setNode(w *world, name string, kind int) {
	switch kind {
	case 1:
		w.cordon(name)
	case 2:
		w.taint(name)
	case 3:
		w.node(name).Ready = false
	case 4:
		w.manager(name).State = "error"
	}
}

func addReplica(w *world, volume, node string, kind int) {
	if kind == 0 {
		return
	}
	w.Replicas = append(w.Replicas, longhorn.Replica{
		Name: volume + "-" + node, Volume: volume, Node: node, Healthy: kind == 1 || kind == 4 || kind == 5,
		Failed: kind == 2, Evicted: kind == 5, Desired: longhorn.Stopped,
		Current: map[bool]string{true: longhorn.Running, false: longhorn.Stopped}[kind == 4 || kind == 6],
	})
}

// drawn is a random world that need not be small.
func drawn(t *rapid.T) *world {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}[:rapid.IntRange(1, 7).Draw(t, "nodes")]
	w := newWorld(names...)
	for _, n := range names {
		setNode(w, n, rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3, 4}).Draw(t, "node"))
		w.node(n).Cordoned = w.node(n).Cordoned || rapid.IntRange(0, 9).Draw(t, "cordoned") == 0
		w.node(n).Disrupted = rapid.IntRange(0, 9).Draw(t, "disrupted") == 0
		w.node(n).Deleting = rapid.IntRange(0, 9).Draw(t, "deleting") == 0
		if rapid.IntRange(0, 9).Draw(t, "helper") == 0 {
			w.node(n).Helpers = []string{"share-manager-x"}
		}
	}
	for v := range rapid.IntRange(0, 6).Draw(t, "volumes") {
		volume := fmt.Sprintf("v%d", v)
		w.Volumes = append(w.Volumes, longhorn.Volume{Name: volume, State: longhorn.Detached})
		for _, n := range append(slices.Clone(names), "gone") {
			addReplica(w, volume, n, rapid.SampledFrom([]int{0, 0, 1, 1, 1, 2, 3, 4, 5, 6}).Draw(t, "replica"))
		}
		if rapid.IntRange(0, 4).Draw(t, "attach") == 0 {
			w.attach(volume, rapid.SampledFrom(names).Draw(t, "to"))
		}
	}
	w.Settings.DrainPolicy = rapid.SampledFrom(longhorn.DrainPolicies).Draw(t, "policy")
	w.Settings.ClusterAutoscaler = rapid.IntRange(0, 3).Draw(t, "autoscaler") > 0
	w.Kept = rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "kept")
	w.Going = rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "going")
	return w
}

// TestRules: whatever the world is, the rules hold, the order in which it was read does not matter, and a decision
// about the same world stays the same.
func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawn(t)
		d := longhorn.Decide(w.World)
		model{w.World}.check(t, d, false)
		shuffled := w.World
		shuffled.Nodes = rapid.Permutation(w.Nodes).Draw(t, "nodes")
		shuffled.Managers = rapid.Permutation(w.Managers).Draw(t, "managers")
		shuffled.Replicas = rapid.Permutation(w.Replicas).Draw(t, "replicas")
		require.Equal(t, d, longhorn.Decide(shuffled))
		again := w.World
		again.Kept = d.Kept
		again.Going = nil
		for _, n := range d.Nodes {
			if n.State == longhorn.Open {
				again.Going = append(again.Going, n.Node)
			}
		}
		after := longhorn.Decide(again)
		require.Equal(t, d.Kept, after.Kept)
		for i, n := range d.Nodes {
			require.Equal(t, n.State, after.Nodes[i].State, n.Node)
		}
	})
}

// TestSticky: a node that is kept stays so when volumes come to it that need it, or go that did not.
func TestSticky(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawn(t)
		before := longhorn.Decide(w.World)
		w.Kept = before.Kept
		if len(before.Kept) == 0 {
			return
		}
		node := rapid.SampledFrom(before.Kept).Draw(t, "node")
		w.volume("new", node)
		after := longhorn.Decide(w.World)
		require.LessOrEqual(t, len(after.Kept), max(len(before.Kept), len(longhorn.Decide(w.World).Kept)))
		require.Equal(t, longhorn.Kept, nodeIn(after, node).State)
	})
}

// serves tells whether a volume has a healthy replica that could be used now, on a node that is leaving or not: what
// keeps that node is its budget.
func (w *world) serves(volume string) bool {
	return slices.ContainsFunc(w.Replicas, func(r longhorn.Replica) bool {
		n, exists := model{w.World}.find(r.Node)
		return r.Volume == volume && r.Healthy && !r.Failed && exists && n.Ready &&
			w.manager(r.Node).State == longhorn.Running
	})
}

// TestNothingIsEverLost lets nodes be tainted and go in any order. Between two decisions whatever the last one allows
// may happen, and nothing else is known of lockkeeper: its budgets alone keep the data. Meanwhile replicas become
// whole, and those that are evicted are deleted at once.
func TestNothingIsEverLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawn(t)
		w.Settings.DrainPolicy = longhorn.BlockIfContainsLastReplica
		p := begin(w)
		t.Repeat(map[string]func(*rapid.T){
			"decide": p.decide, "evict and remove": p.removes, "rebuild": p.rebuilds, "taint": p.taints,
		})
	})
}

// TestNothingIsLostThatIsMoved has Longhorn do what it is told about the replicas of nodes that are removed: at any
// time after the decision, and also while lockkeeper has not seen yet where it makes new ones.
func TestNothingIsLostThatIsMoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawn(t)
		w.Settings.DrainPolicy = rapid.SampledFrom([]longhorn.DrainPolicy{
			longhorn.BlockIfContainsLastReplica, longhorn.BlockForEviction,
		}).Draw(t, "drain policy")
		w.EvictOnRemoval = true
		for i := range w.Replicas {
			w.Replicas[i].Evicted = false
		}
		p := begin(w)
		t.Repeat(map[string]func(*rapid.T){
			"decide": p.decide, "evict and remove": p.removes, "rebuild": p.rebuilds, "taint": p.taints,
			"is told": p.isTold, "makes another one": p.makes, "deletes one too many": p.deletes,
		})
	})
}

// played is a world in which things happen.
type played struct {
	*world
	d      longhorn.Decision
	more   bool                         // one that is spare may still go
	told   map[string]longhorn.Eviction // what Longhorn knows of the nodes
	copies map[string]int               // that a volume should have
}

func begin(w *world) *played {
	p := &played{world: w, d: longhorn.Decide(w.World), told: map[string]longhorn.Eviction{}, copies: map[string]int{}}
	p.more = p.d.OneMore
	for _, r := range w.Replicas {
		if !r.Failed {
			p.copies[r.Volume]++
		}
	}
	return p
}

func (p *played) decide(t *rapid.T) {
	p.Kept, p.Going = p.d.Kept, nil
	p.d = longhorn.Decide(p.World)
	p.more = p.d.OneMore
	model{p.World}.check(t, p.d, false)
}

func (p *played) removes(t *rapid.T) {
	if len(p.Nodes) == 0 {
		return
	}
	name := rapid.SampledFrom(p.Nodes).Draw(t, "node").Name
	switch state := nodeIn(p.d, name).State; {
	case state == longhorn.Open:
	case state == longhorn.Spare && p.more:
		p.more = false
	default:
		return
	}
	var lived []string
	for _, v := range p.Volumes {
		if p.serves(v.Name) {
			lived = append(lived, v.Name)
		}
	}
	p.Nodes = slices.DeleteFunc(slices.Clone(p.Nodes), func(n longhorn.Node) bool { return n.Name == name })
	p.Managers = slices.DeleteFunc(slices.Clone(p.Managers), func(m longhorn.Manager) bool { return m.Node == name })
	for _, v := range lived {
		require.True(t, p.serves(v), "volume %s went with %s", v, name)
	}
}

func (p *played) rebuilds(t *rapid.T) {
	if len(p.Replicas) == 0 {
		return
	}
	r := &p.Replicas[rapid.IntRange(0, len(p.Replicas)-1).Draw(t, "replica")]
	n, exists := model{p.World}.find(r.Node)
	if !exists || !n.Ready || p.manager(r.Node).State != longhorn.Running || !p.serves(r.Volume) || data(*r) {
		return
	}
	r.Healthy, r.Current = true, longhorn.Running
	volume := r.Volume
	p.Replicas = slices.DeleteFunc(slices.Clone(p.Replicas), func(r longhorn.Replica) bool {
		return r.Volume == volume && r.Evicted
	})
}

func (p *played) taints(t *rapid.T) {
	if len(p.Nodes) > 0 {
		p.taint(rapid.SampledFrom(p.Nodes).Draw(t, "node").Name)
	}
}

// isTold: Longhorn hears of what was decided of a node, and asks its replicas to go, or not any more.
func (p *played) isTold(t *rapid.T) {
	if len(p.Nodes) == 0 {
		return
	}
	name := rapid.SampledFrom(p.Nodes).Draw(t, "node").Name
	for _, n := range p.d.Nodes { // all that are to get no more replicas are told so before one is evicted
		if n.Evict != longhorn.NotEvicted && p.told[n.Node] == longhorn.NotEvicted {
			p.told[n.Node] = longhorn.Closed
		}
	}
	p.told[name] = nodeIn(p.d, name).Evict
	for i := range p.Replicas {
		if p.Replicas[i].Node == name {
			p.Replicas[i].Evicted = p.told[name] == longhorn.Evicted
		}
	}
}

// makes: Longhorn begins to make another replica of a volume that has too few but for those that are evicted.
func (p *played) makes(t *rapid.T) {
	if len(p.Nodes) == 0 || len(p.Volumes) == 0 {
		return
	}
	n := rapid.SampledFrom(p.Nodes).Draw(t, "node")
	v := rapid.SampledFrom(p.Volumes).Draw(t, "volume").Name
	stay, here := 0, false
	for _, r := range p.Replicas {
		here = here || r.Volume == v && r.Node == n.Name
		if r.Volume == v && !r.Evicted && !r.Failed {
			stay++
		}
	}
	if !here && stay < p.copies[v] && n.Ready && !n.Cordoned && p.told[n.Name] == longhorn.NotEvicted && p.serves(v) {
		p.Replicas = append(slices.Clone(p.Replicas), longhorn.Replica{
			Name: v + "-" + n.Name, Volume: v, Node: n.Name, Desired: longhorn.Running, Current: longhorn.Stopped,
		})
	}
}

// deletes: Longhorn deletes a copy of a volume that has too many, if none is evicted: then it deletes that.
func (p *played) deletes(t *rapid.T) {
	if len(p.Replicas) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.Replicas)-1).Draw(t, "replica")
	whole, evicted := 0, false
	for _, r := range p.Replicas {
		if r.Volume == p.Replicas[i].Volume && r.Healthy && !r.Failed {
			whole, evicted = whole+1, evicted || r.Evicted
		}
	}
	if whole > p.copies[p.Replicas[i].Volume] && !evicted {
		p.Replicas = slices.Delete(slices.Clone(p.Replicas), i, i+1)
	}
}
