package budget_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

const monLabel = "ceph_daemon_id"

// withMons adds one mon on the first node of each zone: a in x, c in y, e in z. A commit has shown that all live.
func withMons(in budget.Input) budget.Input {
	in.View.MonKey, in.View.Committed = monLabel, true
	in.View.Mons = nil
	for i, node := range []string{"a", "c", "e"} {
		n, _ := in.View.Node(node)
		in.View.Mons = append(in.View.Mons, storage.Mon{
			Name: node, Node: node, Domain: zones[i], Leaving: n.Leaving(),
			InQuorum: true, Pod: storage.PodReady,
		})
	}
	return in
}

func mon(in *budget.Input, name string) *storage.Mon {
	i := slices.IndexFunc(in.View.Mons, func(m storage.Mon) bool { return m.Name == name })
	return &in.View.Mons[i]
}

func TestMonsStayAtRest(t *testing.T) {
	d := budget.Decide(withMons(atRest().input()))
	require.Equal(t, budget.ModeDefault, d.Mode)
	require.Equal(t, &budget.Spec{Quiet: true}, d.Mons, "which no alert takes for pods that are missing")
	in := withMons(atRest().input())
	in.View.MonsMixed = true
	require.Equal(t, &budget.Spec{MinAvailable: budget.Everything}, budget.Decide(in).Mons)
}

func TestMonsGoInTheOpenDomainOnly(t *testing.T) {
	w := atRest()
	w.say("cordoned=a,c,e")
	in := withMons(w.input())
	d := budget.Decide(in)
	require.Equal(t, zone("x"), d.Open)
	require.Equal(t, &budget.Spec{MinAvailable: budget.Everything, Key: monLabel, Except: []string{"a"}}, d.Mons)
}

// TestMonGoesAfterACommit: a dead mon is called one of the quorum for some seconds, and whoever went meanwhile would be
// the second. Who was let go after a commit stays so without another.
func TestMonGoesAfterACommit(t *testing.T) {
	w := atRest()
	w.say("cordoned=a")
	drained := withMons(w.input())
	alone := withMons(atRest().input())
	alone.View.Mons[0].Domain, alone.View.Mons[0].Leaving = "", true
	for what, in := range map[string]budget.Input{
		"in the open domain": drained, "on a node without OSDs": alone,
		"of a claim": held(monsOf(atRest(), "ace"), monClaim("a")),
	} {
		in.View.Committed = false
		d := budget.Decide(in)
		require.Empty(t, d.Mons.Except, what)
		require.True(t, budget.AwaitsCommit(in, d), what)

		committed := in
		committed.View.Committed = true
		d = budget.Decide(committed)
		require.Equal(t, []string{"a"}, d.Mons.Except, what)
		require.True(t, budget.AwaitsCommit(committed, d), "the budget does not say so yet, and another look may come first")

		in.Going = d.Going()
		d = budget.Decide(in)
		require.Equal(t, []string{"a"}, d.Mons.Except, what)
		require.False(t, budget.AwaitsCommit(in, d), what)
	}
}

// TestWhatNeedsNoCommit: nothing is asked of the mons where nobody goes because of it.
func TestWhatNeedsNoCommit(t *testing.T) {
	drained := func() budget.Input {
		w := atRest()
		w.say("cordoned=a")
		in := withMons(w.input())
		in.View.Committed = false
		return in
	}
	for what, in := range map[string]budget.Input{
		"at rest":           func() budget.Input { in := withMons(atRest().input()); in.View.Committed = false; return in }(),
		"a mon that is out": func() budget.Input { in := drained(); mon(&in, "a").InQuorum = false; return in }(),
		"the quorum cannot spare it": func() budget.Input {
			in := drained()
			mon(&in, "e").InQuorum = false
			return in
		}(),
		"mons that cannot be told apart": func() budget.Input { in := drained(); in.View.MonKey = ""; return in }(),
		"no mons":                        func() budget.Input { in := drained(); in.View.Mons = nil; return in }(),
	} {
		require.False(t, budget.AwaitsCommit(in, budget.Decide(in)), what)
	}
}

func TestMonIsKeptWhenQuorumCannotSpareIt(t *testing.T) {
	w := atRest()
	w.say("cordoned=a")
	in := withMons(w.input())
	mon(&in, "e").InQuorum = false
	d := budget.Decide(in)
	require.Equal(t, budget.ModeClosed, d.Mode)
	require.Equal(t, budget.ReasonMonQuorum, d.Reason)
	require.Empty(t, d.Mons.Except)
	a := budget.LeaseGate(in, lease.Claim{Node: "a", Domain: zone("x")})
	require.False(t, a.OK)
	require.Contains(t, a.Reason, "mon.e on e is out of quorum")
	require.True(t, budget.LeaseGate(in, lease.Claim{Node: "b", Domain: zone("x")}).OK,
		"b has no mon, so it can become empty")
}

// TestNodeThatLostItsMonGoesFirst: nobody else's mon can go before it is back, so whoever else waits would wait for
// ever.
func TestNodeThatLostItsMonGoesFirst(t *testing.T) {
	w := atRest()
	w.say("cordoned=a,c")
	w.say("announced=c:600:spent")
	w.say("queue=x")
	in := withMons(w.input())
	mon(&in, "c").Pod = storage.PodPending
	require.Equal(t, zone("y"), budget.Decide(in).Open)
}

func TestMonOnANodeWithoutStorage(t *testing.T) {
	in := withMons(atRest().input())
	for i := range in.View.Mons {
		in.View.Mons[i].Node, in.View.Mons[i].Domain = fmt.Sprintf("m%d", i), ""
	}
	in.View.Mons[1].Leaving, in.View.Mons[2].Leaving = true, true
	d := budget.Decide(in)
	require.Equal(t, budget.ModeDefault, d.Mode, "OSDs have nothing to do with it")
	require.Equal(t, []string{"c"}, d.Mons.Except, "one after the other")
}

// TestMonOfAReleasedNode: whoever was let go to be fenced may be gone at any moment, and no other mon goes before.
func TestMonOfAReleasedNode(t *testing.T) {
	w := atRest()
	w.say("lease=x")
	in := withMons(w.input())
	require.Equal(t, []string{"a"}, budget.Decide(in).Mons.Except)
	in.Released = []string{"c"}
	require.Empty(t, budget.Decide(in).Mons.Except)
	in.Lease.Holders[0].Domain = zone("y")
	require.Equal(t, []string{"c"}, budget.Decide(in).Mons.Except, "its own")
	in.Lease = lease.State{}
	a := budget.LeaseGate(in, lease.Claim{Node: "e", Domain: zone("z")})
	require.False(t, a.OK)
	require.Contains(t, a.Reason, "mon.c on c may be fenced at any moment, and the other mons are needed")
	require.True(t, budget.LeaseGate(in, lease.Claim{Node: "f", Domain: zone("z")}).OK, "f has no mon")
	require.True(t, budget.LeaseGate(in, lease.Claim{Node: "c", Domain: zone("y")}).OK, "it is c's own that goes")
	a = budget.LeaseGate(in, lease.Claim{WorkflowID: "migrate-mons/m", Domain: lease.Mon("e")})
	require.False(t, a.OK, "nor is one moved")
	require.Contains(t, a.Reason, "mon.c on c may be fenced at any moment")
}

func TestFewMons(t *testing.T) {
	w := atRest()
	w.say("lease=x")
	in := withMons(w.input())
	in.View.Mons = in.View.Mons[:1]
	require.Empty(t, budget.Decide(in).Mons.Except)
	require.Equal(t, budget.ModeOpen, budget.Decide(in).Mode, "OSDs may go all the same")
	in.Settings.AllowMonQuorumLoss = true
	require.Nil(t, budget.Decide(in).Mons)
	in.View = storage.View{Unavailable: "no quorum"}
	require.NotNil(t, budget.Decide(in).Mons, "with no answer nobody knows how many there are")
}

func TestUnnamedMonsKeepAMajority(t *testing.T) {
	in := withMons(atRest().input())
	in.View.MonKey = ""
	require.Equal(t, &budget.Spec{MinAvailable: 2}, budget.Decide(in).Mons)
	in.View.IdleMons = 1
	require.Equal(t, &budget.Spec{MinAvailable: 3}, budget.Decide(in).Mons)
}

// monWorld is a cluster whose mons somebody evicts whenever the budget lets him, above all between a look and what
// follows.
type monWorld struct {
	in      budget.Input
	applied *budget.Decision
	// dead is a mon that has died and is called one of the quorum still; "": none.
	dead string
}

func (w *monWorld) evictions(t *rapid.T) {
	for i := range w.in.View.Mons {
		m := &w.in.View.Mons[i]
		if !m.Standing() || !w.mayGo(m.Name) || !rapid.Bool().Draw(t, "evict "+m.Name) {
			continue
		}
		m.Pod = rapid.SampledFrom([]storage.PodState{storage.PodPending, storage.PodTerminating}).Draw(t, "pod of "+m.Name)
		standing := 0
		for _, x := range w.in.View.Mons {
			if x.Standing() {
				standing++
			}
		}
		if standing < len(w.in.View.Mons)/2+1 {
			t.Fatalf("mon.%s was let go, and only %d of %d are left: %+v", m.Name, standing, len(w.in.View.Mons), w.applied.Mons)
		}
	}
}

func (w *monWorld) mayGo(name string) bool {
	return w.applied != nil && w.applied.Mons != nil && slices.Contains(w.applied.Mons.Except, name)
}

// judge: while one that is dead is called alive, nobody else is let go who was not before.
func (w *monWorld) judge(t *rapid.T, look budget.Input, d budget.Decision) {
	for _, name := range d.Going() {
		i := slices.IndexFunc(look.View.Mons, func(m storage.Mon) bool { return m.Name == name })
		if w.dead != "" && name != w.dead && look.View.Mons[i].Standing() && !slices.Contains(look.Going, name) {
			t.Fatalf("mon.%s is let go while mon.%s is dead", name, w.dead)
		}
	}
}

// keep looks, decides and applies. Before what was decided is in place, somebody uses what was in place before, unless
// it is quiet.
func (w *monWorld) keep(t *rapid.T, quiet bool) {
	for more := true; more; {
		look := w.in
		look.View.Mons = slices.Clone(w.in.View.Mons)
		look.View.Committed = w.dead == "" && rapid.Bool().Draw(t, "committed")
		look.Going = w.applied.Going()
		d := budget.Decide(look)
		w.judge(t, look, d)
		if !quiet {
			w.evictions(t)
		}
		var step budget.Decision
		step, more = budget.Step(w.applied, d)
		w.applied = &step
		w.in.Open = step.Open
		w.evictions(t)
	}
}

// TestQuorumIsKept (I5): whatever happens in whatever order, no eviction leaves less than a majority. A mon that fails
// by itself is seen before the next eviction; nobody can answer for what fails in the same instant.
func TestQuorumIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &monWorld{in: atRest().input()}
		w.in.View.MonKey = monLabel
		for i := range rapid.IntRange(1, 7).Draw(t, "mons") {
			m := storage.Mon{Name: fmt.Sprint(i), Node: fmt.Sprintf("n%d", i), InQuorum: true, Pod: storage.PodReady}
			m.Domain = rapid.SampledFrom([]string{"", "x", "x", "y", "z"}).Draw(t, "domain")
			w.in.View.Mons = append(w.in.View.Mons, m)
		}
		w.keep(t, false)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			m := &w.in.View.Mons[rapid.IntRange(0, len(w.in.View.Mons)-1).Draw(t, "mon")]
			failed := false
			if w.dead != "" { // by now that is known
				m, failed, w.dead = mon(&w.in, w.dead), true, ""
				m.InQuorum = false
				w.keep(t, failed)
				continue
			}
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 6:
				if m.Standing() {
					w.dead, failed = m.Name, true
				}
			case 0:
				m.InQuorum, failed = false, true
			case 1:
				m.InQuorum, m.Pod = true, storage.PodReady
			case 2:
				m.Leaving = !m.Leaving
			case 3:
				z := rapid.SampledFrom(zones).Draw(t, "lease")
				w.in.Lease.Holders = []lease.Claim{{WorkflowID: "drain/" + z, Domain: zone(z), Node: m.Node, Granted: now}}
			case 4:
				w.in.Lease = lease.State{}
			case 5:
				w.in.View.Unavailable = map[bool]string{true: "no quorum", false: ""}[w.in.View.Unavailable == ""]
			}
			w.keep(t, failed)
		}
	})
}

// TestStepFromTheUnknown: when nobody knows what the budgets say, nothing is opened before they are known to be closed.
func TestStepFromTheUnknown(t *testing.T) {
	w := atRest()
	w.say("cordoned=a")
	step, more := budget.Step(nil, budget.Decide(withMons(w.input())))
	require.True(t, more)
	require.Equal(t, budget.ModeClosed, step.Mode)
	require.Empty(t, step.Mons.Except)

	in := withMons(atRest().input())
	in.View.Mons[0].Domain, in.View.Mons[0].Leaving = "", true
	step, more = budget.Step(nil, budget.Decide(in))
	require.True(t, more)
	require.Equal(t, budget.ModeClosed, step.Mode)
	require.Empty(t, step.Mons.Except)
	step, more = budget.Step(&step, budget.Decide(in))
	require.False(t, more)
	require.Equal(t, []string{"a"}, step.Mons.Except)
}

// TestMonOfANodeWithoutOSDs: a node whose daemons are all down and missed by nobody needs no open domain any more. Its
// mon may go at rest, as one on a node without any, however long the node has been cordoned.
func TestMonOfANodeWithoutOSDs(t *testing.T) {
	for name, c := range map[string]struct {
		said string
		want []string
	}{
		"its OSDs are down and nobody misses them": {"cordoned=a announced=a:500 osd.0=down/None", []string{"a"}},
		"one of them still serves":                 {"cordoned=a announced=a:500", nil},
		"the node is in service":                   {"osd.0=down/None", nil},
		"something is missed elsewhere": {
			"cordoned=a announced=a:500 osd.0=down/None osd.2=down/Pending touched=y health=unclean", []string{"c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest()
			for _, word := range strings.Fields(c.said) {
				w.say(word)
			}
			in := withMons(w.input())
			d := budget.Decide(in)
			require.Equal(t, c.want, d.Mons.Except, "%+v", d)
		})
	}
}
