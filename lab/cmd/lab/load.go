package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/load"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

func newLoad() *cobra.Command {
	cmd := &cobra.Command{Use: "load", Short: "Write, read back and verify objects all the time"}
	var volume string
	start := withName("start", "Start the load", func(cmd *cobra.Command, cfg instance.Config) error {
		return supervisor.NewClient(cfg.Instance).StartLoad(cmd.Context(), volume)
	})
	start.Flags().StringVar(&volume, "volume", "", "a volume of Longhorn, which is attached (default: a pool of Ceph)")
	var stopOutput, reportOutput string
	stop := withName("stop", "Verify every object once more, stop the load, and report",
		func(cmd *cobra.Command, cfg instance.Config) error {
			if err := supervisor.NewClient(cfg.Instance).StopLoad(cmd.Context()); err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), cfg.Instance, stopOutput)
		})
	report := withName("report", "Tell how the load went so far, or went",
		func(cmd *cobra.Command, cfg instance.Config) error {
			return printReport(cmd.OutOrStdout(), cfg.Instance, reportOutput)
		})
	stop.Flags().StringVarP(&stopOutput, "output", "o", "text", "text or json")
	report.Flags().StringVarP(&reportOutput, "output", "o", "text", "text or json")
	cmd.AddCommand(start, stop, report)
	return cmd
}

func printReport(w io.Writer, inst instance.Instance, output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("--output %q: allowed are text and json", output)
	}
	r, err := load.ReadReport(supervisor.LoadReport(inst))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lab %s was never put under load (`lab load start%s`)", inst.Name, nameHint(inst.Name))
	}
	if err != nil {
		return err
	}
	if output == "json" {
		return encode(w, r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%d\twrites\t\n%d\treads\t\n%d\tfailed writes\t\n%d\tfailed reads\t\n%d\tlost writes\t\n%d\tms "+
		"longest stall\t\n%d\tseconds\t\n",
		r.Writes, r.Reads, r.FailedWrites, r.FailedReads, r.LostWrites, r.LongestStall, r.Seconds)
	return t.Flush()
}
