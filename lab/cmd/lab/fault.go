package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/fault"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

func newFault() *cobra.Command {
	cmd := &cobra.Command{Use: "fault", Short: "Make something go wrong, or well again"}
	var name string
	cmd.PersistentFlags().StringVar(&name, "name", instance.DefaultName, "which lab")

	add := func(kind fault.Kind, target, short string, flags func(*cobra.Command, *fault.Fault)) {
		f := fault.Fault{Kind: kind}
		c := &cobra.Command{
			Use: string(kind) + " " + target, Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				inst, err := instance.Locate(name)
				if err != nil {
					return err
				}
				f.Target = args[0]
				return supervisor.NewClient(inst).Inject(cmd.Context(), f)
			},
		}
		if flags != nil {
			flags(c, &f)
		}
		cmd.AddCommand(c)
	}
	add(fault.NodeLost, "NODE", "Cut a node off, and end its processes as when power is lost",
		func(c *cobra.Command, f *fault.Fault) {
			c.Flags().BoolVar(&f.KeepProcesses, "keep-processes", false, "let its processes go on, as when the network is lost")
		})
	add(fault.NodeReturn, "NODE", "Bring back a node that was lost, hung or deleted", nil)
	add(fault.NodeReboot, "NODE", "Reboot a node, and return when it is back", func(c *cobra.Command, f *fault.Fault) {
		c.Flags().DurationVar(&f.Down, "down", 2*time.Second, "how long it is away")
	})
	add(fault.NodeAdd, "NODE", "Add a node, or bring back a deleted one", func(c *cobra.Command, f *fault.Fault) {
		c.Flags().StringVar(&f.Zone, "zone", "", "its zone (required)")
	})
	add(fault.NodeRemove, "NODE", "Take a machine away for good, with its disk and its Node, as a cloud does", nil)
	add(fault.NodeHang, "NODE", "Stop everything on a node where it is", nil)
	add(fault.NodeResume, "NODE", "End node-hang", nil)
	add(fault.PodKill, "NAMESPACE/POD", "Signal a pod's processes; its restart policy applies",
		func(c *cobra.Command, f *fault.Fault) {
			c.Flags().IntVar(&f.Signal, "signal", 9, "which signal")
		})
	add(fault.PodHang, "NAMESPACE/POD", "Stop a pod's processes where they are", nil)
	add(fault.PodResume, "NAMESPACE/POD", "End pod-hang", nil)
	add(fault.ComponentKill, "COMPONENT",
		"Kill kube-apiserver, another program of the control plane, or temporal; it is started again",
		func(c *cobra.Command, f *fault.Fault) {
			c.Flags().DurationVar(&f.Down, "down", time.Second, "how long it is away, and its start on top of that")
		})
	add(fault.ComponentHang, "COMPONENT", "Stop such a program where it is, and return when it goes on",
		func(c *cobra.Command, f *fault.Fault) {
			c.Flags().DurationVar(&f.Down, "for", 10*time.Second, "for how long")
		})
	add(fault.StorageBreak, "STORAGECLASS",
		"Let no volume of a class be made any more, nor mounted by a pod that starts", nil)
	add(fault.StorageMend, "STORAGECLASS", "End storage-break", nil)
	return cmd
}
