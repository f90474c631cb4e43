package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestEveryStep plays one drain again and again, and each time something happens at another attempt of an activity, the
// drain's or the keeper's, until there is none left. Whatever it is, nothing of ours is left behind in the end.
func TestEveryStep(t *testing.T) {
	for name, event := range map[string]struct {
		fault fault
		do    func(*scene)
		// survives: the drain ends as if nothing had happened.
		survives bool
	}{
		"fails":                  {fault: notDone, survives: true},
		"fails, but is done":     {fault: doneAlso, survives: true},
		"aborted":                {do: func(s *scene) { s.tellDrain("node-a", workflows.SignalAbort) }},
		"cancelled":              {do: func(s *scene) { s.cancel(workflows.DrainID("node-a")) }},
		"terminated":             {do: func(s *scene) { s.kill(workflows.DrainID("node-a")) }},
		"the keeper is replaced": {do: func(s *scene) { go s.killKeeper() }, survives: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at, more := 0, true; more; at++ {
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					play(t, sim.Options{}, func(s *scene) {
						s.settle()
						began := s.attempts
						happens := func(n int, info activity.Info) bool {
							return n == began+at && info.WorkflowExecution.ID != "" // once
						}
						s.update(func() {
							s.fault = func(n int, info activity.Info) fault {
								if event.fault != noFault && happens(n, info) {
									return event.fault
								}
								return noFault
							}
							s.onAttempt = func(n int, info activity.Info) {
								if event.do != nil && happens(n, info) {
									s.Tell("at %s of %s:", info.ActivityType.Name, info.WorkflowExecution.ID)
									event.do(s)
								}
							}
						})
						run := s.drain(drainOf("node-a"))
						s.Await(time.Minute, func() bool {
							return s.drainStatus("node-a").Phase == awaitingNode || !s.runs(workflows.DrainID("node-a"))
						})
						s.tellDrain("node-a", workflows.SignalDone)
						e := s.awaitEnd("node-a", run, time.Hour)
						if event.survives {
							require.NoError(s, e.err)
							require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
						}
						if name == "terminated" {
							time.Sleep(10 * time.Second)
							s.PersonCordons("node-a", false) // nobody is left who knows of the cordon
						}
						s.awaitNothingLeft(5 * time.Minute)
						more = s.attempts > began+at
					})
				})
				require.Less(t, at, 300)
				if t.Failed() {
					return
				}
			}
		})
	}
}
