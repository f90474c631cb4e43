package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

// defaultSystem is the namespace of deploy/.
const defaultSystem = "lockkeeper-system"

func explainCommand(connections *cli.Connections) *cobra.Command {
	var policy, system, output string
	cmd := &cobra.Command{
		Use:   "explain NODE|pod/POD|mon/MON|cephmon/CEPHMON",
		Short: "May I drain this node, or delete this pod, now? If not: what is in the way, and what would have to change",
		Long: `Answer "may I drain this node now?", and if not, tell what is in the way, since when, and what would have to
change. It asks the keeper and the jobs that hold the lease, and reads Kubernetes; it changes nothing.

Of a pod in --namespace, written pod/POD, it answers "may I delete this pod now?" by a dry run, so that the answer is
that of the guard (deploy/guard-deletions) where it is installed. That takes the right to delete the pod.

Of a mon in --namespace, written mon/a, and of all mons of a CephMon, written cephmon/NAME, it answers "are they in
quorum and as the CephMon says?", and if not, why, which step is under way, and what that waits for. A mon's pod has
that with its answer, too.

The exit code is 0 for yes, 5 for no, 1 when nobody could be asked.`,
		Example: `  lockkeeper explain node-a
  lockkeeper -n rook-ceph explain pod/rook-ceph-osd-3-5d94bb9bc9-4jcmk
  lockkeeper -n rook-ceph explain mon/a
  lockkeeper -n rook-ceph explain cephmon/mons
  lockkeeper explain node-a -o json | jq -r '.inTheWay[].name'
  until lockkeeper explain node-a; do sleep 10; done`,
		Args: args(oneNode),
		RunE: func(cmd *cobra.Command, names []string) error {
			return ask(cmd, connections, output, func(ctx context.Context, command *cli.Command) error {
				if pod, ok := cli.ExplainsPod(names[0]); ok {
					policy = qualified(policy, connections.Namespace)
					return explainPod(cmd, command, connections, podQuestion{pod, policy, system, output})
				}
				if e, ok, err := explainMons(cmd, command, connections, names[0]); ok {
					return answered(cmd, e, output, e.Settled, err)
				}
				e, err := command.Explain(ctx, names[0], qualified(policy, connections.Namespace), system)
				return answered(cmd, e, output, e.MayDrain, err)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&policy, "policy", "",
		"MaintenancePolicies, as namespace/name or as a name in --namespace, with commas between them (default: all whose "+
			"storage the node hosts)")
	flags.StringVar(&system, "system-namespace", defaultSystem, "where lockkeeper watch runs")
	flags.StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

// podQuestion is what is asked of a pod.
type podQuestion struct{ pod, policy, system, output string }

func explainPod(cmd *cobra.Command, command *cli.Command, connections *cli.Connections, q podQuestion) error {
	namespace, err := connections.CurrentNamespace()
	if err != nil {
		return err
	}
	e, err := command.ExplainPod(cmd.Context(), namespace, q.pod, q.policy, q.system)
	return answered(cmd, e, q.output, e.MayDelete, err)
}

// explainMons explains a mon or a CephMon. ok: the argument names one.
func explainMons(
	cmd *cobra.Command, command *cli.Command, connections *cli.Connections, arg string,
) (e cli.MonsExplanation, ok bool, err error) {
	if name, ok := cli.ExplainsCephMon(arg); ok {
		if name, err = cli.CephMonName(name, connections.CurrentNamespace); err == nil {
			e, err = command.ExplainCephMon(cmd.Context(), name)
		}
		return e, true, err
	}
	mon, ok := cli.ExplainsMon(arg)
	if !ok {
		return e, false, nil
	}
	namespace, err := connections.CurrentNamespace()
	if err == nil {
		e, err = command.ExplainMon(cmd.Context(), namespace, mon)
	}
	return e, true, err
}

// answered prints an explanation, and has the exit code say no if that is its answer.
func answered(cmd *cobra.Command, e answer, output string, yes bool, err error) error {
	if err != nil {
		return err
	}
	if err := printed(cmd, e, output); err != nil || yes {
		return err
	}
	return cli.ErrNo
}
