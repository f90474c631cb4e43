package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/internal/cli"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// rolloutFlags are those that both kinds of rollouts have.
type rolloutFlags struct {
	plan    bool
	options cli.StayOptions
	output  string
}

func (f *rolloutFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.plan, "plan", false, "print the batches in order, and why; change nothing")
	flags.BoolVar(&f.options.Follow, "follow", false, "print what happens until the rollout ends, or halts")
	flags.BoolVar(&f.options.Wait, "wait", false, "wait until the rollout ends, or halts")
	flags.DurationVar(&f.options.Timeout, "timeout", 0, "of --wait and --follow; the rollout goes on. 0: wait for ever")
	flags.StringVarP(&f.output, "output", "o", "", "of --plan: json or yaml")
}

func (f *rolloutFlags) check() error {
	switch {
	case f.options.Timeout < 0:
		return errors.New("--timeout: must not be negative; 0 waits for ever")
	case f.options.Timeout > time.Duration(0) && !f.options.Wait && !f.options.Follow:
		return errors.New("--timeout: needs --wait or --follow")
	case f.plan && (f.options.Wait || f.options.Follow):
		return errors.New("--plan: changes nothing, so there is nothing to --wait for or to --follow")
	case f.output != "" && !f.plan:
		return errors.New("--output: needs --plan")
	}
	return cli.CheckOutput(f.output)
}

func (f *rolloutFlags) print(cmd *cobra.Command, plan cli.RolloutPlan) error {
	if f.output != "" {
		return cli.Encode(cmd.OutOrStdout(), plan, f.output)
	}
	plan.Write(cmd.OutOrStdout())
	return nil
}

// standsHelp says where --wait and --follow end.
const standsHelp = `--wait and --follow end with the exit code 6 when the rollout halts, or its spec makes no sense, and say what is to be mended.
When a canary is to be approved they say so and stay. ` + "`lockkeeper status JOB -w`" + ` stays until the end.`

func updateCommand(connections *cli.Connections) *cobra.Command {
	var f rolloutFlags
	cmd := &cobra.Command{
		Use:   "update-osds [NAMESPACE/]CEPHOSD",
		Short: "Bring the OSDs of a CephOSD to what its template says, batch by batch",
		Long: `Bring the OSDs of a CephOSD to what its template says, batch by batch.

The watcher does so by itself whenever the CephOSD changes; this command starts the rollout without it, or makes the one
that runs look again. Before a batch stops, the rollout holds the lease of its failure domain, noout is set on exactly these
OSDs, and Ceph has said that it can spare them; the next begins when they serve and all placement groups are clean. One that
does not come back halts it. It is a Temporal workflow, update-osds/NAMESPACE/CEPHOSD, and goes on whatever becomes of this
command.

` + standsHelp,
		Example: `  lockkeeper update-osds ceph/osds --plan      which OSDs would be replaced, in which order; changes nothing
  lockkeeper update-osds ceph/osds --follow
  lockkeeper approve ceph/osds                 the canary is fine
  lockkeeper skip ceph/osds osd.7              leave this one as it is`,
		Args: args(oneOf("CEPHOSD", "`kubectl get cephosds -A` lists them")),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := f.check(); err != nil {
				return usage(cmd, err)
			}
			command, _, done, err := connect(cmd, connections)
			if err != nil {
				return err
			}
			defer done()
			name := names[0]
			if !strings.Contains(name, "/") {
				namespace, err := connections.CurrentNamespace()
				if err != nil {
					return err
				}
				name = namespace + "/" + name
			}
			if !f.plan {
				return command.UpdateOSDs(cmd.Context(), name, f.options)
			}
			plan, err := command.PlanUpdate(cmd.Context(), name)
			if err != nil {
				return err
			}
			return f.print(cmd, plan)
		},
	}
	f.add(cmd)
	return cmd
}

func restartCommand(connections *cli.Connections) *cobra.Command {
	var f rolloutFlags
	var in workflows.RestartOSDsInput
	cmd := &cobra.Command{
		Use:   "restart-osds",
		Short: "Restart the OSDs that Deployments run, as Rook's do, batch by batch",
		Long: `Restart the OSDs that Deployments run, as Rook's do, batch by batch.

Each is restarted as by kubectl rollout restart, with the same care as update-osds: lease, noout on exactly these OSDs,
Ceph's word that it can spare them, and whole data before the next batch. It is a Temporal workflow,
restart-osds/NAMESPACE, and goes on whatever becomes of this command.

` + standsHelp,
		Example: `  lockkeeper restart-osds -n rook-ceph --plan
  lockkeeper restart-osds -n rook-ceph --update-domain Zone --reason 'new certificate' --follow
  lockkeeper restart-osds -n rook-ceph --selector app=rook-ceph-osd,topology-location-host=node-a`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return usage(cmd, err)
			}
			command, _, done, err := connect(cmd, connections)
			if err != nil {
				return err
			}
			defer done()
			if in.Namespace, err = connections.CurrentNamespace(); err != nil {
				return err
			}
			if !f.plan {
				return command.RestartOSDs(cmd.Context(), in, f.options)
			}
			plan, err := command.PlanRestart(cmd.Context(), in)
			if err != nil {
				return err
			}
			return f.print(cmd, plan)
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&in.Selector, "selector", "app=rook-ceph-osd", "labels of the Deployments")
	flags.StringVar(&in.UpdateDomain, "update-domain", "OSD", "where the OSDs of one batch may come from: OSD, Host, or a type of failure domain such as Zone")
	flags.IntVar(&in.MaxParallel, "max-parallel", 0, "OSDs in a batch at most; 0: as many of its update domain as Ceph lets go")
	flags.StringVar(&in.Reason, "reason", "", "shown to everybody who has to wait for this restart")
	return cmd
}

// oneOf takes the name of one thing, as the only argument.
func oneOf(what, hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, names []string) error {
		if len(names) != 1 {
			return errors.New(what + ": exactly one is required; " + hint)
		}
		return nil
	}
}
