package fencing_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestJudge reads testdata/verdicts.txt, which says what its words mean.
func TestJudge(t *testing.T) {
	text, err := os.ReadFile("testdata/verdicts.txt")
	require.NoError(t, err)
	for _, text := range strings.Split(string(text), "\ncase ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			w, to, node := newWorld(), target("node-d"), "node-d"
			for line := range strings.Lines(rest) {
				line = strings.TrimSpace(line)
				if want, ok := strings.CutPrefix(line, "> "); ok {
					to.Node, to.WorkflowID = node, "fence/"+node
					requireVerdict(t, want, fencing.Judge(w.facts(), to))
				} else if line != "" && line[0] != '#' {
					given(t, w, &to, &node, strings.Fields(line))
				}
			}
		})
	}
}

func given(t *testing.T, w *world, to *fencing.Target, node *string, words []string) {
	t.Helper()
	switch words[0] {
	case "fail":
		w.fail(words[1], words[2:]...)
	case "fail-since":
		w.fail(words[1], words[2:]...)
		for _, o := range w.osds {
			if o.node == words[1] && (len(words) == 2 || slices.Contains(words[2:], o.name)) {
				w.since = append(w.since, o.name)
			}
		}
	case "whole":
		w.clean = true
	case "mon-out":
		w.mons[words[1][0]-'a'].InQuorum = false
	case "mon-on":
		w.mons[0].Node = words[1]
	case "mon-goes":
		w.going = append(w.going, words[1])
	case "hold":
		w.hold(words[1], words[2])
	case "closed":
		w.open = ""
	case "silent":
		w.silent = true
	case "answers":
		answers, err := time.ParseDuration(words[1])
		require.NoError(t, err)
		w.answers = answers
	case "released":
		w.released = append(w.released, words[1])
	case "node":
		*node = words[1]
	case "disks-go":
		to.DisksGo = true
	case "why":
		to.Why = fencing.Why(words[1])
	case "rerun":
		to.RunID = "another"
	case "override":
		to.Override = &fencing.Override{By: "jo", Reason: "the rack burns", At: now}
	default:
		t.Fatalf("no word %q", words[0])
	}
}

func requireVerdict(t *testing.T, want string, v fencing.Verdict) {
	t.Helper()
	action, rest, _ := strings.Cut(want, " ")
	reason, says, _ := strings.Cut(rest, " ")
	require.Equal(t, fencing.Action(action), v.Action, v.Message)
	require.Equal(t, reason, v.Reason)
	require.Contains(t, v.Message, says)
	require.Equal(t, reason == fencing.ReasonAwaitsLease, v.WantsLease())
	require.Equal(t, v.Reason == fencing.ReasonOverridden, v.Against != "")
}

// TestWhatWasNotLookedAt: what a look does not mention is not known to be nothing.
func TestWhatWasNotLookedAt(t *testing.T) {
	f := newWorld().facts()
	f.AskedFor = nil
	require.Equal(t, fencing.ReasonNotSeen, fencing.Judge(f, target("node-g")).Reason)

	f = newWorld().facts()
	f.View.Nodes[3].MoreDaemons = 3
	f.Lease.Holders = []lease.Claim{{WorkflowID: "fence/node-d", RunID: "run", Domain: zone("zone-x")}}
	f.Open = zone("zone-x")
	v := fencing.Judge(f, target("node-d"))
	require.Equal(t, fencing.ReasonNotSeen, v.Reason)
	require.Contains(t, v.Message, "of 3 daemons of node-d nobody said whether they serve")
}

// TestHomeless: a daemon that serves without a pod may be anywhere, unless its node is known.
func TestHomeless(t *testing.T) {
	w := newWorld()
	w.fail("node-d")
	f := w.facts()
	f.View.Departed = storage.Departed{"osd.6": 4, "osd.99": 5}
	v := fencing.Judge(f, target("node-d"))
	require.Equal(t, fencing.ReasonNotSeen, v.Reason)
	require.Contains(t, v.Message, "osd.99 is up although its pod is gone, and may run on node-d")
	require.Equal(t, fencing.ReasonNotSeen, fencing.Judge(f, target("node-g")).Reason)
	f.View.Departed = storage.Departed{"osd.6": 4, "osd.0": 5} // down, and at home on node-a
	require.Equal(t, fencing.ReasonTakesNothing, fencing.Judge(f, target("node-d")).Reason)
}

// TestLeavingIsNotDown: a pod that is stopping may serve to its last moment.
func TestLeavingIsNotDown(t *testing.T) {
	w := newWorld()
	f := w.facts()
	f.View.Domains[0].Troubled = []storage.Daemon{
		{Name: "osd.6", Node: "node-d", Up: true, Pod: storage.PodTerminating},
		{Name: "osd.7", Node: "node-d", Up: true, Pod: storage.PodTerminating},
	}
	f.View.Nodes[3].Down = []string{"osd.6", "osd.7"}
	require.Equal(t, fencing.ReasonAwaitsLease, fencing.Judge(f, target("node-d")).Reason)
}

// TestMonsThatAreToEnd: of nodes that are cut off, with mons in quorum whose pods Kubernetes has deleted, one has to be
// the first. Whose mon is not to end waits for them.
func TestMonsThatAreToEnd(t *testing.T) {
	w := newWorld()
	w.mons[0].Pod, w.mons[1].Pod = storage.PodTerminating, storage.PodTerminating
	f := w.facts()
	require.Equal(t, fencing.ReasonMonQuorum, fencing.Judge(f, target("node-a")).Reason, "nobody holds them back")
	f.MonsToEnd = []string{"a", "b"}
	require.Equal(t, fencing.ReasonAwaitsLease, fencing.Judge(f, target("node-a")).Reason)
	require.Equal(t, fencing.ReasonAwaitsLease, fencing.Judge(f, target("node-b")).Reason)
	v := fencing.Judge(f, target("node-c"))
	require.Equal(t, fencing.ReasonMonQuorum, v.Reason)
	require.Contains(t, v.Message, "without mon.c 0 of 3 mons are in quorum")
	w.mons[2].InQuorum = false
	f = w.facts()
	f.MonsToEnd = []string{"a", "b"}
	require.Equal(t, fencing.ReasonMonQuorum, fencing.Judge(f, target("node-a")).Reason, "the quorum needs both")
}

// TestSeveralDomains: a node whose OSDs are failure domains of their own goes only if they may stop together.
func TestSeveralDomains(t *testing.T) {
	f := newWorld().facts()
	f.View.FailureDomainType = "osd"
	f.View.Nodes[3].Domain, f.View.Nodes[3].Domains = "osd.6", []string{"osd.6", "osd.7"}
	open := storage.FailureDomain{Type: "osd", Name: "osd.6"}
	f.Open, f.Lease.Holders = open, []lease.Claim{{WorkflowID: "fence/node-d", RunID: "run", Domain: open}}
	v := fencing.Judge(f, target("node-d"))
	require.Equal(t, fencing.ReasonRefusedByStorage, v.Reason)
	require.Contains(t, v.Message, "nobody asked")
	f.View.Nodes[3].OKToStop = &storage.Answer{Reason: "1 PG would be inactive"}
	require.Contains(t, fencing.Judge(f, target("node-d")).Message, "1 PG would be inactive")
	alone := f
	alone.Open, alone.Lease.Holders = storage.FailureDomain{}, nil
	v = fencing.Judge(alone, target("node-d"))
	require.Equal(t, fencing.ReasonRefusedByStorage, v.Reason, "no lease would change that, so none is asked for")
	require.False(t, v.WantsLease())
	f.View.Nodes[3].OKToStop = &storage.Answer{OK: true}
	require.Equal(t, fencing.Release, fencing.Judge(f, target("node-d")).Action)
}

func TestPriority(t *testing.T) {
	require.Greater(t, fencing.WhyUnhealthy.Priority(), fencing.WhyDeleting.Priority())
	require.Equal(t, lease.PriorityDrain, fencing.WhyDeleting.Priority())
}

// TestChooseInTurn: one at a time, who failed before who is removed on purpose, and who waits longest first.
func TestChooseInTurn(t *testing.T) {
	w := newWorld()
	var targets []fencing.Target
	for i, node := range []string{"node-a", "node-b", "node-c"} {
		w.fail(node)
		w.mons[i].InQuorum = false
		targets = append(targets, target(node))
	}
	targets[0].Since, targets[0].Why = now.Add(-9), fencing.WhyDeleting
	targets[2].Since = now.Add(-1)
	for _, want := range []string{"node-c", "node-b", "node-a", ""} {
		node, verdicts := fencing.Choose(w.facts(), targets)
		require.Equal(t, want, node)
		for _, to := range targets {
			require.Equal(t, to.Node == want, verdicts[to.Node].Action == fencing.Release, to.Node)
		}
		// Its Machine is gone, and with it its place.
		for i, to := range targets {
			if to.Node == want {
				targets = append(targets[:i:i], targets[i+1:]...)
				break
			}
		}
	}
}

func TestAll(t *testing.T) {
	yes := fencing.Verdict{Action: fencing.Release, Reason: fencing.ReasonTakesNothing, Takes: fencing.Takes{Hosts: 2}}
	none := fencing.Verdict{Action: fencing.Release, Reason: fencing.ReasonHostsNothing}
	no := fencing.Verdict{Action: fencing.Wait, Reason: fencing.ReasonAwaitsLease}
	require.Equal(t, yes, fencing.All(none, yes))
	require.Equal(t, no, fencing.All(yes, no, none))
	require.Equal(t, fencing.Release, fencing.All().Action)
}
