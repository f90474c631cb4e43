package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestRefusedWhileItIsDown: an admission webhook lets the rehearsal pass, and refuses the pod that is to replace the
// one that was stopped. An OSD is down meanwhile, so that the next try comes soon; and the spec, which was rehearsed,
// is not said to be wrong.
func TestRefusedWhileItIsDown(t *testing.T) {
	t.Parallel()
	var (
		world   *sim.World
		refused []time.Time
	)
	opts := osdsBy("OSD", nil)
	opts.Fail = func(_ context.Context, op string) sim.Failure {
		if op != "create pod" || world == nil || len(world.Stopped()) == 0 || len(refused) == 6 {
			return sim.Failure{}
		}
		refused = append(refused, time.Now())
		return sim.Failure{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "osd",
			errors.New(`admission webhook "policy.example.com" denied the request`))}
	}
	play(t, opts, func(s *scene) {
		s.settleOSDs()
		world = s.World
		s.SetImage("ceph:2")
		u := s.awaitUpdate("refused", time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseRest && len(refused) > 0 })
		require.Empty(s, u.Refused, "the spec was rehearsed")
		require.Contains(s, u.WaitsFor, "refused now and was not when it was rehearsed")
		require.Contains(s, u.WaitsFor, "policy.example.com")
		require.NotContains(s, u.WaitsFor, "spec to be mended")
		require.True(s, s.Await(3*time.Minute, func() bool { return len(refused) == 6 }))
		for i := 1; i < len(refused); i++ {
			require.LessOrEqual(s, refused[i].Sub(refused[i-1]), 31*time.Second)
		}
		require.LessOrEqual(s, refused[1].Sub(refused[0]), 3*time.Second)
		s.awaitImage("ceph:2", 10*time.Minute)
		s.awaitWhole()
	})
}
