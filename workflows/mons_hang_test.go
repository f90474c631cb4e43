package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestNoMonGoesBesideADeadOne (I5): a mon hangs, and the others call it one of the quorum for some seconds more. No
// other one is let go before it is back. On a node without OSDs no flag is set first, which would tell.
func TestNoMonGoesBesideADeadOne(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{MonNodes: true}, func(s *scene) {
		s.settle()
		s.Hang(true, "mon.b")
		done := s.KubectlDrain("node-g")
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			require.Error(s, s.MayGo("mon.a"), "mon.b hangs")
		}
		s.Hang(false, "mon.b")
		require.NoError(s, <-done)
		s.PersonCordons("node-g", false)
		s.awaitNothingLeft(2 * time.Minute)
	})
}

// TestMonGoesOnceTheOthersLive: the same, when all live, takes no longer than a few looks.
func TestMonGoesOnceTheOthersLive(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{MonNodes: true}, func(s *scene) {
		s.settle()
		s.PersonCordons("node-g", true)
		require.True(s, s.Await(time.Second, func() bool { return s.MayGo("mon.a") == nil }), "%+v", s.keeperStatus())
		require.Error(s, s.MayGo("mon.b"))
		s.PersonCordons("node-g", false)
		s.awaitNothingLeft(time.Minute)
	})
}
