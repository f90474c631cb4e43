package guard_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var (
	now   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	nodes = []string{"a", "b", "c", "d", "e"}
)

// pairs is a kind of storage in which it is drawn which nodes go together, which are refused, and which are whole.
type pairs struct {
	guard.Plain
	apart          map[string]bool // "ab": not at the same time
	refused, whole map[string]bool // by node
}

func drawPairs(t *rapid.T) pairs {
	p := pairs{apart: map[string]bool{}, refused: map[string]bool{}, whole: map[string]bool{}}
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			p.apart[a+b] = rapid.Bool().Draw(t, a+b)
		}
		p.whole[a] = true
	}
	return p
}

func (p pairs) Together(_ guard.Input, a, b lease.Claim) bool {
	return !p.apart[a.Node+b.Node] && !p.apart[b.Node+a.Node]
}

func (p pairs) Gate(_ guard.Input, c lease.Claim) storage.Answer {
	return storage.Answer{OK: !p.refused[c.Node], Reason: "refused"}
}

func (p pairs) Healed(_ guard.Input, c lease.Claim) storage.Answer {
	return storage.Answer{OK: p.whole[c.Node], Reason: "not whole"}
}

func (p pairs) Decide(guard.Input) (v guard.Verdict) { return v }

func claimOf(node string) lease.Claim {
	return lease.Claim{
		WorkflowID: "drain/" + node, RunID: node, Node: node, Domain: storage.FailureDomain{Type: "node", Name: node},
		Priority: lease.PriorityDrain,
	}
}

// TestPass: whatever goes together, and in whatever order things happen, those who hold the lease go together; one who
// is done keeps it until it is whole; who could have it has it; and who waits reads why.
func TestPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, in := drawPairs(t), guard.Input{}
		in.Now = now
		node := rapid.SampledFrom(nodes)
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				c := claimOf(node.Draw(t, "node"))
				if _, _, asked := in.Lease.Find(c.WorkflowID, c.RunID); asked {
					return
				}
				told := guard.WouldGrant(g, in, c)
				in.Lease = in.Lease.Request(c)
				g.pass(t, &in)
				if _, holds, _ := in.Lease.Find(c.WorkflowID, c.RunID); holds != told.OK {
					t.Fatalf("%s holds it: %t, and was told %+v", c.Node, holds, told)
				}
			},
			"finish": func(t *rapid.T) {
				c := claimOf(node.Draw(t, "node"))
				in.Lease = in.Lease.Finish(c.WorkflowID, c.RunID, false, nil)
			},
			"refuse": func(t *rapid.T) { g.refused[node.Draw(t, "node")] = rapid.Bool().Draw(t, "refused") },
			"heal":   func(t *rapid.T) { g.whole[node.Draw(t, "node")] = rapid.Bool().Draw(t, "whole") },
			"pass":   func(t *rapid.T) { g.pass(t, &in) },
		})
	})
}

func (p pairs) pass(t *rapid.T, in *guard.Input) {
	if back := guard.Revoked(p, *in); len(back) > 0 {
		t.Fatalf("revoked: %v", back)
	}
	before := in.Lease
	l, released := guard.TakeBack(p, *in)
	for _, c := range released {
		if !c.Finishing || !p.whole[c.Node] {
			t.Fatalf("taken back: %+v", c)
		}
	}
	if len(l.Holders)+len(released) != len(before.Holders) {
		t.Fatalf("held by %v, then by %v", before.Holders, l.Holders)
	}
	in.Lease = l
	in.Lease, _ = guard.Grant(p, *in, func(lease.Claim) bool { return true })
	for i, a := range in.Lease.Holders {
		for _, b := range in.Lease.Holders[i+1:] {
			if !p.Together(*in, a, b) {
				t.Fatalf("%s and %s hold it at once", a.Node, b.Node)
			}
		}
	}
	for _, c := range in.Lease.Queue {
		alone := !slices.ContainsFunc(in.Lease.Holders, func(h lease.Claim) bool { return !p.Together(*in, h, c) })
		if c.WaitsFor == "" || alone && !p.refused[c.Node] {
			t.Fatalf("%s waits for %q", c.Node, c.WaitsFor)
		}
	}
}

// TestGrantUnseen: a claim that came during the look waits for the next one, whatever its guard says.
func TestGrantUnseen(t *testing.T) {
	in := guard.Input{}
	in.Lease = in.Lease.Request(claimOf("a"))
	l, granted := guard.Grant(pairs{}, in, func(lease.Claim) bool { return false })
	assert.Empty(t, granted)
	assert.Contains(t, l.Queue[0].WaitsFor, "for the first time")
}

// TestPlain: what a kind gets that says nothing of its own.
func TestPlain(t *testing.T) {
	var g guard.Plain
	a, b := claimOf("a"), claimOf("b")
	open := budget.Decision{Mode: budget.ModeOpen, Open: a.Domain, With: []string{"c"}}
	assert.True(t, g.Serves(guard.Input{}, open, a))
	assert.True(t, g.Serves(guard.Input{}, open, claimOf("c")))
	assert.False(t, g.Serves(guard.Input{}, open, b))
	open.Mode = budget.ModeClosed
	assert.False(t, g.Serves(guard.Input{}, open, a))

	b.Daemons = []string{"daemon"}
	seen := g.Interest(guard.Input{}, []lease.Claim{a, b})
	assert.Equal(t, "a b daemon", strings.Join(slices.Concat(seen.Nodes, seen.Daemons), " "))
	records := []flags.Record{{Host: "h"}}
	assert.Equal(t, flags.Plan{Records: records}, g.Flags(flags.Input{Records: records}))
}
