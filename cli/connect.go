package cli

import (
	"cmp"
	"fmt"
	"log/slog"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connections says how to reach Kubernetes and Temporal. The zero value follows the conventions of kubectl
// ($KUBECONFIG, ~/.kube/config, the pod's service account) and of Temporal's CLI (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE,
// TEMPORAL_PROFILE, …).
type Connections struct {
	Kubeconfig string // path
	Context    string // of the kubeconfig
	Namespace  string // instead of the context's
	Profile    string // of Temporal's configuration file
}

func (c Connections) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
	overrides.Context.Namespace = c.Namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// Kubernetes returns the configuration of the API server's client.
func (c Connections) Kubernetes() (*rest.Config, error) {
	cfg, err := c.clientConfig().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("Kubernetes configuration: %w", err)
	}
	return cfg, nil
}

// CurrentNamespace is the namespace that kubectl would use.
func (c Connections) CurrentNamespace() (string, error) {
	ns, _, err := c.clientConfig().Namespace()
	if err != nil {
		return "", fmt.Errorf("Kubernetes configuration: %w", err)
	}
	return ns, nil
}

// Temporal returns a client that connects with its first call, and the address it will connect to.
func (c Connections) Temporal(logger *slog.Logger) (client.Client, string, error) {
	options, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{ConfigFileProfile: c.Profile})
	if err != nil {
		return nil, "", fmt.Errorf("Temporal configuration: %w", err)
	}
	options.HostPort = cmp.Or(options.HostPort, client.DefaultHostPort)
	options.Logger = log.NewStructuredLogger(logger)
	t, err := client.NewLazyClient(options)
	if err != nil {
		return nil, "", fmt.Errorf("Temporal client: %w", err)
	}
	return t, options.HostPort, nil
}
