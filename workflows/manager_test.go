package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestOneManagerAndAllNodesDrained: all nodes are drained at once, and there is one manager. Without it nobody knows
// whether the data is whole. It stays until its own node is next, and a node that was emptied before can take it.
func TestOneManagerAndAllNodesDrained(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		done := map[string]<-chan error{}
		for _, node := range s.Nodes() {
			done[node] = s.KubectlDrain(node)
		}
		seen := time.Now()
		for left := len(done); left > 0; left-- {
			empty := ""
			require.True(s, s.Await(5*time.Minute, func() bool {
				if s.PodState("mgr.a") == storage.PodReady || s.PodState("osd.5") != storage.PodReady { // osd.5 is on its node
					seen = time.Now()
				}
				if time.Since(seen) > 10*time.Second {
					s.Fatal("the manager has nowhere to run")
				}
				for node, through := range done {
					select {
					case err := <-through:
						require.NoError(s, err)
						empty = node
						return true
					default:
					}
				}
				return false
			}), "no node is empty: %s %+v", s.Budget(), s.keeperStatus().Decision)
			delete(done, empty)
			s.Reboot(empty)
			time.Sleep(4 * time.Second)
			s.PersonCordons(empty, false)
			require.True(s, s.Await(10*time.Second, func() bool { return s.PodState("mgr.a") == storage.PodReady }))
		}
		s.awaitNothingLeft(2 * time.Minute)
	})
}

// TestOneManagerMovesOn: a node is drained that has the only manager, and another node can take it.
func TestOneManagerMovesOn(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		require.Error(s, s.MayGo("mgr.a"), "nobody has said that its node is to go")
		done := s.KubectlDrain("node-f")
		select {
		case err := <-done:
			require.NoError(s, err)
		case <-time.After(20 * time.Second):
			s.Error("kubectl drain is not through")
		}
		require.True(s, s.Await(10*time.Second, func() bool { return s.PodState("mgr.a") == storage.PodReady }))
		s.PersonCordons("node-f", false)
		s.awaitNothingLeft(2 * time.Minute)
	})
}
