// lockkeeper-worker runs lockkeeper's workflows and activities. It is the only binary that talks to Ceph.
//
// Temporal is configured as for Temporal's own tools (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_PROFILE, …),
// Kubernetes by --kubeconfig, $KUBECONFIG, the pod's service account, or ~/.kube/config.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lockkeeper/lockkeeper/cmd/lockkeeper-worker/adapters"
	"github.com/lockkeeper/lockkeeper/worker"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "",
		"path of a kubeconfig; default: $KUBECONFIG, the pod's service account, ~/.kube/config")
	health := flag.String("health-address", "", "serve /healthz and /readyz on this address, e.g. :8081; empty: nowhere")
	verbose := flag.Bool("v", false, "log debug messages, too")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "lockkeeper-worker: unexpected argument %q; it takes flags only (see -h)\n", flag.Arg(0))
		os.Exit(2)
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(logger)
	ctrllog.SetLogger(logr.FromSlogHandler(logger.Handler()))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *health, logger); err != nil {
		logger.Error("lockkeeper-worker", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, health string, logger *slog.Logger) error {
	var ready atomic.Bool
	if health != "" {
		go serveHealth(health, &ready, logger)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("Kubernetes configuration: %w", err)
	}
	world, err := adapters.New(cfg)
	if err != nil {
		return err
	}
	defer world.Close()
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return fmt.Errorf("Temporal configuration: %w", err)
	}
	options.Logger = log.NewStructuredLogger(logger)
	temporal, err := dial(ctx, options, logger)
	if err != nil {
		return err
	}
	defer temporal.Close()

	w := worker.New(temporal, world.Adapters)
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer w.Stop()
	ready.Store(true)
	logger.Info("working", "temporal", options.HostPort, "kubernetes", cfg.Host)
	<-ctx.Done()
	return nil
}

// dial waits for Temporal: a worker that starts before it is no reason for anybody to look.
func dial(ctx context.Context, options client.Options, logger *slog.Logger) (client.Client, error) {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		c, err := client.DialContext(ctx, options)
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		logger.Warn("Temporal does not answer; trying again", "address", options.HostPort, "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// serveHealth: ready once the worker has started; alive as long as the process is, whatever Temporal does.
func serveHealth(address string, ready *atomic.Bool, logger *slog.Logger) {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") }
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", ok)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			http.Error(w, "waiting for Temporal", http.StatusServiceUnavailable)
			return
		}
		ok(w, r)
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if err := server.ListenAndServe(); err != nil {
		logger.Error("health endpoint", "address", address, "error", err)
	}
}
