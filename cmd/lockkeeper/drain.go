package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// drainFlags are the flags of drain; those that kubectl drain has, too, are called as there.
type drainFlags struct {
	jobFlags
	input       workflows.DrainNodeInput
	gracePeriod int
}

func drainCommand(connections *cli.Connections) *cobra.Command {
	var f drainFlags
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Empty a storage node, and guard its storage until it is whole again",
		Long: `Empty a storage node, and guard its storage until it is whole again.

The drain waits for the lease of the node's failure domain, so that nobody else is disrupted meanwhile; sets noout on
the node; cordons it; evicts its pods as their budgets allow; waits until it is back in service or deleted; and ends
when its OSDs are up and all placement groups are clean. It is a Temporal workflow, drain/NODE, and goes on whatever
becomes of this command.`,
		Example: `  lockkeeper drain node-a --plan                        what would happen; changes nothing
  lockkeeper drain node-a --reason 'new kernel' --follow
  lockkeeper drain node-a --uncordon-after-reboot --wait --timeout 1h
  lockkeeper done node-a                                the work is finished, no reboot was needed
  lockkeeper abort node-a                               undo it`,
		Args: args(oneNode),
		RunE: func(cmd *cobra.Command, names []string) error {
			f.input.Node = names[0]
			if err := f.complete(connections.Namespace); err != nil {
				return usage(cmd, err)
			}
			return f.run(cmd, connections, func(ctx context.Context, command *cli.Command) (planned, error) {
				return planned{
					start: func() error { return command.Drain(ctx, f.input, f.options) },
					plan:  func() (answer, error) { return command.Plan(ctx, f.input) },
				}, nil
			})
		},
	}
	f.add(cmd, "drain", "ends", "print steps and gates, and change nothing")
	flags := cmd.Flags()
	flags.StringVar(&f.input.Policy, "policy", "",
		"MaintenancePolicies, as namespace/name or as a name in --namespace, with commas between them (default: all whose "+
			"storage the node hosts)")
	flags.StringVar(&f.input.Reason, "reason", "", "shown to everybody who has to wait for this drain")
	flags.BoolVar(&f.input.UncordonAfterReboot, "uncordon-after-reboot", false,
		"uncordon the node once it has rebooted and is Ready")
	flags.IntVar(&f.gracePeriod, "grace-period", -1, "seconds that each pod has to terminate; -1: each pod's own")
	flags.StringVar(&f.input.Eviction.PodSelector, "pod-selector", "", "evict only pods with these labels")
	flags.BoolVar(&f.input.Eviction.DeleteEmptyDirData, "delete-emptydir-data", false,
		"evict pods though they lose the data in an emptyDir")
	flags.BoolVar(&f.input.Eviction.Force, "force", false, "evict pods though no controller will replace them")
	return cmd
}

// complete refuses flags that make no sense together, and derives what they mean.
func (f *drainFlags) complete(namespace string) error {
	if f.gracePeriod < -1 {
		return errors.New("--grace-period: must be 0 or more, or -1 for each pod's own")
	}
	if f.gracePeriod >= 0 {
		f.input.Eviction.GracePeriodSeconds = &f.gracePeriod
	}
	f.input.Policy = qualified(f.input.Policy, namespace)
	return f.check()
}

// qualified puts the namespace before the names of policies that have none.
func qualified(policies, namespace string) string {
	if policies == "" || namespace == "" {
		return policies
	}
	names := strings.Split(policies, ",")
	for i, name := range names {
		if !strings.Contains(name, "/") {
			names[i] = namespace + "/" + name
		}
	}
	return strings.Join(names, ",")
}
