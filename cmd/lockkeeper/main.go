// lockkeeper lets maintenance through one failure domain of a storage cluster at a time. This binary is its command
// line and its watcher; it talks to Kubernetes and Temporal only. `lockkeeper --help` says what it can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil && err.Error() != "" { // some answers have said it all
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
	}
	os.Exit(cli.ExitCode(err))
}

func root() *cobra.Command {
	connections := &cli.Connections{}
	cmd := &cobra.Command{
		Use:   "lockkeeper",
		Short: "Maintenance of replicated storage, one failure domain at a time",
		Long: `lockkeeper lets maintenance through one failure domain of a storage cluster at a time,
and holds everything else back until the data is whole again.

Kubernetes is found as by kubectl: --kubeconfig, $KUBECONFIG, ~/.kube/config, the pod's service account.
Temporal is found as by its own CLI: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_PROFILE, TEMPORAL_API_KEY,
TEMPORAL_TLS_…, or its configuration file.

Exit codes:
  0  done
  1  not done; the message on stderr says why
  2  wrong flags or arguments
  3  --wait or --follow: the drain ended, but not with Done or Gone, or the rollout not with Done
  4  --wait or --follow: time is over, the job goes on
  5  explain: the node may not be drained now; doctor: something is broken
  6  --wait or --follow: the rollout has halted, or its spec makes no sense; somebody has to mend something`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&connections.Kubeconfig, "kubeconfig", "", "path of the kubeconfig")
	flags.StringVar(&connections.Context, "context", "", "context of the kubeconfig")
	flags.StringVarP(&connections.Namespace, "namespace", "n", "", "namespace of the MaintenancePolicy, and of OSDs")
	flags.StringVar(&connections.Profile, "temporal-profile", "", "profile of Temporal's configuration file")
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage(c, err)
	})
	cmd.AddCommand(drainCommand(connections), fenceCommand(connections), statusCommand(connections),
		explainCommand(connections),
		historyCommand(connections), doctorCommand(connections))
	cmd.AddCommand(migrateMonsCommand(connections), cleanMonsCommand(connections))
	cmd.AddCommand(updateCommand(connections), restartCommand(connections), restartNowCommand(connections))
	cmd.AddCommand(signalCommands(connections)...)
	cmd.AddCommand(watchCommand(connections), versionCommand())
	return cmd
}

// usage turns an error about flags or arguments into one that says where to look.
func usage(c *cobra.Command, err error) error {
	return &cli.ExitError{Code: cli.ExitUsage, Err: errors.Join(err, fmt.Errorf("see `%s --help`", c.CommandPath()))}
}

// oneNode takes the name of a node, as the only argument.
func oneNode(_ *cobra.Command, names []string) error {
	switch {
	case len(names) == 0:
		return errors.New("NODE: is required; `kubectl get nodes` lists them")
	case len(names) > 1:
		return fmt.Errorf("NODE: one at a time, not %d; drains of several nodes wait for each other by themselves",
			len(names))
	}
	return nil
}

// args checks arguments with a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(c, err)
		}
		return nil
	}
}
