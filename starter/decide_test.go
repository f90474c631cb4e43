package starter

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// healthy is a storage cluster at rest: three nodes with two OSDs each.
func healthy() Snapshot {
	return Snapshot{
		Generation: 1,
		OSDs: map[string]OSD{
			"osd.0": {Pod: storage.PodReady, Node: "node-a"}, "osd.1": {Pod: storage.PodReady, Node: "node-a"},
			"osd.2": {Pod: storage.PodReady, Node: "node-b"}, "osd.3": {Pod: storage.PodReady, Node: "node-b"},
			"osd.4": {Pod: storage.PodReady, Node: "node-c"}, "osd.10": {Pod: storage.PodReady, Node: "node-c"},
		},
		Nodes: map[string]Node{},
		Budgets: map[string]Budget{
			"lockkeeper-osd": {Spec: `{"minAvailable":5}`, Writer: kube.FieldOwner, Ours: true, Daemon: kube.DaemonOSD},
			"lockkeeper-mon": {Spec: `{"minAvailable":2}`, Writer: kube.FieldOwner, Ours: true, Daemon: kube.DaemonMon},
			"lockkeeper-mds": {Spec: `{"minAvailable":1}`, Writer: kube.FieldOwner, Ours: true, Daemon: "mds"},
		},
		Daemons: map[string]Daemon{"mon": {Replicas: 3, Ready: 3}, "mds myfs": {Replicas: 2}},
	}
}

// with returns a healthy cluster after some changes.
func with(edits ...func(*Snapshot)) Snapshot {
	s := healthy()
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

func pod(osd string, state storage.PodState) func(*Snapshot) {
	return func(s *Snapshot) {
		o := s.OSDs[osd]
		o.Pod = state
		s.OSDs[osd] = o
	}
}

func node(name string, n Node) func(*Snapshot) {
	return func(s *Snapshot) { s.Nodes[name] = n }
}

func budget(name string, b Budget) func(*Snapshot) {
	return func(s *Snapshot) { s.Budgets[name] = b }
}

func beside(s *Snapshot) {
	osd := s.OSDs["osd.3"]
	osd.Beside = true
	s.OSDs["osd.3"] = osd
}

func behind(first string) func(*Snapshot) { return func(s *Snapshot) { s.Second = first } }

func rival(younger string) func(*Snapshot) { return func(s *Snapshot) { s.Rival = younger } }

func keeperClaims(s *Snapshot) { s.Claimed = true }

func TestDecide(t *testing.T) {
	cordoned := node("node-b", Node{Cordoned: true})
	drainOfB := map[string]string{"node-b": "node-b is cordoned, and osd.3 on node-b is pending"}
	tests := map[string]struct {
		before, now Snapshot
		reason      string
		daemons     bool
		drains      map[string]string
	}{
		"nothing changed": {before: healthy(), now: healthy()},
		"an OSD is not ready": {
			before: healthy(), now: with(pod("osd.3", storage.PodNotReady)),
			reason: "osd.3 on node-b is not ready",
		},
		"a pod was let go out of turn": {
			before: healthy(), now: with(func(s *Snapshot) { s.LetGo = "osd-3-x" }),
			reason: "osd-3-x may go out of turn",
		},
		"it has gone, or was taken back": {
			before: with(func(s *Snapshot) { s.LetGo = "osd-3-x" }), now: healthy(),
		},
		"an OSD is ready again": {
			before: with(pod("osd.3", storage.PodPending)), now: healthy(),
			reason: "osd.3 is ready",
		},
		"another policy was first": {before: healthy(), now: with(behind("older"), pod("osd.3", storage.PodPending),
			cordoned), reason: "policy older was first to look after the same storage cluster"},
		"it is still the other's": {
			before: with(behind("older")),
			now:    with(behind("older"), pod("osd.3", storage.PodPending), cordoned),
		},
		"the other policy is gone": {
			before: with(behind("older"), pod("osd.3", storage.PodPending), cordoned),
			now:    with(pod("osd.3", storage.PodPending), cordoned),
			reason: "policy older no longer looks after the same storage cluster", daemons: true, drains: drainOfB,
		},
		"a younger policy is in the way": {
			before: healthy(), now: with(rival("zoo/ceph")),
			reason: "policy zoo/ceph looks after the same storage cluster and has to stand aside",
		},
		"it stood aside": {
			before: with(rival("zoo/ceph")), now: healthy(),
			reason: "policy zoo/ceph stood aside",
		},
		"the claim is lost": {
			before: with(keeperClaims), now: healthy(),
			reason: "the claim to the storage cluster is gone from the policy's status",
		},
		"the claim is written": {before: healthy(), now: with(keeperClaims)},
		"an OSD is evicted": {
			before: healthy(), now: with(pod("osd.3", storage.PodTerminating)),
			reason: "osd.3 on node-b is terminating",
		},
		"its pod was replaced": {
			before: with(pod("osd.3", storage.PodTerminating)),
			now:    with(pod("osd.3", storage.PodPending)),
		},
		"an OSD is scaled to nothing": {
			before: healthy(), now: with(pod("osd.3", storage.PodNone)),
			reason: "osd.3 on node-b has no pod",
		},
		"bad news before good, by number": {
			before: with(pod("osd.0", storage.PodPending)),
			now:    with(pod("osd.10", storage.PodPending), pod("osd.4", storage.PodNotReady)),
			reason: "osd.4 on node-c is not ready, osd.10 on node-c is pending, osd.0 is ready",
		},
		"many at once": {
			before: healthy(),
			now: with(pod("osd.0", storage.PodPending), pod("osd.1", storage.PodPending), pod("osd.2", storage.PodPending),
				pod("osd.3", storage.PodPending)),
			reason: "osd.0 on node-a is pending, osd.1 on node-a is pending, osd.2 on node-b is pending, and 1 more",
		},
		"an OSD is new": {
			before: healthy(),
			now:    with(func(s *Snapshot) { s.OSDs["osd.11"] = OSD{Pod: storage.PodPending} }), reason: "osd.11 is new",
		},
		"an OSD is removed": {
			before: healthy(), now: with(func(s *Snapshot) { delete(s.OSDs, "osd.3") }),
			reason: "osd.3 has no pod any more",
		},
		"an OSD has two pods":      {before: healthy(), now: with(beside), reason: "osd.3 has a second pod"},
		"an OSD has one pod again": {before: with(beside), now: healthy(), reason: "osd.3 has no second pod any more"},
		"an OSD moved": {
			before: healthy(),
			now:    with(func(s *Snapshot) { s.OSDs["osd.3"] = OSD{Pod: storage.PodReady, Node: "node-c"} }),
			reason: "osd.3 is on node-c now",
		},
		"a disk is being replaced": {
			before: healthy(),
			now:    with(func(s *Snapshot) { s.OSDs["osd.3"] = OSD{Pod: storage.PodReady, Node: "node-b", Replacing: true} }),
			reason: "the replacement of osd.3 began",
		},

		"a cordon announces": {before: healthy(), now: with(cordoned), reason: "node-b is cordoned"},
		"an uncordon":        {before: with(cordoned), now: healthy(), reason: "node-b is uncordoned"},
		"an autoscaler's taint": {
			before: healthy(),
			now:    with(node("node-b", Node{Tainted: "ToBeDeletedByClusterAutoscaler"})),
			reason: "node-b is tainted ToBeDeletedByClusterAutoscaler",
		},
		"the autoscaler gave up": {
			before: with(node("node-b", Node{Tainted: "karpenter.sh/disrupted"})),
			now:    healthy(), reason: "node-b is no longer tainted karpenter.sh/disrupted",
		},
		"a node is lost": {
			before: healthy(), now: with(node("node-b", Node{NotReady: true})),
			reason: "node-b is not ready",
		},
		"a lost node is no drain": {before: healthy(), now: with(node("node-b", Node{NotReady: true}),
			pod("osd.3", storage.PodNotReady)), reason: "osd.3 on node-b is not ready, node-b is not ready"},
		"a deleted node is a drain": {
			before: healthy(),
			now:    with(node("node-b", Node{Gone: true}), pod("osd.3", storage.PodPending)),
			reason: "osd.3 on node-b is pending, node-b is deleted",
			drains: map[string]string{"node-b": "node-b is deleted, and osd.3 on node-b is pending"},
		},
		"a drain begins": {
			before: with(cordoned), now: with(cordoned, pod("osd.3", storage.PodPending)),
			reason: "osd.3 on node-b is pending", drains: drainOfB,
		},
		"a cordon after the OSD": {
			before: with(pod("osd.3", storage.PodPending)),
			now:    with(cordoned, pod("osd.3", storage.PodPending)), reason: "node-b is cordoned", drains: drainOfB,
		},
		"a drain goes on": {
			before: with(cordoned, pod("osd.3", storage.PodPending)),
			now:    with(cordoned, pod("osd.3", storage.PodPending), pod("osd.2", storage.PodPending)),
			reason: "osd.2 on node-b is pending",
		},
		"a crash loop on it": {
			before: with(cordoned), now: with(cordoned, pod("osd.3", storage.PodNotReady)),
			reason: "osd.3 on node-b is not ready",
			drains: map[string]string{"node-b": "node-b is cordoned, and osd.3 on node-b is not ready"},
		},
		"a disk that is replaced": {
			before: with(cordoned),
			now: with(cordoned, func(s *Snapshot) {
				s.OSDs["osd.3"] = OSD{
					Pod: storage.PodPending, Node: "node-b",
					Replacing: true,
				}
			}), reason: "osd.3 on node-b is pending",
		},
		"another node stays cordoned": {
			before: with(node("node-a", Node{Cordoned: true})),
			now:    with(node("node-a", Node{Cordoned: true}), pod("osd.3", storage.PodPending)),
			reason: "osd.3 on node-b is pending",
		},
		"a budget is deleted": {
			before: healthy(),
			now:    with(func(s *Snapshot) { delete(s.Budgets, "lockkeeper-osd") }), reason: "budget lockkeeper-osd is deleted",
		},
		"a static budget is deleted": {
			before: healthy(),
			now:    with(func(s *Snapshot) { delete(s.Budgets, "lockkeeper-mds") }), reason: "budget lockkeeper-mds is deleted",
			daemons: true,
		},
		"a budget is edited": {
			before: healthy(),
			now: with(budget("lockkeeper-osd", Budget{
				Spec: `{"minAvailable":0}`, Writer: "kubectl-edit", Ours: true,
				Daemon: kube.DaemonOSD,
			})), reason: "budget lockkeeper-osd was changed by kubectl-edit",
		},
		"the keeper's own word echoes": {
			before: healthy(),
			now: with(budget("lockkeeper-osd", Budget{
				Spec: `{"minAvailable":4}`, Writer: kube.FieldOwner, Ours: true,
				Daemon: kube.DaemonOSD,
			})), reason: "budget lockkeeper-osd was changed by lockkeeper",
		},
		"a static budget is edited": {
			before: healthy(),
			now: with(budget("lockkeeper-mds", Budget{
				Spec: `{"minAvailable":0}`, Writer: "kubectl-edit", Ours: true,
				Daemon: "mds",
			})), reason: "budget lockkeeper-mds was changed by kubectl-edit", daemons: true,
		},
		"a foreign budget": {
			before: healthy(),
			now:    with(budget("rook-ceph-osd", Budget{Spec: `{"maxUnavailable":1}`, Writer: "rook"})),
			reason: "budget rook-ceph-osd of somebody else appeared", daemons: true,
		},
		"Longhorn makes one, which is empty": {
			before: healthy(), now: with(budget("instance-manager-a", Budget{Spec: "none", Writer: "longhorn", Empty: true})),
		},
		"and deletes it": {
			before: with(budget("instance-manager-a", Budget{Spec: "none", Writer: "longhorn", Empty: true})), now: healthy(),
		},
		"lockkeeper empties it": {
			before: with(budget("instance-manager-a", Budget{Spec: "one", Writer: "longhorn"})),
			now:    with(budget("instance-manager-a", Budget{Spec: "none", Writer: kube.FieldOwner, Empty: true})),
		},
		"Longhorn makes one, which is full": {
			before: healthy(), now: with(budget("instance-manager-a", Budget{Spec: "one", Writer: "longhorn"})),
			reason: "budget instance-manager-a of somebody else appeared", daemons: true,
		},
		"it is filled again": {
			before: with(budget("instance-manager-a", Budget{Spec: "none", Writer: "longhorn", Empty: true})),
			now:    with(budget("instance-manager-a", Budget{Spec: "one", Writer: "kubectl-edit"})),
			reason: "budget instance-manager-a was changed by kubectl-edit", daemons: true,
		},
		"one is empty, and there are none of ours": {
			before: with(func(s *Snapshot) { s.Budgets = map[string]Budget{} }),
			now: with(func(s *Snapshot) {
				s.Budgets = map[string]Budget{"instance-manager-a": {Spec: "none", Writer: "longhorn", Empty: true}}
			}),
			reason: "budget instance-manager-a of somebody else appeared", daemons: true,
		},
		"written without a change": {
			before: healthy(),
			now: with(budget("lockkeeper-osd",
				Budget{Spec: `{"minAvailable":5}`, Writer: "kubectl-label", Ours: true, Daemon: kube.DaemonOSD})),
		},

		"mds is scaled": {
			before: healthy(),
			now:    with(func(s *Snapshot) { s.Daemons["mds myfs"] = Daemon{Replicas: 3} }),
			reason: "mds myfs: 3 replicas instead of 2", daemons: true,
		},
		"a mon restarts": {
			before: healthy(),
			now:    with(func(s *Snapshot) { s.Daemons["mon"] = Daemon{Replicas: 3, Ready: 2} }), reason: "mon: 2 of 3 ready",
		},
		"rgw is gone": {
			before: with(func(s *Snapshot) { s.Daemons["rgw store"] = Daemon{Replicas: 2} }),
			now:    healthy(), reason: "rgw store: 0 replicas instead of 2", daemons: true,
		},
		"the policy changed": {
			before: healthy(), now: with(func(s *Snapshot) { s.Generation = 2 }),
			reason: "the policy changed", daemons: true,
		},
		"the policy is going": {
			before: healthy(), now: with(func(s *Snapshot) { s.Deleting, s.Generation = true, 2 }),
			reason: "the policy is being deleted",
		},
		"no news to a keeper that retires": {
			before: with(func(s *Snapshot) { s.Deleting = true }),
			now:    with(cordoned, pod("osd.3", storage.PodPending), func(s *Snapshot) { s.Deleting, s.Budgets = true, nil }),
		},
		"an invalid policy does not look like lost OSDs": {
			before: healthy(),
			now:    Snapshot{Generation: 2, Invalid: "spec.ceph: is required"}, reason: "the policy changed", daemons: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Decide(&test.before, test.now)
			assert.Equal(t, test.reason, got.Hint.Reason)
			assert.Equal(t, test.daemons, got.Hint.Daemons, "daemons")
			if len(test.drains) == 0 {
				assert.Empty(t, got.Drains)
			} else {
				assert.Equal(t, test.drains, got.Drains)
			}
		})
	}
}

// TestAlarm: a keeper at rest must close at once when a pod stops serving, and only then.
func TestAlarm(t *testing.T) {
	before := healthy()
	for _, state := range []storage.PodState{
		storage.PodNotReady, storage.PodTerminating, storage.PodPending,
		storage.PodNone,
	} {
		assert.True(t, Decide(&before, with(pod("osd.3", state))).Hint.Alarm, string(state))
	}
	away := with(pod("osd.3", storage.PodPending))
	assert.False(t, Decide(&away, healthy()).Hint.Alarm, "it is back")
	assert.False(t, Decide(&away, with(pod("osd.3", storage.PodNone))).Hint.Alarm, "it was away before")
	assert.False(t, Decide(&before, with(node("node-b", Node{Cordoned: true}))).Hint.Alarm, "nothing has gone yet")
}

// TestTampered: what somebody else did to a budget that the keeper decides is mended before anybody looks.
func TestTampered(t *testing.T) {
	before := healthy()
	assert.True(t, Decide(&before, with(func(s *Snapshot) { delete(s.Budgets, "lockkeeper-osd") })).Hint.Tampered,
		"deleted")
	assert.True(t, Decide(&before,
		with(budget("lockkeeper-osd",
			Budget{Spec: "new", Writer: "kubectl-edit", Ours: true, Daemon: kube.DaemonOSD}))).Hint.Tampered, "changed")
	assert.True(t, Decide(&before,
		with(budget("lockkeeper-osd", Budget{Spec: "new", Writer: "kubectl-edit"}))).Hint.Tampered, "taken over")
	assert.False(t, Decide(&before,
		with(budget("lockkeeper-osd",
			Budget{Spec: "new", Writer: kube.FieldOwner, Ours: true, Daemon: kube.DaemonOSD}))).Hint.Tampered, "our own write")
	assert.False(t, Decide(&before, with(func(s *Snapshot) { delete(s.Budgets, "lockkeeper-mds") })).Hint.Tampered,
		"follows from replicas")
	assert.False(t, Decide(&before, with(budget("theirs", Budget{Spec: "new", Writer: "helm"}))).Hint.Tampered,
		"somebody else's")
}

// TestEcho: what lockkeeper wrote itself is told as such only if nothing else changed with it.
func TestEcho(t *testing.T) {
	before := healthy()
	osds := budget("lockkeeper-osd",
		Budget{Spec: "new", Writer: kube.FieldOwner, Ours: true, Daemon: kube.DaemonOSD, Generation: 7})
	mons := budget("lockkeeper-mon",
		Budget{Spec: "new", Writer: kube.FieldOwner, Ours: true, Daemon: kube.DaemonMon, Generation: 5})
	h := Decide(&before, with(osds, mons)).Hint
	assert.Equal(t, []int64{7, 5}, []int64{h.Echo, h.MonEcho})
	h = Decide(&before, with(osds, mons, node("node-b", Node{Cordoned: true}))).Hint
	assert.Zero(t, h.Echo+h.MonEcho, "a cordon is news")
	h = Decide(&before, with(budget("lockkeeper-mon",
		Budget{Spec: "new", Writer: "kubectl-edit", Ours: true, Daemon: kube.DaemonMon, Generation: 5}))).Hint
	assert.Zero(t, h.MonEcho, "somebody else wrote it")
}

// TestOwn: that lockkeeper made all that is new by itself is said only while that is so, and what joins two hints does
// not forget it.
func TestOwn(t *testing.T) {
	before := healthy()
	ours := with(budget("lockkeeper-mon",
		Budget{Spec: "new", Writer: kube.FieldOwner, Ours: true, Daemon: kube.DaemonMon, Generation: 5}))
	own := Decide(&before, ours).Hint
	assert.NotEmpty(t, own.Reason)
	assert.True(t, own.Own)
	cordon := Decide(&before, with(node("node-b", Node{Cordoned: true}))).Hint
	assert.NotEmpty(t, cordon.Reason)
	assert.False(t, cordon.Own)
	assert.False(t, joinHints(own, cordon).Own)
	assert.False(t, joinHints(cordon, own).Own)
	assert.True(t, joinHints(own, own).Own)
	assert.True(t, joinHints(workflows.Hint{}, own).Own)
	assert.False(t, joinHints(workflows.Hint{}, workflows.Hint{}).Own, "nothing is nobody's")
}

func TestDecideAtStart(t *testing.T) {
	got := Decide(nil, with(node("node-b", Node{Cordoned: true}), pod("osd.3", storage.PodPending),
		node("node-a", Node{Cordoned: true})))
	assert.Equal(t, "the watcher started", got.Hint.Reason)
	assert.True(t, got.Hint.Daemons)
	assert.Equal(t, []string{"node-b"}, sortedKeys(got.Drains), "a cordon alone is no drain yet")
}

// drawSnapshot makes any state of a small cluster.
func drawSnapshot(t *rapid.T) Snapshot {
	states := rapid.SampledFrom([]storage.PodState{
		storage.PodReady, storage.PodNotReady, storage.PodPending,
		storage.PodTerminating, storage.PodNone,
	})
	nodes := []string{"node-a", "node-b", "node-c", ""}
	s := Snapshot{
		Generation: rapid.Int64Range(1, 2).Draw(t, "generation"), OSDs: map[string]OSD{},
		Nodes: map[string]Node{}, Budgets: map[string]Budget{}, Daemons: map[string]Daemon{},
	}
	for _, name := range []string{"osd.0", "osd.1", "osd.2", "osd.10"} {
		if rapid.Bool().Draw(t, name) {
			s.OSDs[name] = OSD{
				Pod: states.Draw(t, "pod"), Node: rapid.SampledFrom(nodes).Draw(t, "on"),
				Replacing: rapid.IntRange(0, 9).Draw(t, "replacing") == 0,
			}
		}
	}
	for _, name := range nodes[:3] {
		n := Node{
			Cordoned: rapid.Bool().Draw(t, "cordoned"), NotReady: rapid.Bool().Draw(t, "not ready"),
			Gone: rapid.Bool().Draw(t, "gone"),
		}
		if n != (Node{}) {
			s.Nodes[name] = n
		}
	}
	if rapid.Bool().Draw(t, "budget") {
		s.Budgets["b"] = Budget{
			Spec: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "spec"),
			Ours: rapid.Bool().Draw(t, "ours"),
		}
	}
	s.Daemons["mon"] = Daemon{Replicas: rapid.IntRange(1, 3).Draw(t, "mons")}
	return s
}

func TestRestCallsForNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		assert.True(t, Decide(&s, s).IsZero())
	})
}

func TestEveryChangeThatMattersIsTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, now := drawSnapshot(t), drawSnapshot(t)
		assert.Equal(t, !alike(before, now), Decide(&before, now).Hint.Reason != "")
	})
}

// alike is the dumb model: equal, but for whether a pod that is on its way out has been replaced already.
func alike(a, b Snapshot) bool {
	plain := func(s Snapshot) map[string]OSD {
		out := maps.Clone(s.OSDs)
		for name, o := range out {
			if o.Pod == storage.PodTerminating {
				o.Pod = storage.PodPending
			}
			out[name] = o
		}
		return out
	}
	return a.Generation == b.Generation && maps.Equal(plain(a), plain(b)) && maps.Equal(a.Nodes, b.Nodes) &&
		maps.Equal(a.Budgets, b.Budgets) && maps.Equal(a.Daemons, b.Daemons)
}

func TestADrainIsObservedOncePerEpisode(t *testing.T) {
	// Whatever happens in between, a node's drains are as many as the times it began to be drained.
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SliceOfN(rapid.Custom(drawSnapshot), 1, 8).Draw(t, "history")
		started, episodes := map[string]int{}, map[string]int{}
		var before *Snapshot
		open := map[string]bool{}
		for _, now := range history {
			for name := range Decide(before, now).Drains {
				started[name]++
			}
			for _, name := range []string{"node-a", "node-b", "node-c"} {
				is := false
				for _, osd := range now.OSDs {
					is = is || osd.Node == name && osd.Pod != storage.PodReady && !osd.Replacing && now.Nodes[name].Leaving()
				}
				if is && !open[name] {
					episodes[name]++
				}
				open[name] = is
			}
			before = &now
		}
		assert.Equal(t, episodes, started)
	})
}

// TestACordonWithinWhatIsOpenCanWait: the job that has the lease cordons its node, and what it evicts follows at once.
func TestACordonWithinWhatIsOpenCanWait(t *testing.T) {
	opened := func(of ...string) func(*Snapshot) {
		return func(s *Snapshot) {
			for _, name := range of {
				osd(name, open)(s)
			}
		}
	}
	cordoned, whole := node("node-b", Node{Cordoned: true}), healthy()
	var onB []string
	for name, o := range whole.OSDs {
		if o.Node == "node-b" {
			onB = append(onB, name)
		}
	}
	assert.NotEmpty(t, onB)
	before := with(opened(onB...))
	assert.Positive(t, Decide(&before, with(opened(onB...), cordoned)).Patience)
	assert.Zero(t, Decide(&whole, with(cordoned)).Patience, "it opens a domain")
	part := with(opened(onB[0]))
	assert.Zero(t, Decide(&part, with(opened(onB[0]), cordoned)).Patience, "one of its OSDs may not go yet")
	none := with(func(s *Snapshot) { s.OSDs = nil })
	assert.Zero(t, Decide(&none, with(cordoned, func(s *Snapshot) { s.OSDs = nil })).Patience, "it may have a mon")
	longhorn := func(s *Snapshot) { s.Kind = storage.Longhorn }
	another := with(longhorn)
	told := Decide(&another, with(longhorn, cordoned))
	assert.Equal(t, "node-b is cordoned", told.Hint.Reason)
	assert.Equal(t, stepAfter, told.Patience, "its keeper watches nodes itself")
}

// TestPatience: what stops serving is told at once. What comes back does so in steps, of which only the last is of use
// to anybody soon.
func TestPatience(t *testing.T) {
	away, coming := with(pod("osd.1", storage.PodPending)), with(pod("osd.1", storage.PodNotReady))
	ready := func(n int) func(*Snapshot) {
		return func(s *Snapshot) { s.Daemons = map[string]Daemon{"mgr": {Replicas: 2, Ready: n}} }
	}
	whole, all, one := with(), with(ready(2)), with(ready(1))
	for name, c := range map[string]struct {
		before, now Snapshot
		want        time.Duration
	}{
		"an OSD stops serving":               {whole, coming, 0},
		"its pod starts":                     {away, coming, stepAfter},
		"it is ready":                        {coming, whole, backAfter},
		"a manager stops serving":            {all, one, 0},
		"it is ready again":                  {one, all, otherAfter},
		"one starts while another one stops": {with(ready(1), pod("osd.1", storage.PodPending)), with(ready(2)), backAfter},
		"one is back when another one goes": {
			with(ready(1)), with(ready(2), pod("osd.1", storage.PodNotReady)), 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := Decide(&c.before, c.now)
			assert.NotEmpty(t, a.Hint.Reason)
			assert.Equal(t, c.want, a.Patience)
		})
	}
	step, last, loss := Decide(&away, coming), Decide(&coming, whole), Decide(&all, one)
	assert.Equal(t, backAfter, step.then(last, whole).Patience)
	assert.Equal(t, stepAfter, step.then(Actions{}, coming).Patience)
	assert.Equal(t, stepAfter, Actions{}.then(step, coming).Patience)
	assert.Zero(t, step.then(loss, one).Patience)
	echo := with(budget("lockkeeper-osd", Budget{
		Spec: `{"minAvailable":4}`, Writer: kube.FieldOwner, Ours: true, Daemon: kube.DaemonOSD, Generation: 2,
	}))
	own := Decide(&whole, echo)
	assert.True(t, own.Hint.IsEcho())
	assert.Equal(t, echoAfter, own.Patience)
	assert.Equal(t, stepAfter, own.then(step, coming).Patience, "an echo does not hurry what can wait")
	assert.Zero(t, own.then(loss, one).Patience)
	assert.Zero(t, loss.then(step, one).Patience, "what could not be told at once is told as soon as it can be")
}
