package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper/lab/internal/autoscaler"
	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/controlplane"
	"github.com/lockkeeper/lockkeeper/lab/internal/karpenter"
)

// startAutoscaler returns when the Cluster Autoscaler works.
func (l *lab) startAutoscaler(ctx context.Context, o autoscaler.Options) error {
	return l.startScaling(&l.autoscaler, "the Cluster Autoscaler", func() (*child.Process, error) {
		return autoscaler.Start(ctx, autoscaler.Config{
			Instance: l.Instance, Topology: l.Topology, Bin: filepath.Dir(l.binary),
		}, o)
	})
}

func (l *lab) stopAutoscaler() error { return l.stopScaling(&l.autoscaler, "Cluster Autoscaler") }

// startKarpenter returns when Karpenter works.
func (l *lab) startKarpenter(ctx context.Context, o karpenter.Options) error {
	return l.startScaling(&l.karpenter, "Karpenter", func() (*child.Process, error) {
		config, err := controlplane.RestConfig(l.Instance)
		if err != nil {
			return nil, err
		}
		return karpenter.Start(ctx, karpenter.Config{
			Instance: l.Instance, Topology: l.Topology, Bin: filepath.Dir(l.binary), Rest: config,
		}, o)
	})
}

func (l *lab) stopKarpenter() error { return l.stopScaling(&l.karpenter, "Karpenter") }

// startScaling starts a program that adds and removes nodes, which slot is for.
func (l *lab) startScaling(slot **child.Process, name string, start func() (*child.Process, error)) error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	l.mu.Lock()
	ready, runs := l.ready, *slot != nil
	l.mu.Unlock()
	if !ready {
		return errors.New("the lab is still starting")
	}
	if runs {
		return fmt.Errorf("%s runs already", name)
	}
	process, err := start()
	if err != nil {
		return err
	}
	l.mu.Lock()
	*slot = process
	l.mu.Unlock()
	return nil
}

// stopScaling ends it in the middle of whatever it does, as a rollout of its own would.
func (l *lab) stopScaling(slot **child.Process, name string) error {
	l.scaling.Lock()
	defer l.scaling.Unlock()
	l.mu.Lock()
	process := *slot
	*slot = nil
	l.mu.Unlock()
	if process == nil {
		return fmt.Errorf("no %s runs", name)
	}
	process.Stop()
	return nil
}

// startOrStop answers requests to start a program with options, or to stop it.
func startOrStop[O any](start func(context.Context, O) error, stop func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch r.PathValue("verb") {
		case "start":
			var o O
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			err = start(r.Context(), o)
		case "stop":
			err = stop()
		default:
			http.NotFound(w, r)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		answer(w, struct{}{})
	}
}
