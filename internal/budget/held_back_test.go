package budget_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// lose has Kubernetes know nothing of these nodes any more, on each of which an OSD serves.
func lose(in budget.Input, nodes ...string) {
	for i := range in.View.Nodes {
		if n := &in.View.Nodes[i]; slices.Contains(nodes, n.Name) {
			n.Lost, n.NotReady = 1, true
		}
	}
}

// TestFencesBearWithWhatIsHeldBack: two nodes in different zones have lost the control plane, and their OSDs serve.
// Each would keep the other's zone closed for ever.
func TestFencesBearWithWhatIsHeldBack(t *testing.T) {
	for _, test := range []struct {
		what     string
		heldBack []string
		priority lease.Priority
		pod      storage.PodState // of the OSD on the other node
		also     func(other, own *storage.Daemon)
		life     *storage.Life
		want     bool
	}{
		{"both are held back", []string{"c", "e"}, lease.PriorityFencing, storage.PodReady, nil, &storage.Life{}, true},
		{
			"its pod is to end, so it goes first",
			[]string{"c", "e"},
			lease.PriorityFencing, storage.PodTerminating, nil, &storage.Life{}, false,
		},
		{
			"Kubernetes has deleted the pods of both",
			[]string{"c", "e"},
			lease.PriorityFencing, storage.PodTerminating, func(_, own *storage.Daemon) { own.Pod = storage.PodTerminating },
			&storage.Life{}, true,
		},
		{"the other one is not", []string{"c"}, lease.PriorityFencing, storage.PodReady, nil, &storage.Life{}, false},
		{"nobody holds anything back", nil, lease.PriorityFencing, storage.PodReady, nil, &storage.Life{}, false},
		{"it is a drain", []string{"c", "e"}, lease.PriorityDrain, storage.PodReady, nil, &storage.Life{}, false},
		{"nobody has asked who lives", []string{"c", "e"}, lease.PriorityFencing, storage.PodReady, nil, nil, false},
		{
			"its OSD starts elsewhere",
			[]string{"c", "e"},
			lease.PriorityFencing, storage.PodNotReady, func(other, _ *storage.Daemon) { other.Restarting = true },
			&storage.Life{}, false,
		},
	} {
		t.Run(test.what, func(t *testing.T) {
			w := atRest()
			on := func(node string) *storage.Daemon {
				return &w.osds[slices.IndexFunc(w.osds, func(o storage.Daemon) bool { return o.Node == node })]
			}
			if on("e").Pod = test.pod; test.also != nil {
				test.also(on("e"), on("c"))
			}
			in := w.input()
			in.HeldBack, in.Life = test.heldBack, test.life
			lose(in, "c", "e")
			c := lease.Claim{
				WorkflowID: "fence/c", RunID: "1", Node: "c", Domain: zone("y"), Priority: test.priority, Granted: now,
			}
			answer := budget.LeaseGate(in, c)
			require.Equal(t, test.want, answer.OK, answer.Reason)
			in.Lease = lease.State{Holders: []lease.Claim{c}}
			d := budget.Decide(in)
			require.Equal(t, test.want, d.Mode == budget.ModeOpen && d.Open == zone("y"), d.Message)
			if in.Lease = (lease.State{}); test.want {
				require.Equal(t, budget.ModeClosed, budget.Decide(in).Mode, "nobody else may go")
			}
		})
	}
}

// TestWhoseOSDsAreToEndGoesFirst: of two nodes that have lost the control plane it is the one whose pods Kubernetes has
// deleted; another one of its failure domain bears with it.
func TestWhoseOSDsAreToEndGoesFirst(t *testing.T) {
	w := atRest()
	for i := range w.osds {
		if w.osds[i].Node == "e" {
			w.osds[i].Pod = storage.PodTerminating
		}
	}
	in := w.input()
	in.HeldBack, in.Life = []string{"c", "e", "f"}, &storage.Life{}
	lose(in, in.HeldBack...)
	gate := func(node, domain string) storage.Answer {
		return budget.LeaseGate(in, lease.Claim{
			WorkflowID: "fence/" + node, RunID: "1", Node: node, Domain: zone(domain), Priority: lease.PriorityFencing,
			Granted: now,
		})
	}
	require.True(t, gate("e", "z").OK, gate("e", "z").Reason)
	require.True(t, gate("f", "z").OK, gate("f", "z").Reason)
	require.Contains(t, gate("c", "y").Reason, "osd.4 on e is stopping (pod Terminating)")
	in.View.Mons = []storage.Mon{
		{Name: "a", Node: "a", InQuorum: true, Pod: storage.PodReady},
		{Name: "b", Node: "c", InQuorum: true, Pod: storage.PodReady},
		{Name: "c", Node: "e", InQuorum: true, Pod: storage.PodReady},
	}
	require.Contains(t, gate("c", "y").Reason, "osd.4 on e is stopping (pod Terminating)")
	in.View.Mons[1].InQuorum = false // so that e cannot go before it is back
	require.True(t, gate("c", "y").OK, gate("c", "y").Reason)
}

// TestNothingOpensBesideWhoIsToEnd: where the daemons of two lost nodes are to end, in different zones, one of the
// nodes may go, under the lease, but nothing opens for it: whoever else went in its zone would be missed as soon as the
// other node hears of Kubernetes.
func TestNothingOpensBesideWhoIsToEnd(t *testing.T) {
	for _, c := range []struct {
		what         string
		ends         []string // nodes whose pods are to end
		mons         []storage.Mon
		gate, shut   bool
		message      string
		refusedUntil string
	}{
		{what: "both are to end", ends: []string{"c", "e"}, gate: true, shut: true, message: "nothing else may go"},
		{what: "none is", gate: true, message: "holds the lease"},
		{what: "only its own", ends: []string{"c"}, gate: true, message: "holds the lease"},
		{what: "only the other one", ends: []string{"e"}, refusedUntil: "osd.4 on e is stopping"},
		{
			what: "only the other one, without whose mon there is no quorum", ends: []string{"e"},
			mons: []storage.Mon{
				{Name: "a", Node: "a", InQuorum: true, Pod: storage.PodReady},
				{Name: "b", Node: "c", Pod: storage.PodReady},
				{Name: "c", Node: "e", InQuorum: true, Pod: storage.PodReady},
			},
			refusedUntil: "osd.4 on e is stopping",
		},
		{
			what: "its own OSD is, and its mon is not", ends: []string{"c", "e"},
			mons:         []storage.Mon{{Name: "b", Node: "c", InQuorum: true, Pod: storage.PodNotReady}},
			refusedUntil: "osd.4 on e is stopping",
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := atRest()
			for i := range w.osds {
				if slices.Contains(c.ends, w.osds[i].Node) {
					w.osds[i].Pod = storage.PodTerminating
				}
			}
			in := w.input()
			in.Shuts, in.HeldBack, in.Life = true, []string{"c", "e"}, &storage.Life{}
			lose(in, "c", "e")
			if c.mons != nil {
				in.View.Mons = c.mons
			}
			claim := lease.Claim{
				WorkflowID: "fence/c", RunID: "1", Node: "c", Domain: zone("y"), Priority: lease.PriorityFencing, Granted: now,
			}
			answer := budget.LeaseGate(in, claim)
			require.Equal(t, c.gate, answer.OK, answer.Reason)
			require.Contains(t, answer.Reason, c.refusedUntil)
			in.Lease = lease.State{Holders: []lease.Claim{claim}}
			d := budget.Decide(in)
			require.Contains(t, d.Message, c.message)
			require.Equal(t, c.shut, d.Shut == zone("y"), d.Message)
			require.Equal(t, c.gate && !c.shut, d.Mode == budget.ModeOpen, d.Message)
		})
	}
}

// TestWhoIsToBeFencedHoldsNothing: the lease of a drain goes back although OSDs of its node are to end, as soon as that
// node is lost and its fence sees to it; otherwise it waits for them to serve again.
func TestWhoIsToBeFencedHoldsNothing(t *testing.T) {
	w := atRest()
	for i := range w.osds {
		if n := w.osds[i].Node; n == "a" || n == "e" {
			w.osds[i].Pod = storage.PodTerminating
		}
	}
	drain := lease.Claim{
		WorkflowID: "drain/a", RunID: "1", Node: "a", Domain: zone("x"), Priority: lease.PriorityDrain, Granted: now,
		FlagHosts: []string{"a"}, Finishing: true,
	}
	in := w.input()
	in.HeldBack = []string{"a", "e"}
	lose(in, "e")
	require.Contains(t, budget.Healed(in, drain).Reason, "on a is stopping", "its node is back")
	lose(in, "a")
	require.True(t, budget.Healed(in, drain).OK, budget.Healed(in, drain).Reason)
	in.HeldBack = []string{"e"}
	require.Contains(t, budget.Healed(in, drain).Reason, "on a is stopping", "nobody fences its node")
}

// TestMonsToEnd: on nodes that are lost and held back; and whose mon is to end need not wait for OSDs that are.
func TestMonsToEnd(t *testing.T) {
	w := atRest()
	for i := range w.osds {
		if w.osds[i].Node == "e" {
			w.osds[i].Pod = storage.PodTerminating
		}
	}
	in := w.input()
	in.HeldBack, in.Life = []string{"c", "e"}, &storage.Life{}
	lose(in, in.HeldBack...)
	in.View.Mons = []storage.Mon{
		{Name: "a", Node: "a", InQuorum: true, Pod: storage.PodTerminating},
		{Name: "b", Node: "c", InQuorum: true, Pod: storage.PodReady},
		{Name: "c", Node: "e", InQuorum: false, Pod: storage.PodTerminating},
	}
	require.Empty(t, in.MonsToEnd())
	gate := func() storage.Answer {
		return budget.LeaseGate(in, lease.Claim{
			WorkflowID: "fence/c", RunID: "1", Node: "c", Domain: zone("y"), Priority: lease.PriorityFencing, Granted: now,
		})
	}
	require.Contains(t, gate().Reason, "osd.4 on e is stopping")
	in.View.Mons[1].Pod = storage.PodTerminating
	require.Equal(t, []string{"b"}, in.MonsToEnd())
	require.True(t, gate().OK, gate().Reason)
}

// TestDrainsShareWhatAFenceBears: the failure domain of a fence opens although a drain shares it, and has the lease for
// longer.
func TestDrainsShareWhatAFenceBears(t *testing.T) {
	in := atRest().input()
	in.HeldBack, in.Life = []string{"c", "e"}, &storage.Life{}
	lose(in, "c", "e")
	drain := lease.Claim{
		WorkflowID: "drain/d", RunID: "1", Node: "d", Domain: zone("y"), Priority: lease.PriorityDrain, Granted: now,
	}
	fence := lease.Claim{
		WorkflowID: "fence/c", RunID: "1", Node: "c", Domain: zone("y"), Priority: lease.PriorityFencing, Granted: now,
	}
	in.Lease = lease.State{Holders: []lease.Claim{drain}}
	require.Equal(t, budget.ModeClosed, budget.Decide(in).Mode, "a drain bears with nobody")
	in.Lease.Holders = append(in.Lease.Holders, fence)
	d := budget.Decide(in)
	require.Equal(t, zone("y"), d.Open, d.Message)
}

// TestAFenceDoesNotWaitForWhatIsHeldBack: the storage of its failure domain is whole but for the pods of another node
// there, which end when that one is fenced in its turn.
func TestAFenceDoesNotWaitForWhatIsHeldBack(t *testing.T) {
	w := atRest()
	other := &w.osds[slices.IndexFunc(w.osds, func(o storage.Daemon) bool { return o.Node == "d" })]
	other.Pod = storage.PodTerminating
	in := w.input()
	lose(in, "d")
	c := lease.Claim{
		WorkflowID: "fence/c", RunID: "1", Node: "c", Domain: zone("y"), Priority: lease.PriorityFencing, Granted: now,
		Finishing: true,
	}
	require.False(t, budget.Healed(in, c).OK)
	in.HeldBack = []string{"d"}
	require.True(t, budget.Healed(in, c).OK, budget.Healed(in, c).Reason)
	c.Priority = lease.PriorityDrain
	require.False(t, budget.Healed(in, c).OK, "a drain bears with nobody")
}

// TestAFenceBesideADeadDisk: the disk in another failure domain has died while Kubernetes was deleting the pod of the
// lost node's OSD, which serves. Nobody misses the disk: the data is whole without it.
func TestAFenceBesideADeadDisk(t *testing.T) {
	w := atRest()
	for i := range w.osds {
		switch x := &w.osds[i]; x.Node {
		case "a":
			x.Up, x.Pod = false, storage.PodNotReady
		case "c":
			x.Pod = storage.PodTerminating
		}
	}
	in := w.input()
	in.Proof = nil
	lose(in, "c")
	c := lease.Claim{
		WorkflowID: "fence/c", RunID: "1", Node: "c", Domain: zone("y"), Priority: lease.PriorityFencing, Granted: now,
	}
	require.Nil(t, budget.NextProof(in), "somebody is on its way out")
	require.False(t, budget.LeaseGate(in, c).OK)
	in.HeldBack = []string{"c"}
	in.Proof = budget.NextProof(in)
	require.NotNil(t, in.Proof)
	answer := budget.LeaseGate(in, c)
	require.True(t, answer.OK, answer.Reason)
	in.Lease = lease.State{Holders: []lease.Claim{c}}
	d := budget.Decide(in)
	require.Equal(t, zone("y"), d.Open, d.Message)
	in.HeldBack = nil // it is released
	require.Equal(t, zone("y"), budget.Decide(in).Open)
	in.Health.Clean = false
	require.Nil(t, budget.NextProof(in), "something else is wrong with the data")
}

// TestFencesBearForThemselves: two fences share the lease of a zone, and the pods of one of their nodes are to end. Who
// is down in another zone would have that one open, and these pods would end beside who goes there.
func TestFencesBearForThemselves(t *testing.T) {
	for _, own := range []bool{true, false} {
		w := atRest()
		for i := range w.osds {
			switch o := &w.osds[i]; o.Node {
			case "d":
				o.Pod = storage.PodTerminating
			case "a":
				o.Up = false
			}
		}
		w.touched, w.in.View.ChangeEpoch = []string{"x"}, 101
		in := w.input()
		in.HeldBack, in.BearsForItself = []string{"c", "d"}, own
		lose(in, "c", "d")
		for _, node := range in.HeldBack {
			in.Lease.Holders = append(in.Lease.Holders, lease.Claim{
				WorkflowID: "fence/" + node, Node: node, Domain: zone("y"), Priority: lease.PriorityFencing, Granted: now,
			})
		}
		d := budget.Decide(in)
		require.Equal(t, !own, d.Mode == budget.ModeOpen && d.Open == zone("x"), d.Message)
	}
}
