package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

func historyCommand(connections *cli.Connections) *cobra.Command {
	var o cli.HistoryOptions
	var output string
	cmd := &cobra.Command{
		Use:   "history JOB",
		Short: "What was decided, on which facts, and when",
		Long: `Tell from Temporal's record what was decided in a job, on which facts, and when. JOB is drain/NODE, or just the
node's name; update-osds/[NAMESPACE/]NAME, or just NAMESPACE/NAME of a CephOSD; restart-osds[/NAMESPACE],
restart-waiting/[NAMESPACE/]POLICY, fence/NODE, migrate-mons/[NAMESPACE/]NAME; each with what the keeper did meanwhile; or keeper/[NAMESPACE/]POLICY. Without a namespace it is --namespace, or that of the kubeconfig.

It works for jobs that run and for those that have ended, for as long as Temporal keeps them, and asks nobody else.`,
		Example: `  lockkeeper history node-a
  lockkeeper history ceph/osds
  lockkeeper history keeper/rook-ceph/rook-ceph --since 15m
  lockkeeper history node-a -o json | jq -r '.entries[] | [.at, .what] | @tsv'`,
		Args: args(func(_ *cobra.Command, names []string) error {
			if len(names) != 1 {
				return errors.New("JOB: one is required: a node's name, NAMESPACE/NAME of a CephOSD, or a workflow's ID")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, names []string) error {
			if o.Since < 0 {
				return usage(cmd, errors.New("--since: must not be negative; 0 is as far back as Temporal remembers"))
			}
			return ask(cmd, connections, output, func(ctx context.Context, command *cli.Command) error {
				job, err := cli.FullName(names[0], connections.CurrentNamespace)
				if err != nil {
					return err
				}
				h, err := command.History(ctx, job, o)
				if err != nil {
					return err
				}
				return printed(cmd, h, output)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.RunID, "run", "", "of a job: this run (default: the last one)")
	flags.DurationVar(&o.Since, "since", time.Hour, "of a keeper: how far back; 0: as far as Temporal remembers")
	flags.StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}
