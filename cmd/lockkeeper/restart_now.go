package main

import (
	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

func restartNowCommand(connections *cli.Connections) *cobra.Command {
	var in cli.RestartNowInput
	cmd := &cobra.Command{
		Use:   "restart osd.N|mon.X|pod/POD --now --reason WHY",
		Short: "Delete the pod of one daemon out of turn, whatever the budgets and the guard of deletions say",
		Long: `Delete the pod of one OSD or mon out of turn: for a daemon that harms more than its absence would. Data may become
unavailable if others are away, and nothing looks whether they are. Its owner makes another pod.

It takes the rights to patch and to delete the pod, and where deploy/guard-deletions is installed that of its ClusterRole
lockkeeper-override. The word counts for this pod alone and is spent with it; an event tells of it.

To restart OSDs when it is their turn there is restart-osds.`,
		Example: `  lockkeeper -n rook-ceph explain pod/rook-ceph-osd-3-5d94bb9bc9-4jcmk    # first: may it go anyway?
  lockkeeper -n rook-ceph restart osd.3 --now --reason 'hangs in D state, clients wait'`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			command, cluster, done, err := examine(cmd, connections)
			if err != nil {
				return err
			}
			defer done()
			in.Daemon = names[0]
			if in.Namespace, err = connections.CurrentNamespace(); err != nil {
				return err
			}
			return command.RestartNow(cmd.Context(), cluster, in)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&in.Now, "now", false, "has to be said: whatever the budgets say")
	flags.StringVar(&in.Reason, "reason", "", "why it may not wait for its turn")
	return cmd
}
