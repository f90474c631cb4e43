package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

// stopTimeout is after which a lab that does not end is killed. Nothing can survive that.
const (
	stopTimeout = 30 * time.Second
	killTimeout = 10 * time.Second
)

func newDown() *cobra.Command {
	var name string
	var keep bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a lab and remove its folder, or what a crash left of it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return down(cmd, name, keep) },
	}
	nameFlag(cmd, &name)
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the data, so that the next `lab up` continues with it")
	return cmd
}

func down(cmd *cobra.Command, name string, keep bool) error {
	inst, err := instance.Locate(name)
	if err != nil {
		return err
	}
	progress := newProgress(cmd.OutOrStdout())
	if inst.Running() {
		supervised, alive := inst.Supervisor()
		err := supervisor.NewClient(inst).Stop(cmd.Context(), keep)
		if alive && (err != nil || !supervised.AwaitEnd(stopTimeout)) {
			progress(fmt.Sprintf("the supervisor does not end (%v): killing it", err))
			if err := supervised.Kill(killTimeout); err != nil {
				return err
			}
		}
		if !inst.AwaitStopped(killTimeout) {
			return fmt.Errorf("lab %s does not stop", name)
		}
		progress("lab " + name + " is stopped")
	}
	if keep {
		return nil
	}
	return instance.Remove(inst)
}
