package workflows

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
)

// ends is a Temporal in which each workflow ends at its time, if it has one.
type ends map[string]time.Duration

func (e ends) AwaitEnd(ctx context.Context, workflowID, _ string) (string, error) {
	after, ok := e[workflowID]
	if !ok {
		after = time.Hour
	}
	select {
	case <-time.After(after):
		return "terminated", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// endsBut is ends, but that nobody can be asked about one workflow.
type endsBut struct {
	ends
	unknown string
}

func (e endsBut) AwaitEnd(ctx context.Context, workflowID, runID string) (string, error) {
	if workflowID == e.unknown {
		return "", errors.New("permission denied")
	}
	return e.ends.AwaitEnd(ctx, workflowID, runID)
}

// endsOnce is ends, but that some workflows end when something has happened.
type endsOnce struct {
	ends
	when map[string]chan struct{}
}

func (e endsOnce) AwaitEnd(ctx context.Context, workflowID, runID string) (string, error) {
	happens, known := e.when[workflowID]
	if !known {
		return e.ends.AwaitEnd(ctx, workflowID, runID)
	}
	select {
	case <-happens:
		return "terminated", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// TestOneThatCannotBeFollowed keeps nobody from hearing of the end of another.
func TestOneThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	keeping := &activities.Keeper{Jobs: endsBut{ends{"drain/node-b": 100 * time.Millisecond}, "drain/node-a"}}
	env.RegisterActivity(keeping)
	jobs := []activities.JobInput{{WorkflowID: "drain/node-a", RunID: "1"}, {WorkflowID: "drain/node-b", RunID: "2"}}
	value, err := env.ExecuteActivity(keeping.AwaitJobsEnd, activities.JobsInput{Jobs: jobs})
	require.NoError(t, err)
	var ended activities.JobsEnded
	require.NoError(t, value.Get(&ended))
	assert.Equal(t, jobs[1:], ended.Ended)
}

// TestManyThatEndTogether are told together, though Temporal says so of one after the other.
func TestManyThatEndTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := ends{}
		jobs := []activities.JobInput{{WorkflowID: "drain/goes-on", RunID: "1"}}
		for i := range followedTogether {
			id := fmt.Sprintf("drain/node-%d", i)
			at[id] = time.Duration(i) * time.Millisecond
			jobs = append(jobs, activities.JobInput{WorkflowID: id, RunID: "1"})
		}
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		keeping := &activities.Keeper{Jobs: at}
		env.RegisterActivity(keeping)
		value, err := env.ExecuteActivity(keeping.AwaitJobsEnd, activities.JobsInput{Jobs: jobs})
		require.NoError(t, err)
		var ended activities.JobsEnded
		require.NoError(t, value.Get(&ended))
		assert.ElementsMatch(t, jobs[1:], ended.Ended)
	})
}

// TestFollowMany: hundreds of jobs are followed by a few activities. One that ends loses its claim, and the others are
// followed on.
func TestFollowMany(t *testing.T) {
	t.Parallel()
	const jobs = 3*followedTogether + 1
	var suite testsuite.WorkflowTestSuite
	env := unhurried.Environment(&suite)
	again := make(chan struct{}) // the others of the first one that ends are followed again
	env.RegisterActivity(&activities.Keeper{Jobs: endsOnce{
		ends{"drain/node-1": 10 * time.Millisecond}, map[string]chan struct{}{"drain/node-2": again, "drain/node-150": again},
	}})
	var followed []int
	env.SetOnActivityStartedListener(func(_ *activity.Info, _ context.Context, args converter.EncodedValues) {
		var in activities.JobsInput
		if args.Get(&in) == nil {
			if followed = append(followed, len(in.Jobs)); len(in.Jobs) == followedTogether-1 {
				close(again)
			}
		}
	})
	env.ExecuteWorkflow(func(ctx workflow.Context) ([]string, error) {
		k := &keeper{wake: workflow.NewBufferedChannel(ctx, 1), jobs: map[string]*following{}}
		for i := range jobs {
			name := fmt.Sprintf("drain/node-%d", i)
			k.state.Memory.Lease = k.state.Memory.Lease.Request(
				lease.Claim{WorkflowID: name, RunID: name, Domain: storage.FailureDomain{Type: "zone", Name: "x"}})
		}
		k.followJobs(ctx)
		// The last of all gives up its claim by itself.
		k.state.Memory.Lease = k.state.Memory.Lease.Release("drain/node-150", "drain/node-150")
		k.followJobs(ctx)
		if err := workflow.Await(ctx, func() bool { return len(k.state.Memory.Lease.Queue) == jobs-3 }); err != nil {
			return nil, err
		}
		k.followJobs(ctx)
		var left []string
		for _, id := range []string{"drain/node-0", "drain/node-1", "drain/node-2", "drain/node-3", "drain/node-150"} {
			if k.jobs[id+"@"+id] != nil {
				left = append(left, id)
			}
		}
		for _, f := range k.jobs {
			f.cancel()
		}
		return left, nil
	})
	require.NoError(t, env.GetWorkflowError())
	var left []string
	require.NoError(t, env.GetWorkflowResult(&left))
	assert.Equal(t, []string{"drain/node-0", "drain/node-3"}, left)
	require.GreaterOrEqual(t, len(followed), 4)
	assert.Equal(t, []int{followedTogether, followedTogether, followedTogether, followedTogether - 1}, followed[:4],
		"the one that gave up was alone, and nobody was asked about it any more")
}

// TestWhoAsksAfterItsEnd: a request that was under way when its job ended makes a claim that nobody releases but the
// keeper, though it has not noticed yet that the job's claim of before is gone. So it is when the wait for the job's
// end fails.
func TestWhoAsksAfterItsEnd(t *testing.T) {
	t.Parallel()
	for name, failing := range map[string]bool{"the job has ended": false, "the wait for its end fails": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const job = "drain/node-a"
			claim := lease.Claim{WorkflowID: job, RunID: "1", Domain: storage.FailureDomain{Type: "zone", Name: "x"}}
			var suite testsuite.WorkflowTestSuite
			env := unhurried.Environment(&suite)
			waits := 0
			env.RegisterActivityWithOptions(func(_ context.Context, in activities.JobsInput) (activities.JobsEnded, error) {
				if waits++; failing && waits == 1 {
					return activities.JobsEnded{}, temporal.NewNonRetryableApplicationError("on purpose", "OnPurpose", nil)
				}
				return activities.JobsEnded{Ended: in.Jobs}, nil
			}, activity.RegisterOptions{Name: "AwaitJobsEnd"})
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				k := &keeper{wake: workflow.NewBufferedChannel(ctx, 1), jobs: map[string]*following{}}
				for range 2 {
					k.state.Memory.Lease = k.state.Memory.Lease.Request(claim)
					k.followJobs(ctx)
					k.wake.Receive(ctx, nil)
				}
				if left := k.state.Memory.Lease.Queue; len(left) > 0 {
					return fmt.Errorf("left: %+v", left)
				}
				return nil
			})
			require.True(t, env.IsWorkflowCompleted(), "the claim is followed by nobody")
			require.NoError(t, env.GetWorkflowError())
		})
	}
}
