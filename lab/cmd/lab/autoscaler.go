package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/autoscaler"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

func newAutoscaler() *cobra.Command {
	cmd := &cobra.Command{Use: "autoscaler", Short: "The real Cluster Autoscaler, with the lab as its cloud"}
	var o autoscaler.Options
	start := withName("start", "Start it, and return when it has looked at the cluster; an empty node goes at once",
		func(cmd *cobra.Command, cfg instance.Config) error {
			if err := autoscaler.Check(bin()); err != nil {
				return err
			}
			return supervisor.NewClient(cfg.Instance).StartAutoscaler(cmd.Context(), o)
		})
	autoscalerFlags(start, &o)
	stop := withName("stop", "Stop it in the middle of whatever it does: its taints stay until it is started again",
		func(cmd *cobra.Command, cfg instance.Config) error {
			return supervisor.NewClient(cfg.Instance).StopAutoscaler(cmd.Context())
		})
	cmd.AddCommand(start, stop)
	return cmd
}

// autoscalerFlags adds what the autoscaler is started with.
func autoscalerFlags(cmd *cobra.Command, o *autoscaler.Options) {
	cmd.Flags().Var((*groupsFlag)(o), "node-group", "a zone, and how many nodes the autoscaler leaves there at least and "+
		"at most: ZONE=MIN:MAX, may be said for several zones; the others are left alone (default: no zone becomes smaller "+
		"than it began)")
	cmd.Flags().Var(flagsFlag{&o.Flags, autoscaler.ParseFlag}, "autoscaler-flag", "a flag of the Cluster "+
		"Autoscaler, NAME=VALUE, in place of the lab's own, which have it act at once; may be said for several")
}

// groupsFlag collects node groups.
type groupsFlag autoscaler.Options

func (f *groupsFlag) Type() string { return "group" }

func (f *groupsFlag) String() string { return "" }

func (f *groupsFlag) Set(value string) error {
	group, err := autoscaler.ParseGroup(value)
	if err != nil {
		return err
	}
	f.Groups = append(f.Groups, group)
	return nil
}

// flagsFlag collects flags of a program.
type flagsFlag struct {
	to    *map[string]string
	parse func(string) (name, value string, err error)
}

func (f flagsFlag) Type() string { return "flag" }

func (f flagsFlag) String() string { return "" }

func (f flagsFlag) Set(value string) error {
	name, value, err := f.parse(value)
	if err != nil {
		return err
	}
	if *f.to == nil {
		*f.to = map[string]string{}
	}
	(*f.to)[name] = value
	return nil
}

// checkAutoscaler refuses what cannot work before anything is started.
func checkAutoscaler(wanted bool, o autoscaler.Options, t instance.Topology) error {
	switch {
	case !wanted && len(o.Groups)+len(o.Flags) > 0:
		return errors.New("--node-group and --autoscaler-flag are for --autoscaler")
	case !wanted:
		return nil
	}
	if err := o.Check(t); err != nil {
		return fmt.Errorf("--autoscaler: %w", err)
	}
	return autoscaler.Check(bin())
}

// withAutoscaler starts it in a lab that is up.
func withAutoscaler(o autoscaler.Options) extra {
	return extra{"the Cluster Autoscaler works", func(ctx context.Context, c *supervisor.Client) error {
		return c.StartAutoscaler(ctx, o)
	}}
}
