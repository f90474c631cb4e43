// Package lab is what the benchmarks have in common: the way into a running lab, the processes that they start there,
// and waiting.
package lab

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Lab is the running lab that the environment names.
type Lab struct {
	Config   *rest.Config // without a bound on requests
	Kube     kubernetes.Interface
	Temporal client.Client
}

// Connect connects to the API server and to Temporal.
func Connect(ctx context.Context) (l Lab, err error) {
	l.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(),
		nil).ClientConfig()
	if err != nil {
		return Lab{}, err
	}
	l.Config.QPS = -1
	if l.Kube, err = kubernetes.NewForConfig(l.Config); err != nil {
		return Lab{}, err
	}
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return Lab{}, err
	}
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	if l.Temporal, err = client.DialContext(ctx, options); err != nil {
		return Lab{}, err
	}
	return l, nil
}

// Until waits until something is done, and asks every so often. After patience it is in vain.
func Until(ctx context.Context, patience, every time.Duration, what string, done func() (bool, error)) error {
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(every) {
		if ok, err := done(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("in vain for %s", what)
}

// Command runs a program. Its error says what the program said.
func Command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
