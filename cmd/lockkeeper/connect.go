package main

import (
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/lockkeeper/lockkeeper/cli"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
)

// kubernetesWithin is how long a person waits for one answer of the API server.
const kubernetesWithin = 10 * time.Second

// impatient is for questions. Watches, which last, keep the configuration as it was.
func impatient(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = kubernetesWithin
	return cfg
}

// connect makes what the subcommands for people work with. Libraries keep quiet: what they would log, the answer says.
func connect(
	cmd *cobra.Command, connections *cli.Connections,
) (command *cli.Command, cfg *rest.Config, done func(), err error) {
	if cfg, err = connections.Kubernetes(); err != nil {
		return nil, nil, nil, err
	}
	command, _, done, err = examine(cmd, connections)
	return command, cfg, done, err
}

// examine is connect for whoever asks Kubernetes about more than storage.
func examine(
	cmd *cobra.Command, connections *cli.Connections,
) (command *cli.Command, cluster *kube.Cluster, done func(), err error) {
	ctrl.SetLogger(logr.Discard())
	cfg, err := connections.Kubernetes()
	if err != nil {
		return nil, nil, nil, err
	}
	if cluster, err = kube.New(impatient(cfg)); err != nil {
		return nil, nil, nil, err
	}
	temporal, address, err := connections.Temporal(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, nil, err
	}
	_, api := cluster.Clients()
	return &cli.Command{
		WorkerNamespace: defaultSystem,
		Installations:   longhorncluster.NewClusters(cluster, api, nil),
		Kubernetes:      cluster, Temporal: cli.NewTemporal(temporal, address),
		Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), Now: time.Now,
	}, cluster, temporal.Close, nil
}
