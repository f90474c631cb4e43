package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

func migrateMonsCommand(connections *cli.Connections) *cobra.Command {
	var f jobFlags
	var mode monplan.Mode
	cmd := &cobra.Command{
		Use:   "migrate-mons [NAMESPACE/]CEPHMON",
		Short: "Move the mons that are not as their CephMon says, one at a time",
		Long: `Move the mons that are not as their CephMon says to other nodes, zones or storage, and remove superfluous ones.

One mon at a time: a canary finds a node, the volume is bound, the new mon joins and is in quorum, which a commit
proves, and only then the old one leaves. Its volume stays until clean-mons. What fails is rolled back. Dead mons are
replaced, missing ones made and changed images rolled out without this command, by the same job: the Temporal workflow
migrate-mons/NAMESPACE/CEPHMON, which goes on whatever becomes of this command.

--one-less is for clusters without a node for one more mon: the old one leaves first, and until its successor is in
quorum none of the others may fail.`,
		Example: `  lockkeeper migrate-mons rook-ceph/mons --plan     what would be moved where, and what it costs; changes nothing
  lockkeeper migrate-mons rook-ceph/mons --follow
  lockkeeper migrate-mons rook-ceph/mons --one-less --plan`,
		Args: args(oneOf("CEPHMON", "`kubectl get cephmons -A` lists them")),
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.run(cmd, connections, func(ctx context.Context, command *cli.Command) (planned, error) {
				name, err := cli.CephMonName(names[0], connections.CurrentNamespace)
				mode.Migrate = true
				return planned{
					start: func() error { return command.MigrateMons(ctx, name, mode, f.options) },
					plan:  func() (answer, error) { return command.PlanMigration(ctx, name, mode) },
				}, err
			})
		},
	}
	f.add(cmd, "migration", "ends", "print the steps in order, and what they cost; change nothing")
	cmd.Flags().BoolVar(&mode.OneLess, "one-less", false,
		"where no node has a place for one more, let a living mon leave first")
	return cmd
}

func cleanMonsCommand(connections *cli.Connections) *cobra.Command {
	var yes, forget bool
	cmd := &cobra.Command{
		Use:   "clean-mons [NAMESPACE/]CEPHMON",
		Short: "Delete the volume claims that mons have left behind",
		Long: `Delete the volume claims of mons that have left, when all mons are in quorum and nothing is under way. Without --yes it lists
them. Folders on nodes it lists, too; they have to be deleted there, and --forget-paths then takes them off the list.`,
		Args: args(oneOf("CEPHMON", "`kubectl get cephmons -A` lists them")),
		RunE: func(cmd *cobra.Command, names []string) error {
			command, _, done, err := connect(cmd, connections)
			if err != nil {
				return err
			}
			defer done()
			name, err := cli.CephMonName(names[0], connections.CurrentNamespace)
			if err != nil {
				return err
			}
			return command.CleanMons(cmd.Context(), name, yes, forget)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "delete the claims, and not only list them")
	cmd.Flags().BoolVar(&forget, "forget-paths", false, "the folders on nodes are deleted: take them off the list")
	return cmd
}
