package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// jobHelp says how people name jobs.
const jobHelp = `JOB is the name of a node, for its drain; NAMESPACE/NAME of a CephOSD, for its rollout; or the workflow's ID: drain/NODE,
fence/NODE, scale-down/NODE, update-osds/[NAMESPACE/]NAME, restart-osds[/NAMESPACE],
restart-waiting/[NAMESPACE/]POLICY, migrate-mons/[NAMESPACE/]NAME. Without a namespace it is --namespace, or that of
the kubeconfig.`

// signalCommand is one signal, as people send it.
type signalCommand struct {
	name, args, short, long string
	check                   cobra.PositionalArgs
	send                    func(*cli.Command, context.Context, []string) error
	plan                    func(*cli.Command, context.Context, string) (answer, error)
}

// signalCommands are the commands that send signals to jobs.
func signalCommands(connections *cli.Connections) []*cobra.Command {
	var out []*cobra.Command
	for _, s := range signals() {
		var output string
		var plan bool
		cmd := &cobra.Command{
			Use: s.name + " " + s.args, Short: s.short, Args: args(s.check),
			Long: fmt.Sprintf("%s. %s\n\nThe same with Temporal's CLI: temporal workflow signal --workflow-id ID --name %s",
				s.short, s.long, s.name),
			RunE: func(cmd *cobra.Command, names []string) error {
				return ask(cmd, connections, output, func(ctx context.Context, command *cli.Command) error {
					job, err := cli.FullName(names[0], connections.CurrentNamespace)
					if err != nil {
						return err
					}
					names[0] = job
					if plan {
						foretold, err := s.plan(command, ctx, job)
						if err != nil {
							return err
						}
						return printed(cmd, foretold, output)
					}
					return s.send(command, ctx, names)
				})
			},
		}
		cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml: print the job as it is then")
		if s.plan != nil {
			cmd.Flags().BoolVar(&plan, "plan", false, "of restart-waiting: print what would be let go, in order; change nothing")
		}
		out = append(out, cmd)
	}
	return out
}

// signals are those that jobs take.
func signals() []signalCommand {
	one := func(_ *cobra.Command, names []string) error {
		if len(names) != 1 {
			return fmt.Errorf("JOB: one at a time, not %d: a node's name, NAMESPACE/NAME of a CephOSD, or a workflow's ID",
				len(names))
		}
		return nil
	}
	send := func(name string) func(*cli.Command, context.Context, []string) error {
		return func(c *cli.Command, ctx context.Context, names []string) error { return c.Signal(ctx, names[0], name) }
	}
	return []signalCommand{
		{
			jobs.SignalPause, "JOB", "Hold a drain or a rollout where it is",
			"What is under way stays protected: the lease, noout and the cordon of a drain\nremain; of a rollout, the batch " +
				"in work is finished.\n\n" + jobHelp, one, send(jobs.SignalPause), nil,
		},
		{jobs.SignalResume, "JOB", "Let a paused drain or rollout go on", jobHelp, one, send(jobs.SignalResume), nil},
		{
			jobs.SignalAbort, "JOB", "Undo a drain, or stop a rollout",
			"The node of a drain is uncordoned if the drain cordoned it, noout is unset, and\nthe lease is given back. A " +
				"rollout gives the lease back and leaves every pod as it is; the watcher starts it again\nat the next change of " +
				"its CephOSD or of its pods. What keeps it from replacing anything is spec.paused: true.\n\n" + jobHelp, one,
			send(jobs.SignalAbort), nil,
		},
		{
			jobs.SignalDone, "NODE", "Say that the work on a node is finished",
			"The drain uncordons the node if it cordoned it, and ends when the storage is whole again. Not needed after a " +
				"reboot\nand an uncordon, or when the node is deleted: the drain sees those.", oneNode, send(jobs.SignalDone), nil,
		},
		{
			jobs.SignalApprove, "JOB", "Say that the canary of a rollout is fine, or that what waits may be restarted",
			"Of restart-waiting it lets go whatever somebody wants restarted, one failure domain after the other, also what\n" +
				"begins to wait before it has ended. Of a rollout it stands for what spec.canary.approval asks for, and does\n" +
				"not end the soak: the rollout goes on when spec.canary.soak is over, too. It holds for the present template.\n\n" +
				jobHelp, one,
			func(c *cli.Command, ctx context.Context, names []string) error { return c.Approve(ctx, names[0]) },
			func(c *cli.Command, ctx context.Context, job string) (answer, error) { return c.PlanWaiting(ctx, job) },
		},
		{
			jobs.SignalSkip, "JOB OSD", "Let a rollout leave an OSD as it is",
			"The rollout does not replace it, and does not wait for it. OSD is osd.3,\nHOST:DEVICE as in the CephOSD, or the " +
				"name of a Deployment; there has to be one. It lasts until the template changes: the\nCephOSD remembers it in " +
				"status.skipped. For a restart it lasts until that ends.\n\n" + jobHelp, jobAndOSD,
			func(c *cli.Command, ctx context.Context, names []string) error {
				return c.Skip(ctx, names[0], names[1])
			}, nil,
		},
	}
}

func jobAndOSD(_ *cobra.Command, names []string) error {
	if len(names) != 2 {
		return errors.New("JOB OSD: both are required, as in `lockkeeper skip ceph/osds osd.3`")
	}
	return nil
}
