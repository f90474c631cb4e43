package barelab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Storage holds and releases Machines as lockkeeper does, by what a Ceph would say that is not there: each of its nodes
// hosts two OSDs, and is a failure domain.
type Storage struct {
	*World
	Holder *machines.Holder
	Nodes  []string
	// Down are the nodes whose OSDs are down; Released those whose Machines are.
	Down     map[string]bool
	Released []string

	noted []fencing.Hold
}

// Store makes the storage of nodes, whose Machines are held in an API.
func (w *World) Store(spec v1alpha1.FencingSpec, nodes ...string) *Storage {
	w.Helper()
	holder, err := machines.For(w.Client, storage.ClusterKey{Namespace: "rook-ceph", Name: "ceph"}, spec)
	require.NoError(w, err)
	return &Storage{World: w, Holder: holder, Nodes: nodes, Down: map[string]bool{}}
}

// Machines are all there are, with and without storage.
func (s *Storage) Machines() []fencing.Machine {
	s.Helper()
	all, err := s.Holder.Machines(s.Context())
	require.NoError(s, err)
	return all
}

// Machine is that of a node; nil: it has none.
func (s *Storage) Machine(node string) *fencing.Machine {
	s.Helper()
	for _, m := range s.Machines() {
		if m.Node == node {
			return &m
		}
	}
	return nil
}

// Deleting tells whether the Machine of a node is there, and being deleted.
func (s *Storage) Deleting(node string) bool {
	m := s.Machine(node)
	return m != nil && m.Deleting
}

// Settle brings the holds to where a plan wants them.
func (s *Storage) Settle() {
	s.Helper()
	r := fencing.Rest{
		Machines: s.Machines(), Noted: s.noted, Hosted: map[string]fencing.Hosted{}, Known: true, Released: s.Released,
	}
	for _, node := range s.Nodes {
		h := fencing.Hosted{Daemons: 2, Running: 2}
		if s.Down[node] {
			h.Running = 0
		}
		r.Hosted[node] = h
	}
	s.carryOut(fencing.PlanHolds(r))
}

// End takes all holds away.
func (s *Storage) End() {
	s.Helper()
	s.carryOut(fencing.PlanHolds(fencing.Rest{Machines: s.Machines(), Noted: s.noted, Ending: true}))
	for _, m := range s.Machines() {
		require.False(s, m.Held, m)
	}
	require.Empty(s, s.noted)
}

func (s *Storage) carryOut(p fencing.Plan) {
	s.Helper()
	s.noted = append(s.noted, p.Note...)
	for _, m := range p.Set {
		require.NoError(s, s.Holder.Set(s.Context(), m))
	}
	for _, m := range p.Remove {
		require.NoError(s, s.Holder.Remove(s.Context(), m))
	}
	s.noted = slices.DeleteFunc(s.noted, func(h fencing.Hold) bool { return slices.Contains(p.Forget, h) })
}

// Facts are what such a Ceph would say.
func (s *Storage) Facts() fencing.Facts {
	f := fencing.Facts{Released: s.Released, View: storage.View{FailureDomainType: "host"}, Clean: len(s.Down) == 0}
	for _, node := range s.Nodes {
		n, d := storage.Node{Name: node, Domain: node}, storage.Domain{Name: node}
		for i := range 2 {
			name := fmt.Sprintf("osd.%s%d", strings.TrimPrefix(node, "node-"), i)
			n.Daemons = append(n.Daemons, name)
			if s.Down[node] {
				d.Troubled = append(d.Troubled, storage.Daemon{Name: name, Node: node})
			}
		}
		f.View.Nodes, f.View.Domains = append(f.View.Nodes, n), append(f.View.Domains, d)
		f.AskedFor = append(f.AskedFor, node)
		if s.Down[node] {
			f.Hurt = append(f.Hurt, storage.FailureDomain{Type: "host", Name: node})
		}
	}
	return f
}

// Choose judges the Machines of nodes that are to be fenced, in this order.
func (s *Storage) Choose(why fencing.Why, nodes ...string) (string, map[string]fencing.Verdict) {
	s.Helper()
	var targets []fencing.Target
	for _, node := range nodes {
		targets = append(targets, fencing.Target{Node: node, Why: why})
	}
	return fencing.Choose(s.Facts(), targets)
}
