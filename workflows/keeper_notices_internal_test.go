package workflows

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
)

// TestNotifyMany: hundreds of jobs hear together why they wait, and not one after the other.
func TestNotifyMany(t *testing.T) {
	t.Parallel()
	const jobs, each = 500, 20 * time.Millisecond
	var suite testsuite.WorkflowTestSuite
	env := unhurried.Environment(&suite)
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, SignalLease,
		mock.Anything).Return(nil).After(each)
	env.ExecuteWorkflow(func(ctx workflow.Context) (time.Duration, error) {
		k := &keeper{wake: workflow.NewBufferedChannel(ctx, 1)}
		k.state.Told = map[string]Told{}
		for i := range jobs {
			name := fmt.Sprintf("drain/node-%d", i)
			k.state.Memory.Lease = k.state.Memory.Lease.Request(
				lease.Claim{WorkflowID: name, RunID: name, Domain: storage.FailureDomain{Type: "zone", Name: "x"}})
		}
		began := workflow.Now(ctx)
		k.notify(ctx)
		if len(k.state.Told) != jobs {
			return 0, fmt.Errorf("%d of %d jobs were told", len(k.state.Told), jobs)
		}
		return workflow.Now(ctx).Sub(began), nil
	})
	require.NoError(t, env.GetWorkflowError())
	var took time.Duration
	require.NoError(t, env.GetWorkflowResult(&took))
	assert.Less(t, took, jobs*each/10)
}

// TestManyWaitForAnotherReason: hundreds of jobs that wait hear of another reason a few at a time, each of them in the
// end, and a grant waits for none of them.
func TestManyWaitForAnotherReason(t *testing.T) {
	t.Parallel()
	const jobs = 3*rewordedAtOnce + 1
	var suite testsuite.WorkflowTestSuite
	env := unhurried.Environment(&suite)
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, SignalLease, mock.Anything).Return(nil)
	env.ExecuteWorkflow(func(ctx workflow.Context) ([]int, error) {
		k := &keeper{wake: workflow.NewBufferedChannel(ctx, 1)}
		k.state.Told = map[string]Told{}
		say := func(why string) (heard int) {
			k.untold = time.Time{}
			for i := range k.state.Memory.Lease.Queue {
				k.state.Memory.Lease.Queue[i].WaitsFor = why
			}
			k.notify(ctx)
			for _, told := range k.state.Told {
				if told.Words == words(why) {
					heard++
				}
			}
			return heard
		}
		for i := range jobs {
			name := fmt.Sprintf("drain/node-%d", i)
			k.state.Memory.Lease = k.state.Memory.Lease.Request(
				lease.Claim{WorkflowID: name, RunID: name, Domain: storage.FailureDomain{Type: "zone", Name: "x"}})
		}
		out := []int{say("one")}
		if err := workflow.Sleep(ctx, time.Hour); err != nil {
			return nil, err
		}
		for range 4 {
			out = append(out, say("another"))
			if more := out[len(out)-1] < jobs; more != !k.untold.IsZero() {
				return nil, fmt.Errorf("%v were told, and the others hear at %s", out, k.untold)
			}
		}
		return out, nil
	})
	require.NoError(t, env.GetWorkflowError())
	var heard []int
	require.NoError(t, env.GetWorkflowResult(&heard))
	assert.Equal(t, []int{jobs, rewordedAtOnce, 2 * rewordedAtOnce, 3 * rewordedAtOnce, jobs}, heard)
}

// TestNextBatch: what is said to one job keeps its order.
func TestNextBatch(t *testing.T) {
	t.Parallel()
	to := func(names ...string) (all []outgoing) {
		for _, n := range names {
			all = append(all, outgoing{claim: lease.Claim{WorkflowID: n}})
		}
		return all
	}
	assert.Equal(t, 0, nextBatch(nil))
	assert.Equal(t, 3, nextBatch(to("a", "b", "c")))
	assert.Equal(t, 2, nextBatch(to("a", "b", "a", "c")))
	var many []string
	for i := range 3 * noticesAtOnce {
		many = append(many, fmt.Sprint(i))
	}
	assert.Equal(t, noticesAtOnce, nextBatch(to(many...)))
}
