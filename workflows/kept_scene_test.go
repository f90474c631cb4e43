package workflows_test

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// auditing is Temporal as the watcher's auditor reaches it.
type auditing struct {
	starter.Temporal
	scene *scene
}

// keptWithin is how long the watcher waits for an answer.
const keptWithin = 8 * time.Second

// Kept implements starter.Temporal: without a worker, or without Temporal, no answer comes.
func (a auditing) Kept(ctx context.Context, key storage.ClusterKey) (out workflows.Kept, err error) {
	s, id := a.scene, workflows.KeeperID(key)
	if key != sim.Key {
		return workflows.Kept{OK: true}, nil
	}
	s.mu.Lock()
	down, runs := s.away || s.crashes%2 == 1, s.running[id] != "" && !s.frozen[id+"@"+s.running[id]]
	s.mu.Unlock()
	switch {
	case down:
		s.untilDone(ctx, keptWithin, func() bool { return s.over })
		return out, errors.New("no worker answers")
	case !runs:
		return workflows.Kept{Why: id + " does not run"}, nil
	}
	err = errors.New("the keeper has only just begun")
	done := make(chan struct{})
	s.post(func() {
		defer close(done)
		defer func() { _ = recover() }() // the test environment panics when the workflow has only just begun
		if v, asked := s.env.QueryWorkflowByID(id, workflows.QueryKept); asked == nil {
			err = v.Get(&out)
		}
	})
	<-done
	return out, err
}

// SignalKeeper implements starter.Temporal.
func (a auditing) SignalKeeper(_ context.Context, key storage.ClusterKey, hint workflows.Hint) error {
	a.scene.Tell("the watcher tells the keeper: %s", hint.Reason)
	a.scene.startKeeper()
	a.scene.signal(workflows.KeeperID(key), workflows.SignalStorageChanged, hint)
	return nil
}

// auditEvery is how often the watcher asks.
const auditEvery = 5 * time.Second

// audit is the part of the watcher that says of a status that nobody keeps it. One that has just begun knows nothing.
func (s *scene) audit() {
	var a *starter.Auditor
	for !s.until(auditEvery, func() bool { return s.over }) {
		s.mu.Lock()
		blind := s.blind
		s.mu.Unlock()
		switch {
		case blind:
			a = nil
			continue
		case a == nil:
			a = &starter.Auditor{Objects: s.Cache(), Temporal: auditing{scene: s}, Statuses: s.AsWatcher(), Log: logr.Discard()}
		}
		before := s.Status()
		a.Audit(context.Background())
		if after := s.Status(); kube.Disowned(after) && !kube.Disowned(before) {
			s.Tell("the watcher says of the status: %s", after.Message)
		}
	}
}

// judgeStatus has the World judge the status while nobody can keep it and a watcher lives.
func (s *scene) judgeStatus() {
	var (
		since   time.Time
		crashes int
	)
	for !s.until(time.Second, func() bool { return s.over || s.stopping }) {
		s.mu.Lock()
		unkept := !s.blind && (s.away || s.crashes%2 == 1)
		lived := s.crashes != crashes // in between, and may have kept it
		crashes = s.crashes
		s.mu.Unlock()
		switch {
		case !unkept:
			since = time.Time{}
		case since.IsZero() || lived:
			since = time.Now()
		default:
			s.JudgeStatus(time.Since(since))
		}
	}
}

// partTemporal takes Temporal away from everybody, or gives it back: no attempt of an activity begins or ends, and no
// signal arrives.
func (s *scene) partTemporal(away bool) {
	s.crashWorker(away)
	s.update(func() { s.away = away })
}
