// Package temporal plays lockkeeper's real worker against a real Temporal server, with a simulated storage cluster
// behind it: what depends on the server itself, such as its limits and the chain of a workflow's runs.
package temporal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var (
	root   = flag.String("root", "../..", "the repository")
	server = flag.String("temporal", "", "the program of a Temporal server; by default lab/bin/temporal of the repository")
)

// The server suggests to continue as new at suggestAt events, and ends a workflow at mostEvents.
const (
	suggestAt  = 80
	mostEvents = 400
)

// patience is how long whatever a real server and a worker do may take: labs may start at the same moment.
const patience = 5 * time.Minute

// stage is a simulated storage cluster, a real Temporal server, and a real worker between them.
type stage struct {
	*testing.T
	*sim.World
	client   client.Client
	worker   sdkworker.Worker
	adapters worker.Adapters
}

func newStage(t *testing.T, opts sim.Options) *stage {
	t.Helper()
	program := *server
	if program == "" {
		program = filepath.Join(*root, "lab", "bin", "temporal")
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("this test needs the lab's Temporal: run `make lab/bin/temporal` first (%v)", err)
	}
	args := []string{"--disable-config-env", "--disable-config-file"}
	for _, kv := range []string{
		fmt.Sprintf("limit.historyCount.suggestContinueAsNew=%d", suggestAt),
		fmt.Sprintf("limit.historyCount.warn=%d", mostEvents),
		fmt.Sprintf("limit.historyCount.error=%d", mostEvents),
		"history.transferProcessorMaxPollRPS=2000", "history.timerProcessorMaxPollRPS=2000",
		`history.timerProcessorMaxTimeShift="1ms"`,
		"matching.numTaskqueueReadPartitions=1", "matching.numTaskqueueWritePartitions=1",
	} {
		args = append(args, "--dynamic-config-value", kv)
	}
	dev, err := testsuite.StartDevServer(t.Context(), testsuite.DevServerOptions{
		ExistingPath: program, ExtraArgs: args, LogLevel: "error", Stdout: io.Discard, Stderr: io.Discard,
		ClientOptions: &client.Options{Logger: quiet{}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = dev.Stop() })
	s := &stage{T: t, World: sim.New(opts), client: dev.Client()}
	t.Cleanup(s.Close)
	k := s.Kubernetes()
	clusters := cephcluster.New(k, s)
	typed, api := k.Clients()
	s.adapters = worker.Adapters{
		Policies: k, Budgets: k, Nodes: k, Clusters: clusters,
		OSDSets: cephosd.New(typed, api, clusters),
	}
	s.startWorker()
	t.Cleanup(func() { s.worker.Stop() })
	s.watch(t.Context())
	return s
}

func (s *stage) startWorker() {
	s.worker = worker.New(s.client, s.adapters)
	require.NoError(s, s.worker.Start())
}

// watch tells the keeper of every change in Kubernetes, a moment later.
func (s *stage) watch(ctx context.Context) {
	changed := make(chan struct{}, 1)
	s.OnKubernetes(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	temporal := starter.NewTemporal(s.client)
	go func() {
		for {
			select {
			case <-changed:
				_ = temporal.SignalKeeper(ctx, sim.Key, workflows.Hint{Reason: "something changed"})
				time.Sleep(50 * time.Millisecond)
			case <-ctx.Done():
				return
			}
		}
	}()
	require.NoError(s, temporal.EnsureKeeper(ctx, sim.Key))
}

// await waits until cond holds.
func (s *stage) await(what string, cond func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not within %s: %s: %+v", patience, what, s.keeper())
		}
	}
}

func (s *stage) signal(id, name string, arg any) {
	s.Helper()
	require.NoError(s, s.client.SignalWorkflow(s.Context(), id, "", name, arg))
}

// query asks a workflow for its status, again until there is an answer: a worker that is busy is no status. A workflow
// that is not there leaves into as it is.
func (s *stage) query(id string, into any) {
	s.Helper()
	for end := time.Now().Add(patience); ; {
		err := s.ask(id, into)
		if err == nil || errors.As(err, new(*serviceerror.NotFound)) {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("no status of %s within %s: %v", id, patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *stage) ask(id string, into any) error {
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	v, err := s.client.QueryWorkflow(ctx, id, "", workflows.QueryStatus)
	if err != nil {
		return err
	}
	return v.Get(into)
}

func (s *stage) job(id string) (j workflows.JobStatus) {
	s.query(id, &j)
	return j
}

func (s *stage) keeper() (k workflows.KeeperStatus) {
	s.query(workflows.KeeperID(sim.Key), &k)
	return k
}

// start starts a job and returns the first run of its chain.
func (s *stage) start(id, workflowType string, in any) client.WorkflowRun {
	s.Helper()
	run, err := s.client.ExecuteWorkflow(s.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: workflows.TaskQueue},
		workflowType, in)
	require.NoError(s, err)
	return run
}

// runs are all runs of a workflow that the server still knows, the last one first.
func (s *stage) runs(id string) (out []*workflowpb.WorkflowExecutionInfo) {
	s.Helper()
	r, err := s.client.ListWorkflow(s.Context(),
		&workflowservice.ListWorkflowExecutionsRequest{Query: fmt.Sprintf("WorkflowId = %q", id)})
	require.NoError(s, err)
	for _, e := range r.GetExecutions() {
		d, err := s.client.DescribeWorkflowExecution(s.Context(), id, e.GetExecution().GetRunId())
		require.NoError(s, err)
		out = append(out, d.GetWorkflowExecutionInfo())
	}
	return out
}

// bounded makes sure that a workflow has continued as new at least so often, and that none of its runs was near the
// limit.
func (s *stage) bounded(id string, least int) {
	s.Helper()
	for end := time.Now().Add(patience); len(s.runs(id)) < least; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s has not %d runs, but %v", id, least, s.runs(id))
		}
	}
	longest := int64(0)
	for _, r := range s.runs(id) {
		require.NotContains(s, []enumspb.WorkflowExecutionStatus{
			enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED,
			enumspb.WORKFLOW_EXECUTION_STATUS_FAILED,
		}, r.GetStatus())
		longest = max(longest, r.GetHistoryLength())
	}
	s.Logf("%s: %d runs, the longest of %d events", id, len(s.runs(id)), longest)
	require.Less(s, longest, int64(mostEvents*3/4))
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
