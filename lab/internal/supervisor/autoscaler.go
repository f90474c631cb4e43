package supervisor

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper/lab/internal/autoscaler"
)

// startAutoscaler returns when the Cluster Autoscaler works.
func (l *lab) startAutoscaler(ctx context.Context, o autoscaler.Options) error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	l.mu.Lock()
	ready, runs := l.ready, l.autoscaler != nil
	l.mu.Unlock()
	if !ready {
		return errors.New("the lab is still starting")
	}
	if runs {
		return errors.New("the Cluster Autoscaler runs already")
	}
	process, err := autoscaler.Start(ctx, autoscaler.Config{
		Instance: l.Instance, Topology: l.Topology, Bin: filepath.Dir(l.binary),
	}, o)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.autoscaler = process
	l.mu.Unlock()
	return nil
}

// stopAutoscaler ends it in the middle of whatever it does, as a rollout of its own would.
func (l *lab) stopAutoscaler() error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	l.mu.Lock()
	process := l.autoscaler
	l.autoscaler = nil
	l.mu.Unlock()
	if process == nil {
		return errors.New("no Cluster Autoscaler runs")
	}
	process.Stop()
	return nil
}
