package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is what a scene knows of rollouts.

var (
	updateID  = jobs.UpdateOSDs.ID(sim.Key.Namespace, sim.CephOSDName)
	restartID = jobs.RestartOSDs.ID(sim.Key.Namespace)
)

// gathers is how long the watcher of the CephOSD listens on after it has heard of something.
const gathers = 200 * time.Millisecond

// osdWatcher is the watcher of the CephOSD, with its own reconciler: it starts the rollout, or tells it.
type osdWatcher struct {
	scene *scene
	turn  chan struct{} // a CephOSD is reconciled by one goroutine at a time; a mutex would stop the bubble's time
	*starter.OSDSetReconciler
	asked bool // to look soon
}

// watchOSDs is a watcher that has just begun.
func (s *scene) watchOSDs() *osdWatcher {
	w := &osdWatcher{scene: s, turn: make(chan struct{}, 1)}
	w.OSDSetReconciler = &starter.OSDSetReconciler{Objects: s.Cache(), Temporal: w, Log: logr.Discard(), Now: time.Now}
	return w
}

// SignalMons is not asked of it either.
func (w *osdWatcher) SignalScaleDown(context.Context, workflows.ScaleDownNodeInput, string) error {
	return nil
}

func (w *osdWatcher) SignalMons(context.Context, string, string, string) error { return nil }

// SignalRollout implements starter.Temporal; the rest of it is not asked of a watcher of CephOSDs.
func (w *osdWatcher) SignalRollout(_ context.Context, _, _, reason string) error {
	w.scene.Tell("the watcher tells the rollout: %s", reason)
	w.scene.rollOut()
	w.scene.signal(updateID, workflows.SignalOSDsChanged, nil)
	return nil
}

func (*osdWatcher) SignalKeeper(context.Context, storage.ClusterKey, workflows.Hint) error {
	return errors.ErrUnsupported
}

func (*osdWatcher) SignalWaiting(context.Context, storage.ClusterKey, string, bool) error {
	return errors.ErrUnsupported
}

func (*osdWatcher) Kept(context.Context, storage.ClusterKey) (workflows.Kept, error) {
	return workflows.Kept{}, errors.ErrUnsupported
}

func (*osdWatcher) EnsureKeeper(context.Context, storage.ClusterKey) error {
	return errors.ErrUnsupported
}

func (*osdWatcher) RestartKeeper(context.Context, storage.ClusterKey) error {
	return errors.ErrUnsupported
}

func (*osdWatcher) TakeUpDrain(context.Context, workflows.DrainNodeInput) (bool, error) {
	return false, nil
}

func (*osdWatcher) StartDrain(context.Context, workflows.DrainNodeInput) error {
	return errors.ErrUnsupported
}

// lookAtOSDs has the watcher of the CephOSD look soon.
func (s *scene) lookAtOSDs() { s.lookAtOSDsIn(gathers) }

func (s *scene) lookAtOSDsIn(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blind || s.over {
		return
	}
	if s.osds == nil {
		s.osds = s.watchOSDs()
	}
	w := s.osds
	if after == gathers {
		if w.asked {
			return
		}
		w.asked = true
	}
	time.AfterFunc(after, func() { w.look(after) })
}

func (w *osdWatcher) look(after time.Duration) {
	w.scene.mu.Lock()
	gone := w.scene.osds != w || w.scene.over // it was stopped meanwhile
	if after == gathers {
		w.asked = false
	}
	w.scene.mu.Unlock()
	if gone {
		return
	}
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: sim.Key.Namespace, Name: sim.CephOSDName}}
	if result, err := w.Reconcile(context.Background(), key); err != nil {
		w.scene.Errorf("the watcher of the CephOSD: %v", err)
	} else if result.RequeueAfter > 0 {
		w.scene.lookAtOSDsIn(result.RequeueAfter)
	}
}

// rollOut starts the rollout of the CephOSD unless it is under way.
func (s *scene) rollOut() (run string) {
	return s.start(updateID, jobs.UpdateOSDs.Type,
		workflows.UpdateOSDsInput{CephOSD: sim.Key.Namespace + "/" + sim.CephOSDName})
}

func (s *scene) updateStatus(id string) (status workflows.UpdateStatus) {
	if s.runs(id) {
		s.query(id, &status)
	}
	return status
}

// tellRollout sends one of the signals that persons send.
func (s *scene) tellRollout(signal string, arg any) {
	s.Tell("a person tells the rollout: %s %v", signal, arg)
	s.signal(updateID, signal, arg)
}

// awaitImage waits until every OSD runs in an image and the rollout has ended.
func (s *scene) awaitImage(image string, within time.Duration) {
	s.Helper()
	if !s.Await(within, func() bool { return s.Images()[image] == s.OSDs() && !s.runs(updateID) }) {
		s.Errorf("all OSDs should run %s: %v, %+v", image, s.Images(), s.updateStatus(updateID))
	}
}

// awaitUpdate waits until something is true of the rollout's status.
func (s *scene) awaitUpdate(
	what string, within time.Duration, is func(workflows.UpdateStatus) bool,
) workflows.UpdateStatus {
	s.Helper()
	var status workflows.UpdateStatus
	if !s.Await(within, func() bool { status = s.updateStatus(updateID); return is(status) }) {
		s.Errorf("the rollout should be %s: %+v", what, status)
	}
	return status
}

// settleOSDs plays until the keeper and the rollout have seen that all is well.
func (s *scene) settleOSDs() {
	s.Helper()
	s.startKeeper()
	s.awaitBudget(fmt.Sprintf("at rest, %d must stay", s.OSDs()-1), time.Minute)
	s.lookAtOSDs()
	s.awaitImage(sim.FirstImage, 2*time.Minute)
	s.awaitNothingLeft(time.Minute)
}

// awaitWhole waits until everything is as it should be, and nothing of ours is left.
func (s *scene) awaitWhole() {
	s.Helper()
	wrong := func() []string { return slices.Concat(s.Whole(), s.Leftovers(), s.NooutOSDs()) }
	if !s.Await(5*time.Minute, func() bool { return len(wrong()) == 0 }) {
		s.Errorf("left: %q", wrong())
	}
}

// awaitRollout waits for the end of one run of a rollout.
func (s *scene) awaitRollout(id, run string, within time.Duration) (e ended) {
	s.Helper()
	if !s.until(within, func() (ok bool) { e, ok = s.ended[id+"@"+run]; return ok }) {
		s.Errorf("%s has not ended: %+v", id, s.updateStatus(id))
	}
	return e
}

func (*osdWatcher) SignalFence(context.Context, workflows.FenceNodeInput, string, bool) error {
	return nil
}
