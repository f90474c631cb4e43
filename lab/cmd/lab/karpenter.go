package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/karpenter"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

func newKarpenter() *cobra.Command {
	cmd := &cobra.Command{Use: "karpenter", Short: "The real Karpenter, whose nodes are machines of the lab"}
	var o karpenter.Options
	start := withName("start", "Start it, and return when it works", func(cmd *cobra.Command, cfg instance.Config) error {
		if err := karpenter.Check(bin()); err != nil {
			return err
		}
		return supervisor.NewClient(cfg.Instance).StartKarpenter(cmd.Context(), o)
	})
	karpenterFlags(start, &o)
	stop := withName("stop", "Stop it in the middle of whatever it does: its taints stay until it is started again",
		func(cmd *cobra.Command, cfg instance.Config) error {
			return supervisor.NewClient(cfg.Instance).StopKarpenter(cmd.Context())
		})
	cmd.AddCommand(start, stop)
	return cmd
}

// karpenterFlags adds what Karpenter is started with.
func karpenterFlags(cmd *cobra.Command, o *karpenter.Options) {
	cmd.Flags().BoolVar(&o.NoNodePool, "no-node-pool", false, "make no NodePool: without one Karpenter adds no node "+
		"(default: one of the name "+karpenter.NodePool+", whose nodes go as soon as they are not needed)")
	cmd.Flags().Var(flagsFlag{&o.Flags, karpenter.ParseFlag}, "karpenter-flag", "a flag of Karpenter, NAME=VALUE, "+
		"in place of the lab's own, which have it act soon; may be said for several")
}

// checkKarpenter refuses what cannot work before anything is started.
func checkKarpenter(wanted bool, o karpenter.Options) error {
	switch {
	case wanted:
		return karpenter.Check(bin())
	case o.NoNodePool, len(o.Flags) > 0:
		return errors.New("--no-node-pool and --karpenter-flag are for --karpenter")
	default:
		return nil
	}
}

// withKarpenter starts it in a lab that is up.
func withKarpenter(o karpenter.Options) extra {
	return extra{"Karpenter works", func(ctx context.Context, c *supervisor.Client) error {
		return c.StartKarpenter(ctx, o)
	}}
}
