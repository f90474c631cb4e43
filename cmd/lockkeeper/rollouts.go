package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// standsHelp says where --wait and --follow end.
const standsHelp = `--wait and --follow end with the exit code 6 when the rollout halts, or its spec makes no sense, and say what is to be mended.
When a canary is to be approved they say so and stay. ` + "`lockkeeper status JOB -w`" + ` stays until the end.`

func updateCommand(connections *cli.Connections) *cobra.Command {
	var f jobFlags
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
  lockkeeper update-osds osds -n ceph --wait --timeout 2h
  lockkeeper approve ceph/osds                 the canary is fine
  lockkeeper skip ceph/osds osd.7              leave this one as it is`,
		Args: args(oneOf("CEPHOSD", "`kubectl get cephosds -A` lists them")),
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.run(cmd, connections, func(ctx context.Context, command *cli.Command) (planned, error) {
				name, err := cli.CephOSDName(names[0], connections.CurrentNamespace)
				return planned{
					start: func() error { return command.UpdateOSDs(ctx, name, f.options) },
					plan:  func() (answer, error) { return command.PlanUpdate(ctx, name) },
				}, err
			})
		},
	}
	f.add(cmd, "rollout", "ends, or halts", "print the batches in order, and why; change nothing")
	return cmd
}

func restartCommand(connections *cli.Connections) *cobra.Command {
	var f jobFlags
	var in workflows.RestartOSDsInput
	cmd := &cobra.Command{
		Use:   "restart-osds",
		Short: "Restart the OSDs that Deployments run, as Rook's do, batch by batch",
		Long: `Restart the OSDs that Deployments run, as Rook's do, batch by batch.

Each is restarted as by kubectl rollout restart, with the same care as update-osds: lease, noout on exactly these OSDs,
Ceph's word that it can spare them, and whole data before the next batch. It is a Temporal workflow,
restart-osds/NAMESPACE, and goes on whatever becomes of this command.

--image gives the OSDs another image, and restarts those that do not have it yet. The mons must run that
release of Ceph already. The first OSD goes alone, unless others serve with the image. lockkeeper asks
the image for its version in a pod; for that it needs deploy/storage-namespace-cephosd.yaml. Without it,
give --ceph-version. Where Rook's operator runs, change its CephCluster instead: the operator would set
the image back.

` + standsHelp,
		Example: `  lockkeeper restart-osds -n rook-ceph --plan
  lockkeeper restart-osds -n rook-ceph --update-domain Zone --reason 'new certificate' --follow
  lockkeeper restart-osds -n rook-ceph -l app=rook-ceph-osd,topology-location-host=node-a
  lockkeeper restart-osds -n rook-ceph --update-domain Zone --image ceph/ceph:v20.2.4 --plan`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, connections, func(ctx context.Context, command *cli.Command) (_ planned, err error) {
				in.Namespace, err = connections.CurrentNamespace()
				return planned{
					start: func() error { return command.RestartOSDs(ctx, in, f.options) },
					plan:  func() (answer, error) { return command.PlanRestart(ctx, in) },
				}, err
			})
		},
	}
	f.add(cmd, "rollout", "ends, or halts", "print the batches in order, and why; change nothing")
	flags := cmd.Flags()
	flags.StringVarP(&in.Selector, "selector", "l", "app=rook-ceph-osd", "labels of the Deployments")
	flags.StringVar(&in.UpdateDomain, "update-domain", "OSD",
		"where the OSDs of one batch may come from: OSD, Host, or a type of failure domain such as Zone")
	flags.IntVar(&in.MaxParallel, "max-parallel", 0,
		"OSDs in a batch at most; 0: as many of its update domain as Ceph lets go")
	flags.StringVar(&in.Reason, "reason", "", "shown to everybody who has to wait for this restart")
	flags.StringVar(&in.Image, "image", "", "what the OSDs are to run; those that run it already stay as they are")
	flags.StringVar(&in.CephVersion, "ceph-version", "",
		"the version of Ceph in --image, such as 18.2.7 (default: the image is asked)")
	flags.StringVar(&in.Policy, "policy", "",
		"name of the MaintenancePolicy, in the same namespace (default: the only one there)")
	flags.DurationVar(&in.ProgressDeadline, "progress-deadline", 0,
		"how long the OSDs of a batch may take to serve again; then the restart halts. 0: 10m")
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
