package fencing_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// TestModel lets nodes and OSDs fail and come back in any order, while drains hold leases and Ceph falls silent, and
// asks after each step what may be released. What must never be is written down without the judge's own words.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, world: newWorld(), lost: map[string]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"node dies":      m.nodeDies,
			"mon dies":       func(t *rapid.T) { m.mons[rapid.IntRange(0, 2).Draw(t, "mon")].InQuorum = false },
			"OSD dies":       func(t *rapid.T) { m.fail(m.node(t, nodes[:6]), rapid.SampledFrom(m.osds).Draw(t, "OSD").name) },
			"node returns":   m.nodeReturns,
			"data is whole":  func(*rapid.T) { m.clean = !slices.ContainsFunc(m.osds, func(o osd) bool { return !o.up }) },
			"data healed":    func(*rapid.T) { m.clean = true }, // without those that are down
			"drain begins":   func(t *rapid.T) { m.grant(t, "drain/"+m.node(t, nodes[:6])) },
			"job is granted": m.jobGranted, "and again": m.jobGranted,
			"lease ends": func(*rapid.T) { m.holders, m.open = nil, "" },
			"closed":     func(*rapid.T) { m.open = "" },
			"Ceph":       func(t *rapid.T) { m.silent = rapid.Bool().Draw(t, "silent") },
			"disks": func(t *rapid.T) {
				if len(m.targets) > 0 {
					m.targets[rapid.IntRange(0, len(m.targets)-1).Draw(t, "of")].DisksGo = rapid.Bool().Draw(t, "go")
				}
			},
			"released": m.release,
			"fenced":   m.fenced,
			"":         m.check,
		})
	})
}

type model struct {
	*rapid.T
	*world
	lost    map[string]bool
	targets []fencing.Target
}

func (m *model) node(t *rapid.T, of []string) string { return rapid.SampledFrom(of).Draw(t, "node") }

// nodeDies: its OSDs are down in the map now or later, or never, when only Kubernetes has lost it.
func (m *model) nodeDies(t *rapid.T) {
	node := m.node(t, nodes)
	if m.lost[node] {
		return
	}
	m.lost[node] = true
	m.targets = append(m.targets, target(node))
	if rapid.Bool().Draw(t, "power loss") {
		m.fail(node)
		for i := range m.mons {
			m.mons[i].InQuorum = m.mons[i].InQuorum && m.mons[i].Node != node
		}
	}
}

func (m *model) nodeReturns(t *rapid.T) {
	m.back(m.node(t, nodes))
}

// back: the node, or whoever took its place, has its daemons again. The data is whole some time later.
func (m *model) back(node string) {
	delete(m.lost, node)
	m.targets = slices.DeleteFunc(m.targets, func(t fencing.Target) bool { return t.Node == node })
	m.released = slices.DeleteFunc(m.released, func(n string) bool { return n == node })
	for i := range m.osds {
		if m.osds[i].node == node {
			m.clean = m.clean && m.osds[i].up
			m.osds[i].up = true
		}
	}
	for i := range m.mons {
		m.mons[i].InQuorum = m.mons[i].InQuorum || m.mons[i].Node == node
	}
}

func (m *model) jobGranted(t *rapid.T) {
	if len(m.targets) > 0 {
		m.grant(t, rapid.SampledFrom(m.targets).Draw(t, "target").WorkflowID)
	}
}

// grant is what the keeper does: it opens a failure domain when no other is hurt, and while one is held no other.
func (m *model) grant(t *rapid.T, job string) {
	node := job[len(job)-len("node-a"):]
	if node == "node-g" || len(m.holders) > 0 && m.holders[0].Domain != zone(zoneOf(node)) ||
		slices.ContainsFunc(m.holders, func(c lease.Claim) bool { return c.WorkflowID == job }) {
		return
	}
	m.hold(job, zoneOf(node))
	if rapid.IntRange(0, 3).Draw(t, "opens") == 0 {
		m.open = ""
	}
}

func (m *model) release(t *rapid.T) {
	if node, _ := fencing.Choose(m.facts(), m.targets); node != "" {
		m.released = append(m.released, node)
	}
}

// allowed says what must be true of a node that is released now.
func (m *model) allowed(t *rapid.T, node string, takes fencing.Takes) {
	require.Empty(t, m.released, "%s is released beside another", node)
	require.False(t, m.silent, "%s is released, and nothing is known", node)
	running, _ := m.running(node)
	require.Len(t, takes.Running, running, "the judge is mistaken about what serves on %s", node)
	for _, z := range m.hurt() {
		require.False(t, running > 0 && z != zoneOf(node), "%s is released while %s is hurt", node, z)
	}
	if running > 0 {
		require.Equal(t, zoneOf(node), m.open, "%s is released, and its zone is not open", node)
	}
	others := 0
	for _, mon := range m.mons {
		if mon.InQuorum && mon.Node != node {
			others++
		}
	}
	require.False(t, m.monServes(node) && others < 2, "%s is released, and the quorum needs its mon", node)
	i := slices.IndexFunc(m.targets, func(t fencing.Target) bool { return t.Node == node })
	require.False(t, m.targets[i].DisksGo && !m.clean, "the disks of %s go, and the data is not whole", node)
}

// fenced: the remediator has acted, and another node has the disks.
func (m *model) fenced(t *rapid.T) {
	if len(m.released) == 0 {
		return
	}
	m.fail(m.released[0])
	m.back(m.released[0])
}

func (m *model) check(t *rapid.T) {
	require.LessOrEqual(t, len(m.released), 1, "released: %v", m.released)
	node, verdicts := fencing.Choose(m.facts(), m.targets)
	if node != "" {
		m.allowed(t, node, verdicts[node].Takes)
	}
	for _, to := range m.targets {
		running, all := m.running(to.Node)
		free := running == 0 && all > 0 && !m.monServes(to.Node) && (!to.DisksGo || m.clean)
		require.False(t, free && !m.silent && len(m.released) == 0 && node == "",
			"%s takes nothing, nobody is released, and it waits", to.Node)
		v := fencing.Judge(m.facts(), to)
		if all == 0 && !m.silent && m.clean { // or what is missing may have been there
			require.Equal(t, fencing.ReasonHostsNothing, v.Reason, "%s hosts nothing, and waits", to.Node)
		}
		require.NotEmpty(t, v.Reason)
		require.NotEmpty(t, v.Message)
	}
	if fencing.MaxUnavailable(m.facts()) > 0 {
		require.True(t, m.clean && !m.silent && m.open == "" && len(m.released) == 0 && len(m.holders) == 0)
	}
}

func (m *model) monServes(node string) bool {
	for _, mon := range m.mons {
		if mon.Node == node && mon.InQuorum {
			return true
		}
	}
	return false
}
