package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockkeeper/lockkeeper/lab/internal/controlplane"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/load"
	"github.com/lockkeeper/lockkeeper/lab/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

func newVolume() *cobra.Command {
	cmd := &cobra.Command{Use: "volume", Short: "Longhorn's volumes, of a lab that was started with --longhorn"}
	cmd.AddCommand(newVolumeCreate(), newVolumeAttach(), newVolumeDetach(), newVolumeList(), newVolumeRead(),
		newVolumeWrite())
	return cmd
}

// volumeTimeout is how long a volume may take to become what it was asked to be.
const volumeTimeout = 2 * time.Minute

// volumeCommand makes a command that does something to a volume.
func volumeCommand(
	use, short string, args int, do func(context.Context, *cobra.Command, *longhorn.API, []string) error,
) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := longhorn.CheckVolumeName(args[0]); err != nil {
					return err
				}
			}
			api, err := longhornAPI(name)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), volumeTimeout)
			defer cancel()
			return do(ctx, cmd, api, args)
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func longhornAPI(name string) (*longhorn.API, error) {
	cfg, err := instance.Load(name)
	if err != nil {
		return nil, err
	}
	if !cfg.Topology.Longhorn {
		return nil, fmt.Errorf("lab %s has no Longhorn (`lab up --longhorn`)", cfg.Name)
	}
	client, err := controlplane.Client(cfg.Instance)
	if err != nil {
		return nil, err
	}
	return longhorn.NewAPI(client), nil
}

func newVolumeCreate() *cobra.Command {
	replicas, image := 2, ""
	size := resource.MustParse("64Mi")
	cmd := volumeCommand("create VOLUME", "Create a volume", 1,
		func(ctx context.Context, _ *cobra.Command, api *longhorn.API, args []string) error {
			if replicas < 1 || replicas > 20 {
				return fmt.Errorf("--replicas %d: allowed are 1 to 20", replicas)
			}
			return api.Create(ctx, args[0], size.Value(), replicas, image)
		})
	cmd.Flags().IntVar(&replicas, "replicas", replicas, "how many nodes have a copy of it")
	cmd.Flags().Var(&quantity{&size}, "size", "its size")
	cmd.Flags().StringVar(&image, "backing-image", image, "the BackingImage that it begins with")
	return cmd
}

// quantity is a size as Kubernetes writes it.
type quantity struct{ *resource.Quantity }

func (quantity) Type() string { return "quantity" }

func (q *quantity) Set(value string) error {
	parsed, err := resource.ParseQuantity(value)
	if err != nil {
		return fmt.Errorf("allowed are sizes as 64Mi and 1Gi: %w", err)
	}
	*q.Quantity = parsed
	return nil
}

func newVolumeAttach() *cobra.Command {
	var healthy bool
	cmd := volumeCommand("attach VOLUME NODE", "Attach a volume to a node, and return when it is served there", 2,
		func(ctx context.Context, cmd *cobra.Command, api *longhorn.API, args []string) error {
			v, err := api.Attach(ctx, args[0], args[1], healthy)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is attached to %s, %s\n", v.Name, v.Node(), v.Robustness)
			}
			return err
		})
	cmd.Flags().BoolVar(&healthy, "healthy", true, "wait until all replicas are in use")
	return cmd
}

func newVolumeDetach() *cobra.Command {
	return volumeCommand("detach VOLUME", "Detach a volume, and return when its engine is gone", 1,
		func(ctx context.Context, _ *cobra.Command, api *longhorn.API, args []string) error {
			_, err := api.Detach(ctx, args[0])
			return err
		})
}

func newVolumeList() *cobra.Command {
	return volumeCommand("list", "List volumes", 0,
		func(ctx context.Context, cmd *cobra.Command, api *longhorn.API, _ []string) error {
			volumes, err := api.List(ctx)
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "VOLUME\tSTATE\tROBUSTNESS\tATTACHED TO\tREPLICAS ON")
			for _, v := range volumes {
				var nodes []string
				for _, r := range v.ReplicaProcesses {
					nodes = append(nodes, r.Host)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", v.Name, v.State, v.Robustness, v.Node(), strings.Join(nodes, " "))
			}
			return t.Flush()
		})
}

// newVolumeLoad is the program behind `lab load start --volume`: the supervisor runs it.
func newVolumeLoad() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: supervisor.VolumeLoadCommand + " VOLUME", Short: "Write to a volume, read back and verify until SIGTERM",
		Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return volumeLoad(ctx, name, args[0])
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func volumeLoad(ctx context.Context, name, volume string) error {
	cfg, err := instance.Load(name)
	if err != nil {
		return err
	}
	api, err := longhornAPI(name)
	if err != nil {
		return err
	}
	path := func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), volumeLookTimeout) // the last look comes after SIGTERM
		defer cancel()
		v, err := api.Get(ctx, volume)
		if err != nil {
			return "", err
		}
		if v.Node() == "" {
			return "", fmt.Errorf("volume %s is not attached", volume)
		}
		return longhorn.SocketPath(cfg.NodeDisk(v.Node()), volume), nil
	}
	if _, err := path(); err != nil { // later it is a write that fails
		return err
	}
	options := load.DefaultOptions()
	l, err := load.Start(ctx, longhorn.NewStore(path, options.ObjectSize), options)
	if err != nil {
		return err
	}
	save := func(running bool) error {
		r := l.Report()
		r.Running = running
		return r.WriteFile(supervisor.LoadReport(cfg.Instance))
	}
	for {
		if err := save(true); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(l.Wait(supervisor.LoadDrain), save(false))
		case <-time.After(time.Second):
		}
	}
}

const volumeLookTimeout = 5 * time.Second
