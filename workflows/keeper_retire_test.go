package workflows_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var errForbidden = errors.New(
	`is forbidden: User "system:serviceaccount:lockkeeper-system:lockkeeper-worker" cannot do that`)

// flagged plays until a drain has its noout.
func (s *scene) flaggedDrain(node string) (run string) {
	s.Helper()
	s.settle()
	run = s.drain(drainOf(node))
	s.awaitPhase(node, awaitingNode, 30*time.Second)
	require.Equal(s, "lockkeeper", s.Noout(node))
	return run
}

func (s *scene) keeperEnds(within time.Duration) bool {
	return s.Await(within, func() bool { return !s.runs(workflows.KeeperID(sim.Key)) && !s.PolicyExists() })
}

// TestDeletionSaysWhatItWaitsFor: Ceph does not answer, so the noout cannot be unset. The policy, the keeper and the
// jobs say so, until Ceph is back or a person lets it go.
func TestDeletionSaysWhatItWaitsFor(t *testing.T) {
	turns.Await(t, t.Name(), 7*time.Second)
	t.Parallel()
	for name, wayOut := range map[string]func(*scene){
		"Ceph is back":            func(s *scene) { s.LoseQuorum(false) },
		"a person lets it go":     func(s *scene) { s.AnnotatePolicy(kube.LeaveBehind, "true") },
		"the finalizer was taken": func(s *scene) { s.TakeFinalizer() },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				run := s.flaggedDrain("node-d")
				s.LoseQuorum(true)
				s.awaitBudget("closed", 20*time.Second)
				s.DeletePolicy()
				require.True(s, s.Await(time.Minute, func() bool { return s.Status().Reason == "Deleting" }))
				require.Contains(s, s.Status().Message, "noout on node-d")
				require.Contains(s, s.Status().Message, "annotate maintenancepolicy rook-ceph lockkeeper.io/leave-behind=true")
				require.Contains(s, s.keeperStatus().Trouble, "noout on node-d")
				require.Equal(s, "no", s.Status().MayDrain)
				s.tellDrain("node-d", jobs.SignalDone)
				require.True(s, s.Await(time.Minute, func() bool { return s.drainStatus("node-d").Phase == "Resolving" }),
					"nobody waits for a lease that is no more")
				time.Sleep(30 * time.Minute)
				require.True(s, s.PolicyExists())
				wayOut(s)
				require.True(s, s.keeperEnds(2*time.Minute))
				s.LoseQuorum(false)
				s.awaitEnd("node-d", run, 2*time.Minute)
				if name == "Ceph is back" {
					require.Empty(s, s.Leftovers())
					require.Empty(s, s.left.Left)
					return
				}
				require.Contains(s, strings.Join(s.left.Left, " "), "noout on node-d")
				require.True(s, s.told("LeftBehind"))
				s.PersonSetsNoout("node-d", false) // as the event says
				require.Empty(s, s.Leftovers())
			})
		})
	}
}

// TestDeletionClosesUntilAllIsClosed: Ceph is silent, so that the deletion waits, and the first attempts to close what
// is open are refused.
func TestDeletionClosesUntilAllIsClosed(t *testing.T) {
	t.Parallel()
	var refusing atomic.Bool
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if refusing.Load() && op == "update budget" {
			return sim.Failure{Err: errors.New("a webhook says no")}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.flaggedDrain("node-d")
		refusing.Store(true)
		s.DeletePolicy()
		s.LoseQuorum(true)
		require.True(s, s.Await(time.Minute, func() bool {
			return s.Status().Reason == "Deleting" && strings.Contains(s.Status().Message, "the budgets to be closed")
		}))
		require.Equal(s, only("x"), s.Budget())
		time.Sleep(time.Minute) // whoever else would have closed has given up
		refusing.Store(false)
		s.awaitBudget("closed", time.Minute)
		s.LoseQuorum(false)
		require.True(s, s.keeperEnds(2*time.Minute))
	})
}

// TestDeletionTakesBackWhatLandsLate: the policy stays until a command without an answer can no longer be carried out.
func TestDeletionTakesBackWhatLandsLate(t *testing.T) {
	t.Parallel()
	sets := 0
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op != "ceph osd set-group" {
			return sim.Failure{}
		}
		if sets++; sets == 1 {
			return sim.Failure{Err: errLost, Done: true, Late: 30 * time.Second}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.flaggedDrain("node-d")
		require.False(s, s.told("NooutClaimed"), "the second attempt was answered")
		s.DeletePolicy()
		require.True(s, s.Await(30*time.Second, func() bool { return s.Status().Reason == "Deleting" }))
		require.True(s, s.keeperEnds(3*time.Minute))
		require.Empty(s, s.Noout("node-d"))
	})
}

// TestNamespaceIsDeleted: with it go the rights, the Secret and Ceph itself, in any order. The policy goes, and what is
// left is told.
func TestNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	secrets, rights, budgets := []string{"read Secret", "read ConfigMap"}, []string{"list Deployments", "list pods"},
		[]string{"list budgets", "update budget", "create budget", "delete budget"}
	for name, c := range map[string]struct {
		first, then []string // requests that are forbidden
		quorum      bool     // Ceph answers all the time
		left        bool
	}{
		"nothing goes before it":      {quorum: true},
		"rights first":                {first: rights, then: budgets, quorum: true},
		"budgets first":               {first: budgets, then: rights, quorum: true},
		"the connection is kept":      {first: secrets, then: rights, quorum: true},
		"Ceph first":                  {first: nil, then: rights, left: true},
		"rights first, and then Ceph": {first: append(rights, budgets...), then: secrets, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			forbidden := map[string]bool{}
			opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
				if forbidden[op] {
					return sim.Failure{Err: errForbidden}
				}
				return sim.Failure{}
			}}
			play(t, opts, func(s *scene) {
				s.flaggedDrain("node-d")
				s.LoseQuorum(!c.quorum)
				for _, op := range c.first {
					forbidden[op] = true
				}
				s.DeleteNamespace()
				time.Sleep(300 * time.Millisecond)
				for _, op := range c.then {
					forbidden[op] = true
				}
				require.True(s, s.keeperEnds(2*time.Minute))
				require.Equal(s, c.left, s.told("LeftBehind"))
				require.Equal(s, c.left, len(s.left.Left) > 0)
				if c.left {
					s.PersonSetsNoout("node-d", false)
				} else {
					require.Empty(s, s.Noout("node-d"))
				}
			})
		})
	}
}

// TestABudgetThatComesTooLate: a request to make a budget anew is carried out when the policy is gone, and its keeper
// with it. What that one covers could not be evicted any more.
func TestABudgetThatComesTooLate(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if op == "create budget" && slow.CompareAndSwap(true, false) {
			return sim.Failure{Err: errors.New("the API server gives no answer"), Done: true, Late: time.Minute}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		slow.Store(true)
		s.TamperWithBudget(true)
		require.True(s, s.Await(10*time.Second, func() bool { return !slow.Load() }))
		s.DeletePolicy()
		require.True(s, s.keeperEnds(30*time.Second))
		require.Empty(s, s.Leftovers())
		require.True(s, s.Await(time.Minute, func() bool { return len(s.Leftovers()) > 0 }), "it comes")
		s.awaitNothingLeft(4 * time.Minute)
	})
}
