package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file has MigrateMons move mons that are a monmap, a quorum and some Deployments in memory. Whatever the job does
// is judged at that moment, by I5: never fewer in quorum than a majority of the monmap as it is after an act.

// monWorld stands in for Ceph, Kubernetes and the keeper.
type monWorld struct {
	activities.Keepers // of which a migration needs but one method

	mu     sync.Mutex
	env    *testsuite.TestWorkflowEnvironment
	random *rand.Rand
	unsure int // one of so many acts is done and fails all the same, as by the death of a worker; 0: none

	want      monplan.Want
	elsewhere string
	mons      map[string]*simMon // whoever was ever made
	monmap    []string
	endpoints []string
	nodes     []string
	canary    string
	claims    map[string]bool
	lease     lease.State
	leases    []string // mons for which the lease was granted
	acts      []string
	wrong     []string
	never     bool // a newcomer never comes into quorum
}

type simMon struct {
	node              string
	claim             bool
	deployed, running bool
	late              int // looks until it is in quorum
	template          string
}

func newMonWorld(mons string) *monWorld {
	w := &monWorld{
		mons: map[string]*simMon{}, claims: map[string]bool{}, random: rand.New(rand.NewPCG(1, 1)),
		want: monplan.Want{
			Generation: 1, Count: len(mons), Storage: map[string]monplan.Storage{}, Template: "t",
			HealthTimeout: 10 * time.Minute, JoinTimeout: 10 * time.Minute,
		},
	}
	for _, r := range mons {
		name := string(r)
		w.monmap, w.endpoints = append(w.monmap, name), append(w.endpoints, name)
		w.mons[name] = &simMon{node: "node-" + name, deployed: true, running: true, template: "t"}
		w.nodes = append(w.nodes, "node-"+name)
	}
	w.nodes = append(w.nodes, "spare-1", "spare-2")
	return w
}

func (w *monWorld) alive(name string) bool {
	m := w.mons[name]
	return slices.Contains(w.monmap, name) && m.deployed && m.running && m.late == 0
}

func (w *monWorld) living() (n int) {
	for _, name := range w.monmap {
		if w.alive(name) {
			n++
		}
	}
	return n
}

func (w *monWorld) bad(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *monWorld) free(old string) string {
	for _, node := range w.nodes {
		if !slices.ContainsFunc(w.monmap, func(m string) bool { return w.mons[m].node == node }) {
			return node
		}
	}
	return ""
}

// Survey implements activities.Mons.
func (w *monWorld) Survey(
	_ context.Context, _ activities.MonsRef, m activities.MonMemory,
) (activities.MonSurvey, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, mon := range w.mons {
		if mon.late > 0 && mon.deployed && !w.never {
			mon.late--
		}
	}
	s := monplan.Seen{
		Now: time.Now(), Want: w.want, Mode: m.Mode, Endpoints: slices.Clone(w.endpoints), Failed: m.Failed,
		Elsewhere: w.elsewhere, NextID: max(m.NextID, len(w.mons)),
	}
	if 2*w.living() <= len(w.monmap) {
		s.Unproved = "no answer"
	}
	for _, name := range w.monmap {
		mon := w.mons[name]
		s.Mons = append(s.Mons, monplan.Mon{
			Name: name, Alive: w.alive(name), Node: mon.node, Bound: !mon.claim, Storage: monplan.Storage{Claim: mon.claim},
			Template: mon.template,
		})
	}
	out := activities.MonSurvey{Found: true, Cluster: storage.ClusterKey{Namespace: "n", Name: "p"}, OutSince: m.OutSince}
	if s.Unproved == "" {
		out.OutSince = monplan.Timers(m.OutSince, s.Mons, s.Now)
	}
	for i := range s.Mons {
		s.Mons[i].OutSince = out.OutSince[s.Mons[i].Name]
	}
	for _, node := range w.nodes {
		s.Nodes = append(s.Nodes, monplan.Node{Name: node})
	}
	if m.Work != nil {
		work, newcomer, old := *m.Work, w.mons[m.Work.Newcomer], w.mons[m.Work.Old]
		if work.Canary = w.canary == work.Newcomer && w.canary != ""; work.Canary {
			work.Scheduled, work.Node = true, w.free(work.Old)
			work.Claimed = w.claims[work.Newcomer]
		}
		work.Running = newcomer != nil && newcomer.deployed
		work.Stopped = old == nil || !old.deployed
		work.Restarted = old != nil && old.template == w.want.Template
		work.Traces = w.claims[work.Newcomer]
		s.Work = &work
	}
	out.Step, out.NextID = monplan.Next(s), s.NextID
	out.Counts = activities.MonCounts{Mons: len(w.monmap), InQuorum: w.living()}
	return out, nil
}

// Do implements activities.Mons.
func (w *monWorld) Do(_ context.Context, _ activities.MonsRef, step monplan.Step) (storage.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	act, work := step.Acts[0], step.Work
	w.acts = append(w.acts, fmt.Sprintf("%s %s", act.Do, act.Mon))
	switch act.Do {
	case monplan.Schedule:
		w.canary = act.Mon
	case monplan.ClaimVolume:
		w.claims[act.Mon] = true
	case monplan.DropCanary:
		w.canary = ""
	case monplan.Start:
		w.start(act.Mon, work)
	case monplan.SaveEndpoints:
		w.endpoints = slices.DeleteFunc(slices.Clone(w.monmap), func(m string) bool {
			return m == work.Newcomer &&
				!w.alive(m)
		})
	case monplan.RemoveMon:
		w.remove(act.Mon, step)
	case monplan.StopMon:
		if slices.Contains(w.monmap, act.Mon) {
			w.bad("mon.%s is stopped while the monmap has it", act.Mon)
		}
		w.mons[act.Mon].deployed = false
	case monplan.RestartMon:
		if w.alive(act.Mon) && 2*(w.living()-1) <= len(w.monmap) {
			w.bad("without mon.%s, which is restarted, there is no quorum", act.Mon)
		}
		w.underLease(act.Mon)
		w.mons[act.Mon].template, w.mons[act.Mon].late = w.want.Template, 2
	case monplan.DropTraces:
		if m := w.mons[act.Mon]; m != nil && m.deployed {
			w.bad("the claim of mon.%s is deleted, which runs", act.Mon)
		}
		delete(w.claims, act.Mon)
	}
	if w.unsure > 0 && w.random.IntN(w.unsure) == 0 {
		return storage.Answer{}, errors.New("the worker died right after")
	}
	return storage.Answer{OK: true}, nil
}

func (w *monWorld) start(name string, work *monplan.Work) {
	if w.canary != "" {
		w.bad("mon.%s is started beside its canary", name)
	}
	if work.Started.IsZero() {
		w.bad("mon.%s is started, and that is written down nowhere", name)
	}
	if !slices.Contains(w.monmap, name) {
		if 2*w.living() <= len(w.monmap)+1 {
			w.bad("if mon.%s dies while it joins, %d of %d live", name, w.living(), len(w.monmap)+1)
		}
		w.monmap = append(w.monmap, name)
		w.mons[name] = &simMon{node: work.Node, claim: w.want.Storage[""].Claim, late: 3, template: w.want.Template}
	}
	w.mons[name].deployed, w.mons[name].running = true, true
}

func (w *monWorld) remove(name string, step monplan.Step) {
	i := slices.Index(w.monmap, name)
	if i < 0 {
		return
	}
	lives := w.alive(name)
	w.monmap = slices.Delete(w.monmap, i, i+1)
	if 2*w.living() <= len(w.monmap) {
		w.bad("mon.%s leaves, and %d of %d live", name, w.living(), len(w.monmap))
	}
	if !lives || name == step.Work.Newcomer {
		return
	}
	w.underLease(name)
	if step.Work.Kind == monplan.Migrate && !w.alive(step.Work.Newcomer) {
		w.bad("mon.%s leaves before mon.%s is in quorum", name, step.Work.Newcomer)
	}
}

func (w *monWorld) underLease(name string) {
	if w.lease.MonHeld() != name {
		w.bad("mon.%s goes, and the lease is held for %q", name, w.lease.MonHeld())
	}
}

func (w *monWorld) Forget(context.Context, activities.MonsRef, monplan.Work) error { return nil }

func (w *monWorld) Plan(context.Context, activities.MonsRef, monplan.Mode) (activities.MonPlan, error) {
	return activities.MonPlan{}, nil
}

func (w *monWorld) Of(context.Context, storage.ClusterKey) ([]activities.MonsRef, error) {
	return nil, nil
}

// RequestLease implements activities.Keepers: whatever is asked for is granted.
func (w *monWorld) RequestLease(_ context.Context, _ storage.ClusterKey, c lease.Claim) error {
	w.mu.Lock()
	w.lease, _ = w.lease.Request(c).Grant(func(lease.Claim) storage.Answer { return storage.Answer{OK: true} }, time.Now())
	had, _, _ := w.lease.Find(c.WorkflowID, c.RunID)
	w.leases = append(w.leases, c.Domain.Name)
	env := w.env
	w.mu.Unlock()
	env.SignalWorkflow(workflows.SignalLease, workflows.LeaseNotice{
		State: workflows.LeaseGranted, RunID: c.RunID, Ask: c.Ask, Token: had.Token,
	})
	return nil
}

// told is the keeper that hears from the job.
func (w *monWorld) told(name string, r workflows.LeaseRef) {
	w.mu.Lock()
	w.lease = w.lease.Release(r.WorkflowID, r.RunID)
	env := w.env
	w.mu.Unlock()
	if name == workflows.SignalFinishLease {
		env.SignalWorkflow(workflows.SignalLease,
			workflows.LeaseNotice{State: workflows.LeaseReleased, RunID: r.RunID, Ask: r.Ask})
	}
}

// monPolicies is the policy, of which only the lease is read.
type monPolicies struct {
	activities.Policies
	*monWorld
}

func (p monPolicies) Policy(_ context.Context, key storage.ClusterKey) (activities.Policy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return activities.Policy{Key: key, Memory: activities.Memory{Lease: p.lease}}, nil
}

// run runs the job to its end.
func (w *monWorld) run(t *testing.T, in workflows.MigrateMonsInput) (out workflows.MigrateMonsResult) {
	t.Helper()
	in.CephMon = "n/mons"
	for runs := 0; ; runs++ {
		require.Less(t, runs, 300, "it goes on for ever: %v", w.acts)
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(quiet{})
		env := suite.NewTestWorkflowEnvironment()
		w.mu.Lock()
		w.env = env
		w.mu.Unlock()
		env.SetTestTimeout(24 * time.Hour)
		env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "migrate-mons/n/mons"})
		env.RegisterWorkflowWithOptions(workflows.MigrateMons, workflow.RegisterOptions{Name: "MigrateMons"})
		env.RegisterActivityWithOptions(&activities.MonJob{Mons: w, Policies: monPolicies{monWorld: w}},
			activity.RegisterOptions{})
		env.RegisterActivityWithOptions(&activities.Drain{Keepers: w}, activity.RegisterOptions{})
		env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
			func(_, _, _, name string, arg any) error { w.told(name, arg.(workflows.LeaseRef)); return nil })
		env.ExecuteWorkflow(workflows.MigrateMons, in)
		err := env.GetWorkflowError()
		var next *workflow.ContinueAsNewError
		if errors.As(err, &next) {
			in = workflows.MigrateMonsInput{}
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
			continue
		}
		require.NoError(t, err)
		require.NoError(t, env.GetWorkflowResult(&out))
		require.Empty(t, w.wrong, "%v", w.acts)
		require.Empty(t, w.lease.Holders, "the lease is given back")
		require.Empty(t, w.canary, "no canary is left")
		return out
	}
}

// TestMigrateMons moves three mons from paths to claims.
func TestMigrateMons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMonWorld("abc")
		w.want.Storage[""] = monplan.Storage{Claim: true}
		out := w.run(t, workflows.MigrateMonsInput{Migrate: true})
		require.Equal(t, workflows.OutcomeDone, out.Outcome, out.Why)
		require.Equal(t, []string{"d", "e", "f"}, w.monmap)
		require.Equal(t, []string{"d", "e", "f"}, w.endpoints)
		require.Equal(t, []string{"a", "b", "c"}, w.leases)
	})
}
