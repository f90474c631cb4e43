package main

import (
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/lockkeeper/lockkeeper/cli"
	"github.com/lockkeeper/lockkeeper/starter"
)

func watchCommand(connections *cli.Connections) *cobra.Command {
	var options starter.Options
	var verbose bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Run the watcher: tell the keepers what changes in Kubernetes",
		Long: `Run the watcher. It starts the keeper of every MaintenancePolicy, tells it what changes in Kubernetes,
and starts an observing DrainNode when somebody drains a storage node without asking.

Several may run; the one that holds the Lease "lockkeeper-watcher" works. Without --namespace it watches all
namespaces. At rest it makes no requests but the renewal of that Lease.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			log := logr.FromSlogHandler(logger.Handler())
			ctrl.SetLogger(log)
			klog.SetSlogLogger(logger)

			cfg, err := connections.Kubernetes()
			if err != nil {
				return err
			}
			if options.LeaderElectionNamespace == "" {
				if options.LeaderElectionNamespace, err = connections.CurrentNamespace(); err != nil {
					return err
				}
			}
			temporal, address, err := connections.Temporal(logger)
			if err != nil {
				return err
			}
			defer temporal.Close()
			options.Namespace, options.Log = connections.Namespace, log
			logger.Info("watching", "kubernetes", cfg.Host, "temporal", address)
			return starter.Run(cmd.Context(), cfg, starter.NewTemporal(temporal), options)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&options.LeaderElection, "leader-elect", true,
		"work only while holding the Lease; false: there is never a second watcher")
	flags.StringVar(&options.LeaderElectionNamespace, "leader-elect-namespace", "",
		"namespace of the Lease (default: the current one)")
	flags.StringVar(&options.HealthAddress, "health-addr", "0", "serve /healthz and /readyz here, e.g. :8081; 0: nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-addr", "0", "serve /metrics here, e.g. :8080; 0: nowhere")
	flags.BoolVarP(&verbose, "verbose", "v", false, "log debug messages, too")
	return cmd
}
