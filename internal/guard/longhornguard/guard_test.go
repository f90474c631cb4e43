package longhornguard_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/guard/longhornguard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// in is what a guard judges by: an installation of three nodes, all of them in service and spare.
func in(change ...func(*longhornguard.Look, *guard.Input)) guard.Input {
	l := longhornguard.Look{Managers: map[string]longhornguard.Managers{}, Moves: new(bool)}
	for _, n := range []string{"a", "b", "c"} {
		l.Nodes = append(l.Nodes, longhorn.NodeSummary{Node: n, State: longhorn.Spare, Reason: longhorn.NothingToLose})
		l.Managers[n] = longhornguard.Managers{Running: true}
	}
	var out guard.Input
	out.Now, out.View.LabelKey, out.View.Marks = now, "longhorn.io/node", &storage.Marks{Proved: 3}
	out.Settings.AnnouncementTimeout = 10 * time.Minute
	for _, c := range change {
		c(&l, &out)
	}
	out.Own, _ = json.Marshal(l)
	return out
}

type change = func(*longhornguard.Look, *guard.Input)

func node(name string, leaving longhorn.Leaving, state longhorn.State, reason longhorn.Reason, subject string) change {
	return func(l *longhornguard.Look, _ *guard.Input) {
		for i := range l.Nodes {
			if l.Nodes[i].Node == name {
				l.Nodes[i] = longhorn.NodeSummary{
					Node: name, Leaving: leaving, State: state, Reason: reason, Subject: subject,
				}
			}
		}
	}
}

func open(name string) change {
	return node(name, longhorn.Cordoned, longhorn.Open, longhorn.NothingToLose, "")
}

func waits(name, behind string) change {
	return node(name, longhorn.Cordoned, longhorn.Kept, longhorn.SharesVolume, behind)
}

func kept(name string) change {
	return node(name, longhorn.NotLeaving, longhorn.Kept, longhorn.Cover, "v")
}

// stays is a node that is leaving, and may not.
func stays(name string) change {
	return node(name, longhorn.Cordoned, longhorn.Kept, longhorn.LastReplica, "v")
}

// evicted is a node that is removed, and whose replicas are moved.
func evicted(name string) change {
	return func(l *longhornguard.Look, in *guard.Input) {
		node(name, longhorn.RemovalTaint, longhorn.Kept, longhorn.Evicting, "v")(l, in)
		for i := range l.Nodes {
			if l.Nodes[i].Node == name {
				l.Nodes[i].Evict = longhorn.Evicted
			}
		}
	}
}

func away(name string) change {
	return func(l *longhornguard.Look, _ *guard.Input) { l.Managers[name] = longhornguard.Managers{} }
}

func admitted(name string, ok bool) change {
	return func(l *longhornguard.Look, _ *guard.Input) {
		a := longhorn.Admission{Node: name, OK: ok, Reason: longhorn.NothingToLose}
		if !ok {
			a.Reason, a.Subject = longhorn.LastReplica, "v"
		}
		l.Admitted = append(l.Admitted, a)
	}
}

func turn(name string, since time.Duration, spent bool) change {
	return func(_ *longhornguard.Look, in *guard.Input) {
		if in.Announced == nil {
			in.Announced = map[string]budget.Announcement{}
		}
		in.Announced[name] = budget.Announcement{Node: name, Opened: now.Add(-since), Spent: spent}
	}
}

// gone is a turn that began when the node went.
func gone(name string, since time.Duration, spent bool) change {
	return func(l *longhornguard.Look, in *guard.Input) {
		turn(name, since, spent)(l, in)
		a := in.Announced[name]
		a.Gone = true
		in.Announced[name] = a
	}
}

func claim(name string) lease.Claim {
	return lease.Claim{WorkflowID: "drain/" + name, RunID: name, Node: name, Domain: longhornguard.Domain(name)}
}

func holds(name string) change {
	return func(_ *longhornguard.Look, in *guard.Input) {
		in.Lease.Holders = append(in.Lease.Holders, claim(name))
	}
}

// TestDecide: what the budgets say, and what is answered to who asks where he may drain.
func TestDecide(t *testing.T) {
	const everything = budget.Everything
	for name, c := range map[string]struct {
		in     guard.Input
		mode   budget.Mode
		marked budget.Spec
		answer string
		says   string
	}{
		"at rest one of the spare ones may go": {
			in(), budget.ModeDefault, budget.Spec{MinAvailable: 2}, "one of a, b, c", "nothing depends on a, b, c",
		},
		"marks are counted before they are set": {
			in(func(_ *longhornguard.Look, in *guard.Input) { in.View.Marks = &storage.Marks{Proved: 1, Unproved: 1} },
				kept("a")),
			budget.ModeDefault,
			budget.Spec{MinAvailable: 1},
			"one of b, c", "b, c",
		},
		"none by the policy": {
			in(func(_ *longhornguard.Look, in *guard.Input) { in.Settings.AtRest = storage.AtRestNone }),
			budget.ModeDefault,
			budget.Spec{Quiet: true},
			"a node once it is cordoned", "cordoned",
		},
		"none while one is away": {
			in(away("b")), budget.ModeDefault, budget.Spec{Quiet: true}, "a node once it is cordoned", "b",
		},
		"nor while one is away that is leaving, and may not leave any more": {
			in(away("b"), stays("b")), budget.ModeDefault, budget.Spec{Quiet: true}, "a node once it is cordoned", "b",
		},
		"none while replicas are moved, to a spare node perhaps": {
			in(evicted("b")), budget.ModeDefault,
			budget.Spec{Quiet: true},
			"a node once it is cordoned",
			"replicas are moved away from b",
		},
		"none while something cannot be read": {
			in(func(l *longhornguard.Look, _ *guard.Input) { l.Faults, l.Fault = 1, "Replica r" }),
			budget.ModeDefault,
			budget.Spec{Quiet: true},
			"a node once it is cordoned", "Replica r",
		},
		"one that leaves": {
			in(open("b")), budget.ModeOpen,
			budget.Spec{MinAvailable: everything, Key: "longhorn.io/node", Except: []string{"b"}},
			"", "b is cordoned",
		},
		"two that leave and share no volume": {
			in(open("b"), open("c")), budget.ModeOpen,
			budget.Spec{MinAvailable: everything, Key: "longhorn.io/node", Except: []string{"b", "c"}},
			"", "c is cordoned",
		},
		"Longhorn is not there": {
			in(func(_ *longhornguard.Look, in *guard.Input) { in.View.Unavailable = "not installed" }), budget.ModeClosed,
			budget.Spec{MinAvailable: everything},
			"", "not installed",
		},
		"another policy is in charge": {
			in(open("b"), func(_ *longhornguard.Look, in *guard.Input) { in.View.NotInCharge = "another one" }),
			budget.ModeClosed,
			budget.Spec{MinAvailable: everything},
			"", "another one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := longhornguard.Guard{}.Decide(c.in)
			require.Equal(t, c.mode, v.Decision.Mode)
			require.Equal(t, c.marked, v.Decision.Budget)
			require.Equal(t, c.answer, v.Decision.Answer)
			require.Contains(t, v.Decision.Message, c.says)
			require.Equal(t, c.marked.Except, v.Decision.Unproved.Except, "both budgets leave out the same nodes")
			require.False(t, c.mode != budget.ModeOpen && budget.Specs{Daemons: *v.Decision.Unproved}.LetsGo(),
				"nobody goes who has no mark")
		})
	}
}

// TestWhoWaitsAsksOften: a budget without a number is never done being processed for these pods, so that whoever asks
// is told to wait for ten seconds. It has one as soon as somebody may ask.
func TestWhoWaitsAsksOften(t *testing.T) {
	unmarked := func(c ...change) budget.Spec { return *longhornguard.Guard{}.Decide(in(c...)).Decision.Unproved }
	require.Equal(t, budget.Spec{Quiet: true}, unmarked())
	require.Equal(t, budget.Spec{MinAvailable: budget.Everything}, unmarked(waits("a", "b")))
	require.Equal(t, budget.Spec{MinAvailable: budget.Everything}, unmarked(holds("a")))
}

// TestMarksFollow: marks are set and taken away at rest alone.
func TestMarksFollow(t *testing.T) {
	marks := func(m storage.Marks) change {
		return func(_ *longhornguard.Look, in *guard.Input) { in.View.Marks = &m }
	}
	decide := func(c ...change) budget.MarkPlan { return longhornguard.Guard{}.Decide(in(c...)).Marks }
	require.Equal(t, budget.MarkPlan{Set: true, Most: 3}, decide(marks(storage.Marks{Proved: 2, Unproved: 1})),
		"no more than the budget counts")
	require.Equal(t, budget.MarkPlan{Unset: true}, decide(marks(storage.Marks{Stale: 1})))
	require.Equal(t, budget.MarkPlan{Unset: true, Held: []string{"a"}}, decide(marks(storage.Marks{Stale: 1}), holds("a")),
		"who takes it away has to see what the look saw")
	require.Equal(t, budget.MarkPlan{}, decide(marks(storage.Marks{Unproved: 1, Stale: 1}), open("a")))
	require.Equal(t, budget.MarkPlan{Unset: true, UnsetAll: true}, decide(marks(storage.Marks{Proved: 1}),
		func(_ *longhornguard.Look, in *guard.Input) { in.Settings.AtRest = storage.AtRestNone }))
}

// TestTurns: a node that had its turn for long enough while another one waited for it comes last.
func TestTurns(t *testing.T) {
	const long, short = 10 * time.Minute, time.Minute
	for name, c := range map[string]struct {
		in   guard.Input
		want string // of the nodes with a turn: who is spent, in brackets
	}{
		"it begins":                                {in(open("a")), "a"},
		"nobody waits":                             {in(open("a"), turn("a", long, false)), "a"},
		"not long enough":                          {in(open("a"), waits("b", "a"), turn("a", short, false)), "a"},
		"long enough":                              {in(open("a"), waits("b", "a"), turn("a", long, false)), "(a)"},
		"it waits for its next turn":               {in(open("b"), waits("a", "b"), turn("a", long, true)), "(a) b"},
		"which begins anew":                        {in(open("a"), turn("a", long, true)), "a"},
		"it is back in service":                    {in(turn("a", short, false)), ""},
		"it went, and is not back":                 {in(turn("a", short, false), away("a")), "a"},
		"it went at rest, whoever cordons it then": {in(away("a")), "a"},
		"nor for a long time":                      {in(gone("a", long, false), away("a")), ""},
		"it went, and may not leave any more":      {in(stays("a"), away("a")), "a"},
		"others wait for it, but not for ever": {
			in(stays("a"), away("a"), waits("b", "a"), gone("a", long, false)), "(a)",
		},
		"nor does a job": {
			in(stays("a"), away("a"), gone("a", long, false), func(l *longhornguard.Look, _ *guard.Input) {
				l.Admitted = append(l.Admitted, longhorn.Admission{Node: "b", Reason: longhorn.SharesVolume, Subject: "a"})
			}), "(a)",
		},
		"a machine that died takes none":                        {in(away("a"), dead("a")), ""},
		"one that is leaving may have been emptied, and reboot": {in(stays("a"), away("a"), dead("a")), "a"},
		"what cannot be seen takes no turn":                     {in(turn("a", short, false), unavailable), "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			after := longhornguard.Guard{}.Decide(c.in).Remembered
			for _, n := range []string{"a", "b", "c"} {
				switch a, has := after.Announced[n]; {
				case has && a.Spent:
					got = append(got, "("+n+")")
				case has:
					got = append(got, n)
				}
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
	since := longhornguard.Guard{}.Decide(in(open("a"), turn("a", long, true))).Remembered.Announced["a"].Opened
	require.Equal(t, now, since)
	after := longhornguard.Guard{}.Decide(in(open("a"))).Remembered
	require.Equal(t, now.Add(long), longhornguard.Guard{}.Next(in(open("a")), after, nil))
}

// TestTurnBeginsAnew: others wait for a node that went at the end of its turn, or after it, as for one that went at
// once.
func TestTurnBeginsAnew(t *testing.T) {
	const long = 10 * time.Minute
	for _, spent := range []bool{false, true} {
		went := in(stays("a"), away("a"), waits("b", "a"), turn("a", long, spent))
		require.Empty(t, longhornguard.Guard{}.Interest(went, nil).Over)
		a := longhornguard.Guard{}.Decide(went).Remembered.Announced["a"]
		require.Equal(t, budget.Announcement{Node: "a", Opened: now, Gone: true}, a)
	}
	over := in(stays("a"), away("a"), waits("b", "a"), gone("a", long, true))
	require.Equal(t, []string{"a"}, longhornguard.Guard{}.Interest(over, nil).Over)
	require.True(t, longhornguard.Guard{}.Decide(over).Remembered.Announced["a"].Spent)
}

// TestWhoHoldsTheLeaseGivesWay: a job that only accompanies the removal of a node keeps the lease for as long as that
// takes, and others wait for a turn. One that empties the node itself comes back to it, and others wait until then.
func TestWhoHoldsTheLeaseGivesWay(t *testing.T) {
	const long = 10 * time.Minute
	for turn, over := range map[time.Duration][]string{time.Minute: {"a"}, 0: nil} {
		held := in(stays("a"), away("a"), waits("b", "a"), gone("a", long, true))
		held.Lease.Holders = []lease.Claim{{WorkflowID: "scale-down/a", Node: "a", Turn: turn}}
		interest := longhornguard.Guard{}.Interest(held, nil)
		require.Equal(t, []string{"a"}, interest.Held)
		require.Equal(t, over, interest.Over)
		require.Empty(t, interest.Last)
	}
}

// TestLooksAgain: no event tells that a look would succeed which failed. Of an installation that is not there the watch
// tells.
func TestLooksAgain(t *testing.T) {
	failed := in(unavailable)
	require.Equal(t, now.Add(15*time.Second), longhornguard.Guard{}.Next(failed, budget.Remembered{}, nil))
	failed.View.At = now
	require.Zero(t, longhornguard.Guard{}.Next(failed, budget.Remembered{}, nil))

	seen := func(_ *longhornguard.Look, in *guard.Input) { in.View.Nodes = []storage.Node{{Name: "a"}} }
	require.Equal(t, now.Add(time.Second), longhornguard.Guard{}.Next(in(open("a"), seen), budget.Remembered{}, nil),
		"its job held the lease when the look began, and does no longer")
	require.Zero(t, longhornguard.Guard{}.Next(in(open("a"), seen, holds("a")), budget.Remembered{}, nil))
}

func dead(name string) change {
	return func(_ *longhornguard.Look, in *guard.Input) {
		in.View.Nodes = append(in.View.Nodes, storage.Node{Name: name, NotReady: true})
	}
}

func unavailable(_ *longhornguard.Look, in *guard.Input) { in.View.Unavailable = "not known" }

// TestInterest: whose turn it is comes first, then the queue, and last who had his turn.
func TestInterest(t *testing.T) {
	i := in(holds("a"), turn("b", time.Hour, true), turn("c", time.Hour, true), turn("x", 0, false), turn("y", 0, false))
	i.LeftOut = []string{"a", "b", "c", "x"}
	got := longhornguard.Guard{}.Interest(i, []lease.Claim{claim("a"), claim("b")})
	require.Equal(t, []string{"a"}, got.Held)
	require.Equal(t, []string{"x", "y"}, got.Domains, "b waits in the queue, and c had its turn")
	require.Equal(t, []string{"b", "c", "x", "y", "a"}, got.Went)
	require.Equal(t, []string{"b"}, got.Nodes)
	require.Equal(t, []string{"b", "c"}, got.Last, "b had its turn, too, and has a better place in the queue")
}

// TestLease: who gets it beside whom, whether what it promises is in place, and when it goes back.
func TestLease(t *testing.T) {
	g := longhornguard.Guard{}
	i := in(admitted("a", true), admitted("b", true), admitted("c", false))
	require.True(t, g.Gate(i, claim("a")).OK)
	require.Contains(t, g.Gate(i, claim("c")).Reason, "volume v has its last healthy replica here")
	require.False(t, g.Gate(i, claim("d")).OK, "nobody has looked at it")
	require.False(t, g.Gate(in(admitted("a", true), unavailable), claim("a")).OK)
	require.True(t, g.Together(i, claim("a"), claim("b")))
	require.False(t, g.Together(i, claim("a"), claim("c")))
	require.False(t, g.Together(i, claim("a"), claim("d")))
	require.True(t, g.Together(i, claim("d"), claim("d")))

	require.True(t, g.Serves(i, budget.Decision{}, claim("a")), "it opens as soon as nothing is attached")
	require.False(t, g.Serves(i, budget.Decision{}, claim("c")))

	require.True(t, g.Healed(in(), claim("a")).OK)
	require.False(t, g.Healed(in(away("a")), claim("a")).OK)
	require.True(t, g.Healed(in(away("a"), open("a")), claim("a")).OK, "it is leaving")
	require.True(t, g.Healed(in(), claim("gone")).OK)
	require.False(t, g.Healed(in(unavailable), claim("a")).OK)
}

// TestRelocate: what becomes of the replicas on nodes that are leaving. Nobody knows while nothing is known of
// Longhorn.
func TestRelocate(t *testing.T) {
	v := longhornguard.Guard{}.Decide(in(evicted("b"), func(l *longhornguard.Look, in *guard.Input) {
		open("c")(l, in)
		l.Nodes[2].Evict = longhorn.Closed
	}))
	require.Equal(t, []storage.Relocation{{Node: "b", Away: true}, {Node: "c"}}, v.Relocate)
	require.Equal(t, []storage.Relocation{}, longhornguard.Guard{}.Decide(in()).Relocate, "what is ours is taken back")
	require.Nil(t, longhornguard.Guard{}.Decide(in(evicted("b"), func(l *longhornguard.Look, _ *guard.Input) {
		l.Moves = nil
	})).Relocate)
	unavailable := func(_ *longhornguard.Look, in *guard.Input) { in.View.Unavailable = "no answer" }
	require.Nil(t, longhornguard.Guard{}.Decide(in(evicted("b"), unavailable)).Relocate)
}
