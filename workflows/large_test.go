package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

const (
	largeOSDs  = 20_000
	largeQueue = 600 // jobs that wait
)

// TestLargeClusterInTrouble: 20,000 OSDs are down, in 1,000 failure domains or in as many as there are OSDs, on nodes
// with names of 200 characters, while 600 nodes wait for the lease. Everything that the keeper is told, tells and hands
// on stays small.
func TestLargeClusterInTrouble(t *testing.T) {
	t.Parallel()
	for what, domains := range map[string]int{
		"1,000 failure domains": 1000, "failure domain osd": largeOSDs,
		"3 zones": 3,
	} {
		t.Run(what, func(t *testing.T) {
			turns.Await(t, t.Name(), 6*time.Second)
			t.Parallel()
			l := &large{view: largeView(domains)}
			for i := range largeQueue {
				node := l.view.Nodes[i]
				l.memory.Queue = append(l.memory.Queue, lease.Claim{
					WorkflowID: jobs.DrainNode.ID(node.Name), RunID: fmt.Sprintf("%036d", i),
					Domain: storage.FailureDomain{Type: l.view.FailureDomainType, Name: node.Domain}, Node: node.Name,
					Reason: "drain of " + node.Name, Priority: jobs.DrainNode.Priority, FlagHosts: []string{node.Host},
					Requested: time.Unix(0, 0).UTC(),
				})
			}
			var suite testsuite.WorkflowTestSuite
			suite.SetLogger(quiet{})
			env := unhurried.Environment(&suite)
			payloads := newMeasured()
			env.SetDataConverter(payloads)
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{
				ID:        workflows.KeeperID(sim.Key),
				TaskQueue: workflows.TaskQueue,
			})
			worker.Register(env, worker.Adapters{Policies: l, Budgets: l, Clusters: l}, l)
			env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
			var status workflows.KeeperStatus
			var ends func() // as soon as all of it was decided and told, however slow the machine is
			ends = func() {
				v, err := env.QueryWorkflow(workflows.QueryStatus)
				require.NoError(t, err)
				require.NoError(t, v.Get(&status))
				if status.Decision.Mode != budget.ModeClosed || l.reports.Load() == 0 {
					env.RegisterDelayedCallback(ends, 5*time.Second)
					return
				}
				env.SetContinueAsNewSuggested(true)
				env.SignalWorkflow(workflows.SignalStorageChanged, workflows.Hint{Reason: "a test"})
			}
			env.RegisterDelayedCallback(ends, 5*time.Second)
			env.ExecuteWorkflow(jobs.Keeper.Type, workflows.KeeperInput{Cluster: sim.Key})
			require.ErrorContains(t, env.GetWorkflowError(), "continue as new")
			require.Equal(t, budget.ModeClosed, status.Decision.Mode)
			require.NotEmpty(t, status.Decision.Message)
			require.Positive(t, l.reports.Load())
			t.Logf("the largest payload has %d bytes", payloads.largest.Load())
			require.Less(t, payloads.largest.Load(), int64(mostPayload))
		})
	}
}

func largeView(domains int) storage.View {
	v := storage.View{
		FailureDomainType: "zone", LabelKey: "topology-location-zone", Daemons: largeOSDs, ChangeEpoch: 1_000_000, Shape: "s",
		Placement: "p", Departed: storage.Departed{},
	}
	long := func(prefix string, i int) string {
		name := fmt.Sprintf("%s-%d-", prefix, i)
		return name + strings.Repeat("x", 200-len(name))
	}
	const nodes = 1000
	v.Nodes, v.Domains = make([]storage.Node, nodes), make([]storage.Domain, domains)
	for i := range v.Domains {
		v.Domains[i] = storage.Domain{
			Name: long("domain", i), Touched: true, LabelValues: []string{long("domain", i)},
			OKToStop: &storage.Answer{OK: true},
		}
	}
	for id := range largeOSDs {
		node, d := &v.Nodes[id%nodes], &v.Domains[id%domains]
		if node.Name == "" {
			*node = storage.Node{Name: long("node", id), Domain: d.Name, Host: long("node", id), Cordoned: true}
			v.Flagged = append(v.Flagged, node.Host)
			v.Problems = append(v.Problems, "a problem with "+node.Name)
		}
		osd := fmt.Sprintf("osd.%d", id)
		node.Daemons, node.Down = append(node.Daemons, osd), append(node.Down, osd)
		d.Daemons++
		d.Troubled = append(d.Troubled,
			storage.Daemon{Name: osd, Node: node.Name, DownAt: 1_000_000, Pod: storage.PodTerminating})
		v.Departed[osd] = int64(999_000 + id%50)
	}
	return v
}

// large is a large cluster, its policy and its budgets.
type large struct {
	activities.Policies
	view    storage.View
	memory  lease.State
	reports atomic.Int64
}

func (l *large) StorageClusterOf(context.Context, activities.Policy) (activities.StorageCluster, error) {
	return l, nil
}

func (l *large) StorageCluster(context.Context, storage.ClusterKey) (activities.StorageCluster, error) {
	return l, nil
}

func (l *large) Observe(context.Context, activities.Look) (activities.Seen, error) {
	return activities.Seen{View: l.view}, nil
}

func (l *large) Watch(context.Context, activities.Watching, func(activities.Watched)) (activities.Watched, error) {
	return activities.Watched{}, errors.New("nobody watches")
}

func (l *large) Policy(_ context.Context, key storage.ClusterKey) (activities.Policy, error) {
	return activities.Policy{
		Key: key, Generation: 1, Memory: activities.Memory{Lease: l.memory},
		Settings: storage.Settings{ManagePodBudgets: true, MaintenanceTimeout: time.Hour, AnnouncementTimeout: time.Minute},
	}, nil
}

func (l *large) TakeBackOverrides(context.Context, storage.ClusterKey, []storage.Override) error {
	return nil
}

func (l *large) ReportStatus(context.Context, storage.ClusterKey, activities.Report) error {
	l.reports.Add(1)
	return nil
}
func (l *large) Guard(context.Context, storage.ClusterKey, bool) error { return nil }

func (l *large) SetFlag(context.Context, ...string) ([]activities.FlagRefusal, error) {
	return nil, nil
}

func (l *large) UnsetFlag(context.Context, ...storage.Host) ([]activities.FlagRefusal, error) {
	return nil, nil
}

func (l *large) Life(context.Context, activities.Asking, func()) (storage.Life, error) {
	return storage.Life{}, nil
}

func (l *large) Mark(context.Context, activities.Marking, func(activities.Marked)) (activities.Marked, error) {
	return activities.Marked{}, nil
}

func (l *large) Unmark(context.Context, activities.Unmarking, func(activities.Marked)) (activities.Marked, error) {
	return activities.Marked{}, nil
}

func (l *large) ReadBudgets(context.Context, storage.ClusterKey) (budget.Book, bool, error) {
	return budget.Book{}, false, nil
}

func (l *large) RaiseAlarm(context.Context, storage.ClusterKey, string) error { return nil }

func (l *large) ApplyBudgets(context.Context, activities.BudgetInput) (activities.BudgetResult, error) {
	return activities.BudgetResult{Changed: true}, nil
}

func (l *large) ApplyStaticBudgets(
	context.Context, activities.StaticBudgetsInput,
) (activities.StaticBudgetsResult, error) {
	return activities.StaticBudgetsResult{}, nil
}

func (l *large) Relocate(context.Context, activities.RelocateInput) (activities.RelocateResult, error) {
	return activities.RelocateResult{}, nil
}

func (l *large) RemoveBudgets(context.Context, storage.ClusterKey, func(int), func() error) error {
	return nil
}

func (l *large) AwaitEnd(context.Context, string, string) (string, error) {
	return "", errors.New("nobody knows")
}

func (l *large) TellMons(context.Context, activities.MonsRef, string) error { return nil }

func (l *large) RequestLease(context.Context, storage.ClusterKey, lease.Claim) error { return nil }

func (l *large) RequestFence(context.Context, storage.ClusterKey, fencing.Target, bool) error {
	return nil
}
