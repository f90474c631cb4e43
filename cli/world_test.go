package cli

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	time.Local = time.UTC // the golden files have clocks in them
	os.Exit(m.Run())
}

// night is the moment at which all tests look.
var night = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time       { return night.Add(-d) }
func agoMeta(d time.Duration) metav1.Time { return metav1.NewTime(ago(d)) }

// world is a Kubernetes and a Temporal in memory: one Ceph cluster, of which node-a hosts osd.0 in zone-x.
type world struct {
	wishes       []kube.StorageWish
	driven       []kube.DrivenDaemon
	nodes        map[string]activities.NodeState
	policy       *v1alpha1.MaintenancePolicy
	pods         []storageview.Pod
	outlook      kube.Outlook
	podsErr      error
	kubeAway     error
	policiesAway error // these alone
	mayNot       func(who kube.Account, r kube.Right) bool

	jobs         map[string][]Job // by ID: what Temporal says at the first look, at the second, …; the last one stays
	keeper       *workflows.KeeperStatus
	second       *workflows.KeeperStatus // of a second storage cluster with the same pods; nil: there is none
	keeperAway   error
	version      string // of Temporal
	temporalDown error  // it does not even tell its version
	workers      int
	watcher      kube.Watcher
	watcherAway  error
	temporalAway error
	records      map[string][]history.Run // by workflow, oldest first
	recordAway   map[string]error
	started      []workflows.DrainNodeInput
	fences       []workflows.FenceNodeInput
	signals      []string

	updates  []string // that were started, or told to look
	restarts []workflows.RestartOSDsInput
	cephOSD  podspec.Set
	osdPods  []*corev1.Pod
	osdSets  []appsv1.Deployment
	hosts    map[string]string

	migrations    []string // that were started, with what they may do
	monPlan       activities.MonPlan
	planFails     error
	cephMon       *v1alpha1.CephMon
	deletedClaims []string

	deletion     kube.Deletion // what the API server answers to whoever wants to delete a pod
	deletionAway error
}

var cluster = storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"}

func newWorld() *world {
	since := agoMeta(2 * time.Hour)
	return &world{
		nodes: map[string]activities.NodeState{
			"node-a": {Found: true, Ready: true},
			"node-b": {Found: true, Ready: true, Cordoned: true},
		},
		policy: &v1alpha1.MaintenancePolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name, Generation: 1},
			Spec:       v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}},
			Status: v1alpha1.MaintenancePolicyStatus{
				ObservedGeneration: 1, MayDrain: "any node", Reason: budget.ReasonClean,
				Message: "one OSD may be disrupted anywhere", Since: &since,
				Storage: v1alpha1.StorageStatus{FailureDomainType: "zone", Up: "6/6", PGs: "33/33"},
				Keeper:  "keeper/rook-ceph/rook-ceph",
			},
		},
		pods: []storageview.Pod{
			{
				Name: "rook-ceph-osd-0-x", OSD: 0, Node: "node-a", State: storage.PodReady,
				Labels: map[string]string{"topology-location-zone": "zone-x"},
			},
			{
				Name: "rook-ceph-osd-1-x", OSD: 1, Node: "node-b", State: storage.PodReady,
				Labels: map[string]string{"topology-location-zone": "zone-y"},
			},
		},
		outlook: kube.Outlook{Evict: []string{"default/web-1", "rook-ceph/rook-ceph-osd-0-x"}},
		jobs:    map[string][]Job{},
		version: "1.29.1", workers: 2,
		watcher: kube.Watcher{Found: true, Holder: "watcher-1", Renewed: ago(time.Second), Lasts: 8 * time.Second},
		keeper: &workflows.KeeperStatus{
			Cluster: cluster, Clean: true, Since: ago(2 * time.Hour),
			Decision: budget.Decision{
				Mode: budget.ModeDefault, Reason: budget.ReasonClean,
				Message: "one OSD may be disrupted anywhere",
			},
			View: storage.View{
				FailureDomainType: "zone", LabelKey: "topology-location-zone", Daemons: 6, Up: 6,
				ChangeEpoch: 10,
			},
			Health: storage.Health{Fresh: true, Clean: true, ChangeEpoch: 10, PGs: 33, PGsClean: 33},
			Known: &budget.Known{
				Settings: storage.Settings{
					ManagePodBudgets: true, MaintenanceTimeout: 30 * time.Minute,
					AnnouncementTimeout: time.Minute,
				},
				Proof: &storage.CleanProof{ChangeEpoch: 10, At: ago(2 * time.Hour)},
			},
		},
	}
}

// twoClusters is a world in which a second storage cluster has daemons on the same nodes. There drain/node-b holds the
// lease.
func twoClusters() *world {
	w := newWorld()
	second := *drained().keeper
	second.Cluster = storage.ClusterKey{Namespace: "rook-b", Name: "rook-b"}
	second.Lease.Holders[0].WorkflowID, second.Lease.Holders[0].Node = "drain/node-b", "node-b"
	second.Lease.Holders[0].Domain.Name, second.Lease.Queue = "zone-y", nil
	second.Decision.Open.Name, second.View.Domains[0].Name = "zone-y", "zone-y"
	second.View.Domains[0].LabelValues = []string{"zone-y"}
	w.second = &second
	return w
}

// drained is the same world in the middle of a drain of node-a, for which node-b waits.
func drained() *world {
	w := newWorld()
	held := lease.Claim{WorkflowID: "drain/node-a", RunID: "1", Domain: storage.FailureDomain{
		Type: "zone",
		Name: "zone-x",
	}, Node: "node-a", Reason: "new kernel", Granted: ago(3 * time.Minute), Token: 7}
	waits := lease.Claim{
		WorkflowID: "drain/node-b", RunID: "2",
		Domain: storage.FailureDomain{Type: "zone", Name: "zone-y"}, Node: "node-b", Requested: ago(time.Minute),
		WaitsFor: "zone zone-y stays closed: in zone zone-x osd.0 on node-a is down",
	}
	down := storage.Daemon{Name: "osd.0", Node: "node-a", Pod: storage.PodPending}
	w.keeper.Decision = budget.Decision{
		Mode: budget.ModeOpen, Open: held.Domain, Reason: budget.ReasonLeaseHeld,
		Message: "drain/node-a holds the lease: new kernel",
	}
	w.keeper.Lease = lease.State{Token: 7, Holders: []lease.Claim{held}, Queue: []lease.Claim{waits}}
	w.keeper.Flags = []flags.Record{{
		Host: "node-a", Owner: "drain/node-a", Since: ago(3 * time.Minute),
		Expires: ago(-27 * time.Minute), Confirmed: true,
	}}
	w.keeper.Clean, w.keeper.NextTimer = false, ago(-27*time.Minute)
	w.keeper.View.Up, w.keeper.View.ChangeEpoch = 5, 12
	w.keeper.View.Domains = []storage.Domain{{
		Name: "zone-x", LabelValues: []string{"zone-x"}, Daemons: 2,
		Troubled: []storage.Daemon{down}, Touched: true,
	}}
	w.keeper.Health = storage.Health{Fresh: true, ChangeEpoch: 12, PGs: 33, PGsClean: 12}

	s := &w.policy.Status
	since := agoMeta(3 * time.Minute)
	s.MayDrain, s.Reason, s.Message, s.Since = "zone zone-x", budget.ReasonLeaseHeld, w.keeper.Decision.Message, &since
	s.Storage.Up, s.Storage.PGs, s.Storage.Down = "5/6", "12/33", []string{down.String()}
	claim := func(c lease.Claim, at time.Duration) v1alpha1.LeaseClaim {
		return v1alpha1.LeaseClaim{WorkflowID: c.WorkflowID, FailureDomain: v1alpha1.FailureDomain{
			Type: c.Domain.Type,
			Name: c.Domain.Name,
		}, Node: c.Node, Reason: c.Reason, Since: agoMeta(at), WaitsFor: c.WaitsFor}
	}
	s.Lease = v1alpha1.LeaseStatus{
		Token: 7, Holders: []v1alpha1.LeaseClaim{claim(held, 3*time.Minute)},
		Queue: []v1alpha1.LeaseClaim{claim(waits, time.Minute)},
	}
	s.Noout = []v1alpha1.NooutStatus{{
		Host: "node-a", Owner: "drain/node-a", Since: agoMeta(3 * time.Minute),
		Expires: agoMeta(-27 * time.Minute), Confirmed: true,
	}}

	w.jobs["drain/node-a"] = []Job{running("node-a", "AwaitingNode", 5,
		"node-a to be Ready and uncordoned, to be deleted, or for the signal `done`", 2*time.Minute)}
	w.jobs["drain/node-b"] = []Job{running("node-b", "AcquiringLease", 2, "the lease of zone zone-y: "+waits.WaitsFor,
		time.Minute)}
	return w
}

func running(node, phase string, step int, waits string, since time.Duration) Drain {
	return Drain{
		Node: node,
		Execution: Execution{
			WorkflowID: "drain/" + node, RunID: "run-" + node, State: Running,
			Started: ago(since + time.Minute),
		},
		Status: &workflows.DrainStatus{
			JobStatus: workflows.JobStatus{
				Phase: phase, Step: step, Steps: 6, WaitsFor: waits, Since: ago(since),
				Started: ago(since + time.Minute),
			},
			Target: activities.Target{Hosted: activities.Hosted{Cluster: cluster}, Node: node},
		},
	}
}

func ended(node, outcome string) Drain {
	return Drain{
		Node: node,
		Execution: Execution{
			WorkflowID: "drain/" + node, RunID: "run-" + node, State: "Completed",
			Started: ago(5 * time.Minute), Ended: ago(time.Minute),
		},
		Result: &DrainResult{workflows.DrainNodeResult{
			Outcome: outcome, Evicted: 3, Took: 4 * time.Minute,
			Waited: 12 * time.Second,
		}},
	}
}

func (w *world) Node(_ context.Context, name string) (activities.NodeState, error) {
	return w.nodes[name], w.kubeAway
}

func (w *world) May(_ context.Context, who kube.Account, r kube.Right) (bool, error) {
	return w.mayNot == nil || !w.mayNot(who, r), w.kubeAway
}

func (w *world) PoliciesOf(_ context.Context, node string) ([]storage.ClusterKey, storage.Answer, error) {
	if slices.ContainsFunc(w.pods, func(p storageview.Pod) bool { return p.Node == node }) {
		return w.clusters(), storage.Answer{OK: true}, w.kubeAway
	}
	return nil,
		storage.Answer{Reason: "hosts no storage of any of the 1 MaintenancePolicies, so nothing has to be guarded; use " +
			"`kubectl drain`"}, w.kubeAway
}

// clusters are those of the policies.
func (w *world) clusters() []storage.ClusterKey {
	if w.second == nil {
		return []storage.ClusterKey{cluster}
	}
	return []storage.ClusterKey{cluster, w.second.Cluster}
}

func (w *world) MaintenancePolicy(_ context.Context, key storage.ClusterKey) (*v1alpha1.MaintenancePolicy, error) {
	if !slices.Contains(w.clusters(), key) && w.kubeAway == nil {
		return nil, activities.ErrNotFound
	}
	return w.policy, w.kubeAway
}

func (w *world) MaintenancePolicies(context.Context, string) ([]v1alpha1.MaintenancePolicy, error) {
	if away := cmp.Or(w.kubeAway, w.policiesAway); w.policy == nil || away != nil {
		return nil, away
	}
	return []v1alpha1.MaintenancePolicy{*w.policy}, nil
}

func (w *world) StoragePods(context.Context, *v1alpha1.MaintenancePolicy) ([]storageview.Pod, error) {
	return w.pods, cmp.Or(w.podsErr, w.kubeAway)
}

func (w *world) DrainOutlook(
	context.Context, string, activities.EvictionOptions, []string,
) (kube.Outlook, error) {
	return w.outlook, w.kubeAway
}

func (w *world) Watcher(context.Context, string) (kube.Watcher, error) {
	return w.watcher, cmp.Or(w.watcherAway, w.kubeAway)
}

func (w *world) StartFence(_ context.Context, in workflows.FenceNodeInput) error {
	if runs := w.jobs[jobs.FenceNode.ID(in.Node)]; len(runs) > 0 {
		return ErrRuns
	}
	w.fences = append(w.fences, in)
	return w.temporalAway
}

func (w *world) StartDrain(_ context.Context, in workflows.DrainNodeInput) error {
	if runs := w.jobs[jobs.DrainNode.ID(in.Node)]; len(runs) > 0 && len(w.started) == 0 {
		if d := runs[0].(Drain); d.State == Running && d.Status != nil && d.Status.Step > 1 {
			return ErrRuns
		}
	}
	w.started = append(w.started, in)
	return w.temporalAway
}

func (w *world) Job(_ context.Context, id string) (Job, error) {
	looks := w.jobs[id]
	switch {
	case w.temporalAway != nil:
		return nil, w.temporalAway
	case len(looks) == 0:
		return nil, ErrNoJob
	case len(looks) > 1:
		w.jobs[id] = looks[1:]
	}
	return looks[0], nil
}

func (w *world) Running(context.Context) ([]Job, error) {
	var out []Job
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		if j := w.jobs[id][0]; j.execution().State == Running {
			out = append(out, j)
		}
	}
	return out, w.temporalAway
}

func (w *world) Signal(_ context.Context, id, signal string, arg any) error {
	said := signal + " " + id
	if arg != nil {
		said += fmt.Sprint(" ", arg)
	}
	w.signals = append(w.signals, said)
	return w.temporalAway
}

func (w *world) StartMigration(_ context.Context, ref activities.MonsRef, mode monplan.Mode) error {
	w.migrations = append(w.migrations, fmt.Sprintf("%s %+v", jobs.MigrateMons.ID(ref.Namespace, ref.Name), mode))
	return w.temporalAway
}

func (w *world) PlanMigration(context.Context, workflows.PlanMonsInput) (activities.MonPlan, error) {
	return w.monPlan, w.planFails
}

func (w *world) CephMon(_ context.Context, namespace, name string) (*v1alpha1.CephMon, error) {
	if m := w.cephMon; m != nil && m.Namespace == namespace && m.Name == name {
		return m, nil
	}
	return nil, activities.ErrNotFound
}

func (w *world) CephMons(_ context.Context, namespace string) ([]v1alpha1.CephMon, error) {
	if w.cephMon == nil || w.cephMon.Namespace != namespace {
		return nil, w.kubeAway
	}
	return []v1alpha1.CephMon{*w.cephMon}, w.kubeAway
}

func (w *world) DeleteMonClaim(_ context.Context, _, claim, _ string) error {
	w.deletedClaims = append(w.deletedClaims, claim)
	return nil
}

func (w *world) ForgetMonStorage(_ context.Context, m *v1alpha1.CephMon, left []v1alpha1.MonStorageLeft) error {
	m.Status.Left = left
	return nil
}

func (w *world) StartUpdate(_ context.Context, namespace, name string) error {
	w.updates = append(w.updates, namespace+"/"+name)
	return w.temporalAway
}

func (w *world) StartRestart(_ context.Context, in workflows.RestartOSDsInput) error {
	if r := w.jobs[jobs.RestartOSDs.ID(in.Namespace)]; len(r) > 0 && len(w.restarts) == 0 && r[0].(Rollout).Status != nil {
		return ErrRuns
	}
	w.restarts = append(w.restarts, in)
	return w.temporalAway
}

func (w *world) CephOSD(_ context.Context, namespace, name string) (podspec.Set, error) {
	if w.kubeAway == nil && (w.cephOSD.CephOSD == nil || w.cephOSD.Namespace != namespace || w.cephOSD.Name != name) {
		return podspec.Set{}, activities.ErrNotFound
	}
	return w.cephOSD, w.kubeAway
}

func (w *world) CephOSDPods(context.Context, string, string) ([]*corev1.Pod, error) {
	return w.osdPods, w.kubeAway
}

func (w *world) Deployments(context.Context, string, string) ([]appsv1.Deployment, error) {
	return w.osdSets, w.kubeAway
}

func (w *world) TryDelete(context.Context, string, string) (kube.Deletion, error) {
	return w.deletion, cmp.Or(w.deletionAway, w.kubeAway)
}

func (w *world) StorageWishes(context.Context, *v1alpha1.MaintenancePolicy) ([]kube.StorageWish, error) {
	return w.wishes, w.kubeAway
}

func (w *world) DrivenOff(context.Context, *v1alpha1.MaintenancePolicy) ([]kube.DrivenDaemon, error) {
	return w.driven, w.kubeAway
}

func (w *world) Hosts(context.Context) (map[string]string, error) { return w.hosts, w.kubeAway }

func (w *world) Version(context.Context) (string, error) { return w.version, w.temporalDown }

func (w *world) Pollers(context.Context) (forWorkflows, forActivities int, err error) {
	return w.workers, w.workers, w.temporalAway
}

func (w *world) Runs(_ context.Context, id string) ([]RunInfo, error) {
	var out []RunInfo
	for _, r := range slices.Backward(w.records[id]) {
		out = append(out, RunInfo{
			RunID:   r.Events[0].GetWorkflowExecutionStartedEventAttributes().GetOriginalExecutionRunId(),
			Started: r.Started(), Ended: r.Ended(),
		})
	}
	if len(out) == 0 && w.temporalAway == nil {
		return nil, ErrNoJob
	}
	return out, w.temporalAway
}

func (w *world) Record(ctx context.Context, id, run string) (history.Run, error) {
	runs, _ := w.Runs(ctx, id)
	i := slices.IndexFunc(runs, func(r RunInfo) bool { return r.RunID == run })
	return w.records[id][len(runs)-1-i], w.recordAway[id]
}

func (w *world) Keeper(_ context.Context, key storage.ClusterKey) (workflows.KeeperStatus, error) {
	if err := cmp.Or(w.temporalAway, w.keeperAway); err != nil {
		return workflows.KeeperStatus{}, err
	}
	if w.second != nil && key == w.second.Cluster {
		return *w.second, nil
	}
	return *w.keeper, nil
}

// command returns a command in this world, and what it prints.
func (w *world) command() (c *Command, out, errOut *bytes.Buffer) {
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	return &Command{
		WorkerNamespace: "lockkeeper-system", Kubernetes: w, Temporal: w, Out: out, Err: errOut,
		Now: func() time.Time { return night },
	}, out, errOut
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}
