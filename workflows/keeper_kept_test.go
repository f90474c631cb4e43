package workflows_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// disownedWithin is how soon a status that nobody keeps has to say so.
const disownedWithin = 30 * time.Second

// TestAStatusThatNobodyKeepsSaysSo within 30 s, and soon after the keeper is back it is the keeper's word again.
func TestAStatusThatNobodyKeepsSaysSo(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*scene, bool){
		"the worker is dead": (*scene).crashWorker,
		"Temporal is away":   (*scene).partTemporal,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				require.Equal(s, "any node", s.Status().MayDrain)
				lost := time.Now()
				lose(s, true)
				require.True(s, s.Await(disownedWithin, func() bool { return s.Status().MayDrain == kube.NotKept }),
					"%+v", s.Status())
				status := s.Status()
				require.True(s, meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionKept))
				require.WithinDuration(s, lost, status.Since.Time, 7*time.Second)
				require.Contains(s, status.Message, "no worker answers")
				require.Contains(s, status.Message, `the last word was "any node"`)
				version := s.PolicyVersion()
				time.Sleep(2 * time.Minute) // less than after which the keeper would confirm its status by itself
				require.Equal(s, version, s.PolicyVersion(), "said once")
				lose(s, false)
				require.True(s, s.Await(disownedWithin, func() bool { return s.Status().MayDrain == "any node" }),
					"%+v", s.Status())
				require.True(s, meta.IsStatusConditionTrue(s.Status().Conditions, v1alpha1.ConditionKept))
				require.NotContains(s, s.Status().Message, "nobody")
			})
		})
	}
}

// TestABlindKeeperIsNoKeeper: one that runs and cannot look says nothing that is true as of now.
func TestABlindKeeperIsNoKeeper(t *testing.T) {
	t.Parallel()
	var blind atomic.Bool
	opts := sim.Options{Fail: func(_ context.Context, op string) sim.Failure {
		if blind.Load() && (op == "read policy" || op == "list policies") {
			return sim.Failure{Err: errors.New("forbidden")}
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.settle()
		blind.Store(true)
		s.PersonCordons("node-b", true) // a reason to look
		require.True(s, s.Await(2*disownedWithin, func() bool { return s.Status().MayDrain == kube.NotKept }),
			"%+v", s.Status())
		require.Contains(s, s.Status().Message, "the keeper cannot look")
		blind.Store(false)
		require.True(s, s.Await(2*disownedWithin, func() bool { return strings.HasPrefix(s.Status().MayDrain, "zone") }),
			"%+v", s.Status())
		s.PersonCordons("node-b", false)
	})
}

// TestWithoutAWatcherTheAgeTells: a status is confirmed every five minutes, and by nobody when the worker is dead.
func TestWithoutAWatcherTheAgeTells(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.blindfold(true)
		time.Sleep(time.Hour)
		age := func() time.Duration { return time.Since(s.Status().AsOf.Time) }
		require.Less(s, age(), 5*time.Minute+5*time.Second)
		s.crashWorker(true)
		time.Sleep(time.Hour)
		require.Greater(s, age(), 55*time.Minute)
		require.Equal(s, "any node", s.Status().MayDrain)
		s.crashWorker(false)
		require.True(s, s.Await(time.Minute, func() bool { return age() < time.Minute }))
		s.blindfold(false)
	})
}

// TestAWatcherThatBeginsWhileNobodyKeeps finds out by itself, and goes by what the status says of its own age.
func TestAWatcherThatBeginsWhileNobodyKeeps(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.blindfold(true)
		time.Sleep(20 * time.Minute)
		asOf := s.Status().AsOf
		s.crashWorker(true)
		s.update(func() { s.blind = false }) // without a look: nothing has changed
		require.True(s, s.Await(disownedWithin, func() bool { return s.Status().MayDrain == kube.NotKept }),
			"%+v", s.Status())
		require.Equal(s, asOf.Time, s.Status().Since.Time)
		s.crashWorker(false)
		require.True(s, s.Await(disownedWithin, func() bool { return s.Status().MayDrain == "any node" }), "%+v", s.Status())
	})
}

// TestAKeeperAtWorkIsNotDoubted: a worker that is replaced by another one is away for a moment, and a keeper that
// continues as new, too.
func TestAKeeperAtWorkIsNotDoubted(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		disowned := false
		go func() {
			for !s.isOver() {
				disowned = disowned || kube.Disowned(s.Status())
				time.Sleep(100 * time.Millisecond)
			}
		}()
		for range 5 {
			s.crashWorker(true)
			time.Sleep(4 * time.Second)
			s.crashWorker(false)
			time.Sleep(12 * time.Second) // until Temporal has noticed, too
			s.continueKeeper()
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Minute)
		require.False(s, disowned)
	})
}
