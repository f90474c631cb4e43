package workflows_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file stands in for the watcher and for those parts of Temporal's server that the test environment lacks.

// RequestLease implements activities.Keepers as the worker does: by an update that starts the keeper if need be.
func (s *scene) RequestLease(ctx context.Context, cluster storage.ClusterKey, claim lease.Claim) error {
	return s.askKeeper(ctx, cluster, workflows.UpdateRequestLease, workflows.LeaseRequest{Claim: claim})
}

// RequestFence implements activities.Keepers in the same way.
func (s *scene) RequestFence(
	ctx context.Context, cluster storage.ClusterKey, target fencing.Target, healing bool,
) error {
	return s.askKeeper(ctx, cluster, workflows.UpdateRequestFence,
		workflows.FenceRequest{Target: target, Healing: healing})
}

func (s *scene) askKeeper(ctx context.Context, cluster storage.ClusterKey, update string, request any) error {
	id := workflows.KeeperID(cluster)
	s.startKeeperOf(cluster)
	answer := make(chan error, 1)
	s.post(func() {
		if s.dead(id) {
			answer <- errors.New("the keeper is terminated")
			return
		}
		err := s.env.UpdateWorkflowByID(id, update, rand.Text(), &testsuite.TestUpdateCallback{
			OnAccept:   func() {},
			OnReject:   func(err error) { answer <- err },
			OnComplete: func(_ any, err error) { answer <- err },
		}, request)
		if err != nil {
			answer <- err
		}
	})
	select {
	case err := <-answer:
		return err
	case <-time.After(5 * time.Second):
		return errors.New("the keeper does not answer")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TellMons implements activities.Migrations.
func (s *scene) TellMons(context.Context, activities.MonsRef, string) error { return nil }

// AwaitEnd implements activities.Jobs.
func (s *scene) AwaitEnd(ctx context.Context, id, run string) (string, error) {
	stop := context.AfterFunc(ctx, func() { s.update(func() {}) })
	defer stop()
	var e ended
	var ok bool
	s.until(forever, func() bool { e, ok = s.ended[id+"@"+run]; return ok || s.over || ctx.Err() != nil })
	if !ok {
		return "", errors.New("nobody waits any more")
	}
	return fmt.Sprint(e.err), nil
}

// sight is what the watcher sees of one storage cluster.
type sight struct {
	*sim.World
	before *starter.Snapshot
	due    bool // the watcher looks in a moment
	left   bool // a policy that is gone had left budgets a minute ago
}

// look is the watcher: it compares what it sees with what it saw, and tells the keeper, or starts a drain that
// observes. Changes that it has not looked at yet are one look.
func (s *scene) look(x *sight) {
	s.mu.Lock()
	due := x.due
	x.due = true
	s.mu.Unlock()
	if due {
		return
	}
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	x.due = false
	if s.blind || s.over {
		s.mu.Unlock()
		return
	}
	away := s.away
	now, exists := x.Snapshot(x.before)
	if !exists {
		x.before = nil
		s.mu.Unlock()
		s.lookAtOSDs()
		return
	}
	todo, alarm := starter.Decide(x.before, now), starter.Alarm(x.before, now)
	x.before = &now
	s.mu.Unlock()
	if alarm != "" && x.Managed() {
		s.Tell("the watcher closes: %s", alarm)
		if err := x.CloseBudgets(context.Background(), alarm); err != nil {
			s.Tell("the watcher could not close: %v", err)
		}
	}
	s.lookAtOSDs()
	if todo.IsZero() {
		return
	}
	if away {
		s.until(forever, func() bool { return !s.away || s.over }) // the watcher tries again until it lands
	}
	s.startKeeperOf(x.Key())
	s.signal(workflows.KeeperID(x.Key()), workflows.SignalStorageChanged, todo.Hint)
	for node, why := range todo.Drains {
		s.observe(x, node, why)
	}
}

// leftOver tells whether a policy that is gone left budgets, now and a minute ago.
func (s *scene) leftOver(x *sight) bool {
	was := x.left
	x.left = len(starter.Leftovers(nil, x.Budgets())) > 0
	return was && x.left
}

// takeUp is what the watcher does once a minute, too.
func (s *scene) takeUp(x *sight) {
	s.mu.Lock()
	now, exists := x.Snapshot(x.before)
	away := s.away
	s.mu.Unlock()
	if !exists || away {
		return
	}
	for node, why := range starter.Orphans(now) {
		if s.terminated(jobs.DrainNode.ID(node)) {
			s.observe(x, node, why)
		}
	}
}

func (s *scene) observe(x *sight, node, why string) {
	s.start(jobs.DrainNode.ID(node), jobs.DrainNode.Type,
		workflows.DrainNodeInput{Node: node, Policy: x.Key().String(), Reason: why, Observe: true})
}

// terminated tells whether the last job of this ID was.
func (s *scene) terminated(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen[id+"@"+s.last[id]]
}

// ensureKeeper is what the watcher does once a minute.
func (s *scene) ensureKeeper() {
	for !s.until(time.Minute, func() bool { return s.over }) {
		for _, x := range s.sights {
			s.mu.Lock()
			blind, away := s.blind, s.away
			unknown := x.before == nil
			s.mu.Unlock()
			if !x.PolicyExists() && !blind && !away && s.leftOver(x) {
				s.startKeeperOf(x.Key())
			}
			if !x.PolicyExists() || blind || unknown {
				continue
			}
			s.startKeeperOf(x.Key())
			s.takeUp(x)
		}
	}
}

// blindfold stops the watcher, or starts it again.
func (s *scene) blindfold(blind bool) {
	s.update(func() {
		if s.blind = blind; blind {
			s.osds = nil // it begins anew, and knows nothing
		}
	})
	for _, x := range s.sights {
		if x.Blind(blind); !blind {
			s.look(x)
		}
	}
}

// registry dresses workflows up: in the test environment a child has no first run, and nobody can be terminated.
type registry struct {
	*testsuite.TestWorkflowEnvironment
	scene *scene
}

func (r registry) RegisterWorkflowWithOptions(w any, o workflow.RegisterOptions) {
	switch w := w.(type) {
	case func(workflow.Context, workflows.KeeperInput) (workflows.KeeperResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(
			func(ctx workflow.Context, in workflows.KeeperInput) (workflows.KeeperResult, error) {
				return r.scene.keeper(ctx, w, in)
			}, o)
	case func(workflow.Context, workflows.DrainNodeInput) (workflows.DrainNodeResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.ScaleDownNodeInput) (workflows.ScaleDownNodeResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.FenceNodeInput) (workflows.FenceNodeResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.UpdateOSDsInput) (workflows.UpdateOSDsResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.RestartWaitingInput) (workflows.UpdateOSDsResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.RestartOSDsInput) (workflows.UpdateOSDsResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.MigrateMonsInput) (workflows.MigrateMonsResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.PlanMonsInput) (activities.MonPlan, error): // it changes nothing
	default:
		panic(fmt.Sprintf("a workflow of an unknown shape: %T", w))
	}
}

// keeper runs the keeper until it ends, or is terminated. When it continues as new, it goes on here: the test
// environment would begin a child anew, but never quite end the old one.
func (s *scene) keeper(
	ctx workflow.Context, keeper func(workflow.Context, workflows.KeeperInput) (workflows.KeeperResult, error),
	in workflows.KeeperInput,
) (result workflows.KeeperResult, err error) {
	info := workflow.GetInfo(ctx)
	info.FirstRunID = info.WorkflowExecution.RunID
	if in.Cluster == s.Key() {
		s.update(func() { s.keepers = info })
	}
	terminated := false
	workflow.Go(ctx, func(ctx workflow.Context) {
		workflow.GetSignalChannel(ctx, terminate).Receive(ctx, nil)
		terminated = true
	})
	for {
		runCtx, end := workflow.WithCancel(ctx)
		done := false
		workflow.Go(runCtx, func(ctx workflow.Context) { result, err = keeper(ctx, in); done = true })
		if err := workflow.Await(ctx, func() bool { return done || terminated }); err != nil {
			end()
			return result, err
		}
		end()
		var next *workflow.ContinueAsNewError
		switch {
		case terminated:
			return result, errors.New("terminated")
		case !errors.As(err, &next):
			s.update(func() { s.left = result })
			return result, err
		}
		in = workflows.KeeperInput{}
		if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &in); err != nil {
			return result, err
		}
		s.suggestContinueAsNew(false)
		s.update(func() { s.continued++ })
	}
}

// suggestContinueAsNew tells the keeper whether its history is long enough. The test environment can tell that to the
// host only; what it told the host is passed on. It must be called where workflows run.
func (s *scene) suggestContinueAsNew(suggest bool) { s.suggestTo(s.keepers, suggest) }

func (s *scene) suggestTo(info *workflow.Info, suggest bool) {
	s.env.SetContinueAsNewSuggested(suggest)
	own := *info
	*info = *s.hostInfo
	to, from := reflect.ValueOf(info).Elem(), reflect.ValueOf(own)
	for i := range to.NumField() {
		if to.Field(i).CanSet() {
			to.Field(i).Set(from.Field(i))
		}
	}
}
