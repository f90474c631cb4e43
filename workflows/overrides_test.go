package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestAPersonsWordIsTakenBack: a pod that was let go out of turn and that nobody deletes waits for its turn again, an
// OSD and a mon alike, also if the API server was away meanwhile.
func TestAPersonsWordIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*scene){
		"at rest": func(*scene) {},
		"while the API server is away": func(s *scene) {
			s.Unreachable(true)
			time.Sleep(3 * time.Minute)
			s.Unreachable(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				s.LetGo("osd.1")
				time.Sleep(20 * time.Second)
				s.LetGo("mon.c")
				time.Sleep(30 * time.Second)
				require.True(s, s.OutOfTurn("osd.1"), "whoever let it go has some time")
				meanwhile(s)
				time.Sleep(2 * time.Minute)
				require.False(s, s.OutOfTurn("osd.1"))
				require.False(s, s.OutOfTurn("mon.c"))
				require.False(s, s.Evicted("node-b"))
				s.awaitBudget(atRest, 2*time.Minute)
			})
		})
	}
}
