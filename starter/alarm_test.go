package starter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func osd(name string, change func(*OSD)) func(*Snapshot) {
	return func(s *Snapshot) {
		o := s.OSDs[name]
		change(&o)
		s.OSDs[name] = o
	}
}

// marked gives every OSD a life, and the mark that names it.
func marked(s *Snapshot) {
	for name, o := range s.OSDs {
		o.Life = name + "-uid.0"
		o.Mark = o.Life
		s.OSDs[name] = o
	}
}

func open(o *OSD)        { o.Open = true }
func opened(s *Snapshot) { s.Opened = true }
func notReady(o *OSD)    { o.Pod = storage.PodNotReady }
func restarted(o *OSD)   { o.Life += "-and-again" }
func replaced(o *OSD)    { o.Life, o.Mark = "another-uid.0", "" }

// TestAlarmClosesBeforeAnybodyLooks says what a watcher closes for by itself.
func TestAlarmClosesBeforeAnybodyLooks(t *testing.T) {
	closed := func(writer string) func(*Snapshot) {
		return budget("lockkeeper-osd", Budget{Spec: "closed", Writer: writer, Ours: true, Daemon: kube.DaemonOSD})
	}
	template := func(names ...string) func(*Snapshot) { return func(s *Snapshot) { s.MarkedTemplates = names } }
	rest := with(marked)
	tests := map[string]struct {
		before *Snapshot
		now    Snapshot
		why    string
	}{
		"nothing changed": {before: &rest, now: with(marked)},
		"an OSD is not ready": {
			before: &rest, now: with(marked, osd("osd.3", notReady)),
			why: "osd.3 on node-b is not ready",
		},
		"an OSD is gone": {
			before: &rest,
			now:    with(marked, func(s *Snapshot) { delete(s.OSDs, "osd.3") }), why: "osd.3 is ",
		},
		"an OSD was away between two snapshots": {
			before: &rest, now: with(marked, osd("osd.3", replaced)),
			why: "osd.3 has another pod, or its containers were started again",
		},
		"its containers were started again": {
			before: &rest, now: with(marked, osd("osd.3", restarted)),
			why: "osd.3 has another pod, or its containers were started again",
		},
		"many at once": {
			before: &rest,
			now:    with(marked, osd("osd.0", notReady), osd("osd.1", notReady), osd("osd.2", notReady), osd("osd.4", notReady)),
			why:    "osd.0 on node-a is not ready, osd.1 on node-a is not ready, osd.2 on node-b is not ready, and 1 more",
		},
		"an OSD is proved": {
			before: new(with(marked, osd("osd.3", replaced))),
			now:    with(marked, osd("osd.3", func(o *OSD) { o.Life, o.Mark = "another-uid.0", "another-uid.0" })),
		},
		"an OSD loses its mark": {
			before: &rest,
			now:    with(marked, osd("osd.3", func(o *OSD) { o.Mark = "" })),
		},
		"an OSD is back": {
			before: new(with(marked, osd("osd.3", notReady), osd("osd.3", replaced))),
			now:    with(marked, osd("osd.3", replaced)),
		},
		"an OSD is still not ready": {
			before: new(with(marked, osd("osd.3", notReady))),
			now:    with(marked, osd("osd.3", notReady)),
		},
		"an OSD is new": {
			before: &rest,
			now:    with(marked, func(s *Snapshot) { s.OSDs["osd.11"] = OSD{Pod: storage.PodPending} }),
		},
		"a mark that is of another pod": {
			before: &rest,
			now:    with(marked, osd("osd.3", func(o *OSD) { o.Mark = "osd.4-uid.0" })),
			why:    "osd.3 carries a mark that is not its own",
		},
		"a mark on a pod that is not ready": {
			before: new(with(marked, osd("osd.3", notReady), osd("osd.3", func(o *OSD) { o.Mark = "" }))),
			now:    with(marked, osd("osd.3", notReady)), why: "osd.3 carries a mark that is not its own",
		},
		"a false mark of which it was told": {
			before: new(with(marked, osd("osd.3", func(o *OSD) { o.Mark = "x" }))),
			now:    with(marked, osd("osd.3", func(o *OSD) { o.Mark = "x" })),
		},
		"a pod of the open domain goes": {
			before: new(with(marked, osd("osd.3", open))),
			now:    with(marked, osd("osd.3", open), osd("osd.3", notReady)),
		},
		"the domain of a lost pod opens": {
			before: &rest,
			now:    with(marked, osd("osd.3", open), osd("osd.3", notReady)),
		},
		"one of another domain goes, too": {
			before: new(with(marked, osd("osd.3", open))),
			now:    with(marked, osd("osd.3", open), osd("osd.3", notReady), osd("osd.4", notReady)),
			why:    "osd.4 on node-c is not ready",
		},
		"a disk is being replaced": {
			before: &rest,
			now:    with(marked, osd("osd.3", notReady), osd("osd.3", func(o *OSD) { o.Replacing = true })),
		},
		"a node is cordoned": {before: &rest, now: with(marked, node("node-b", Node{Cordoned: true}))},
		"a stranger changes a budget": {
			before: &rest, now: with(marked, closed("kubectl-edit")),
			why: "budget lockkeeper-osd was changed or deleted",
		},
		"a budget is deleted": {
			before: &rest,
			now:    with(marked, func(s *Snapshot) { delete(s.Budgets, "lockkeeper-mon") }),
			why:    "budget lockkeeper-mon was changed or deleted",
		},
		"a budget that follows from replicas": {
			before: &rest,
			now:    with(marked, func(s *Snapshot) { delete(s.Budgets, "lockkeeper-mds") }),
		},
		"the keeper changes a budget": {before: &rest, now: with(marked, closed(kube.FieldOwner))},
		"another watcher closed":      {before: &rest, now: with(marked, closed(kube.WatcherOwner))},
		"a template has a mark": {
			before: &rest, now: with(marked, template("Deployment a")),
			why: "the pod template of Deployment a has a mark: remove the label there",
		},
		"a template of which it was told": {
			before: new(with(marked, template("Deployment a"))),
			now:    with(marked, template("Deployment a")),
		},
		"the template is mended": {before: new(with(marked, template("Deployment a"))), now: with(marked)},
		"the policy is going, which may take long": {
			before: &rest,
			now:    with(marked, osd("osd.3", notReady), func(s *Snapshot) { s.Deleting = true }),
			why:    "osd.3 on node-b is not ready",
		},
		"the policy is going, and its budgets with it": {
			before: &rest,
			now:    with(marked, func(s *Snapshot) { s.Deleting, s.Budgets = true, nil }),
		},
		"the policy is second": {before: &rest, now: with(marked, osd("osd.3", notReady), behind("older"))},
		"the policy makes no sense": {
			before: &rest,
			now:    Snapshot{Generation: 2, Invalid: "spec.ceph: is required"},
		},
		"at start, everybody is what was proved": {now: with(marked)},
		"at start, an OSD without a mark": {
			now: with(marked, osd("osd.3", notReady), osd("osd.3", func(o *OSD) { o.Mark = "" })),
		},
		"at start, a marked pod is not ready": {
			now: with(marked, osd("osd.3", notReady)),
			why: "osd.3 is not what was proved",
		},
		"at start, it was started again": {
			now: with(marked, osd("osd.3", restarted)),
			why: "osd.3 is not what was proved",
		},
		"at start, with a domain open, an OSD without a mark": {
			now: with(marked, opened, osd("osd.0", open), osd("osd.3", notReady), osd("osd.3", func(o *OSD) { o.Mark = "" })),
			why: "osd.3 on node-b is not ready",
		},
		"at start, with a domain open, a disk is being replaced": {
			now: with(marked, opened, osd("osd.3", func(o *OSD) { *o = OSD{Pod: storage.PodNone, Replacing: true} })),
		},
		"at start, an open domain": {now: with(marked, opened, osd("osd.3", open), osd("osd.3", notReady))},
		"at start, a template has a mark": {
			now: with(marked, template("Deployment a")),
			why: "the pod template of Deployment a has a mark: remove the label there",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			why := Alarm(test.before, test.now)
			if test.why == "" {
				assert.Empty(t, why)
			} else {
				assert.Contains(t, why, test.why)
			}
		})
	}
}

// TestTheKeeperHearsOfEveryAlarm: whoever closes by itself may be another watcher than the one that tells the keeper.
// What the latter tells makes the keeper look, and so find the alarm on the budgets.
func TestTheKeeperHearsOfEveryAlarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, now := drawLives(t), drawLives(t)
		if Alarm(&before, now) == "" {
			return // it calls for nothing
		}
		assert.NotEmpty(t, Decide(&before, now).Hint.Reason)
	})
}

// TestNoAlarmWithoutAChange: else two watchers would have each other close for ever.
func TestNoAlarmWithoutAChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawLives(t)
		assert.Empty(t, Alarm(&s, s))
	})
}

// drawLives makes any state of a small cluster whose pods have lives and marks, true or not.
func drawLives(t *rapid.T) Snapshot {
	s := drawSnapshot(t)
	for name, o := range s.OSDs {
		o.Life = rapid.SampledFrom([]string{"a.0", "a.1", "b.0"}).Draw(t, "life")
		o.Mark = rapid.SampledFrom([]string{"", "a.0", "b.0"}).Draw(t, "mark")
		o.Open = rapid.IntRange(0, 3).Draw(t, "open") == 0
		s.OSDs[name] = o
	}
	return s
}
