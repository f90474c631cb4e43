// Package autoscaler runs the real Cluster Autoscaler beside a lab, with the lab as its cloud: a node group is a zone,
// and a machine that it adds or deletes is a node of the lab.
package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Name is the name of the program, in `lab status` and as the target of `lab fault component-kill`.
const Name = "cluster-autoscaler"

// Config is what the package needs to know of its lab.
type Config struct {
	instance.Instance
	Topology instance.Topology
	// Bin is the folder of the program.
	Bin string
}

// Check says what is missing before the autoscaler can be had, and how to get it.
func Check(bin string) error {
	path := program(bin)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the Cluster Autoscaler: %s is missing: `make autoscaler` builds it, which takes 5 minutes the "+
			"first time", path)
	} else if err != nil {
		return err
	}
	return nil
}

func program(bin string) string { return filepath.Join(bin, Name) }

// stopGrace is enough for the look that is under way.
const stopGrace = 5 * time.Second

// Start starts the program, and returns when it has looked at the cluster once.
func Start(ctx context.Context, cfg Config, o Options) (*child.Process, error) {
	groups, err := o.groups(cfg.Topology)
	if err != nil {
		return nil, err
	}
	looked := cfg.Path("autoscaler-has-looked")
	if err := os.Remove(looked); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	process, err := child.Start(child.Spec{
		Name: Name, Path: program(cfg.Bin), Log: cfg.Log(Name), Grace: stopGrace,
		Args: append([]string{"--kubeconfig=" + cfg.Kubeconfig()}, o.args(groups)...),
		Env: []string{
			"LAB_CONTROL=" + cfg.ControlSocket(), "LAB_LOOKED=" + looked,
			"LAB_NODE_CPUS=" + strconv.Itoa(cfg.Topology.CPUs()),
		},
	})
	if err != nil {
		return nil, err
	}
	if err := await(ctx, process, looked); err != nil {
		process.Stop()
		return nil, err
	}
	return process, nil
}

// await waits for the file that the program makes after its first look.
func await(ctx context.Context, process *child.Process, file string) error {
	ctx, cancel := context.WithTimeout(ctx, instance.StartPatience)
	defer cancel()
	for {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		if s := process.State(); s.Restarts > 0 {
			return fmt.Errorf("the Cluster Autoscaler does not start: %s (see %s)", s.LastExit, s.Log)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the Cluster Autoscaler has not looked at the cluster within %s (see %s)",
				instance.StartPatience, process.Log)
		}
	}
}
