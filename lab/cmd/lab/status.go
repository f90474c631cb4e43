package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

// report is what `lab status -o json` prints of one instance.
type report struct {
	instance.Config
	State string `json:"state"`
	// Endpoints are where to reach it.
	Endpoints map[string]string  `json:"endpoints"`
	Status    *supervisor.Status `json:"status,omitempty"`
}

func newStatus() *cobra.Command {
	var name, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show all labs, or one of them in full",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return status(cmd, name, output)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "which lab (default: all)")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func status(cmd *cobra.Command, name, output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("--output %q: allowed are text and json", output)
	}
	configs, err := instance.List()
	if name != "" {
		var one instance.Config
		if one, err = instance.Load(name); err == nil {
			configs = []instance.Config{one}
		}
	}
	if err != nil {
		return err
	}
	reports := []report{}
	for _, cfg := range configs {
		reports = append(reports, examine(cmd.Context(), cfg))
	}
	w := cmd.OutOrStdout()
	switch {
	case output == "json" && name != "":
		return encode(w, reports[0])
	case output == "json":
		return encode(w, reports)
	case name != "":
		return printOne(w, reports[0])
	}
	return printAll(w, reports)
}

func examine(ctx context.Context, cfg instance.Config) report {
	r := report{Config: cfg, State: "stopped", Endpoints: map[string]string{
		"kubernetes": "https://" + instance.Loopback(cfg.Ports.APIServer()),
	}}
	if cfg.Temporal {
		r.Endpoints["temporal"] = instance.Loopback(cfg.Ports.TemporalFrontend())
		r.Endpoints["temporalUI"] = "http://" + instance.Loopback(cfg.Ports.TemporalUI())
	}
	if !cfg.Running() {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := supervisor.NewClient(cfg.Instance).Status(ctx)
	switch {
	case err != nil:
		r.State = "not answering"
	case s.Ready:
		r.State, r.Status = "up", &s
	default:
		r.State, r.Status = "starting", &s
	}
	return r
}

func printAll(w io.Writer, reports []report) error {
	if len(reports) == 0 {
		_, err := fmt.Fprintln(w, "no labs (start one with `lab up`)")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSTATE\tKUBERNETES\tTEMPORAL UI\tFOLDER")
	for _, r := range reports {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Name, r.State, r.Endpoints["kubernetes"], r.Endpoints["temporalUI"], r.Dir)
	}
	return t.Flush()
}

func printOne(w io.Writer, r report) error {
	if err := printAll(w, []report{r}); err != nil || r.Status == nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nCOMPONENT\tRESTARTS\tLAST EXIT\tLOG")
	for _, c := range r.Status.Components {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", c.Name, c.Restarts, c.LastExit, c.Log)
	}
	fmt.Fprintln(t, "\nNODE\tZONE\tSTATE\tPODS")
	for _, n := range r.Status.Nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", n.Name, n.Zone, n.State, n.Pods)
	}
	return t.Flush()
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
