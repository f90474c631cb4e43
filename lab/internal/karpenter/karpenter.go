// Package karpenter runs the real Karpenter beside a lab, with its provider for tests, kwok: for a NodeClaim the
// provider makes a Node, and the lab's kubelet gives it a machine.
package karpenter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/manifest"
)

// Name is the name of the program, in `lab status` and as the target of `lab fault component-kill`.
const Name = "karpenter"

// Config is what the package needs to know of its lab.
type Config struct {
	instance.Instance
	Topology instance.Topology
	// Bin is the folder of the program, and of the folder with its manifests.
	Bin string
	// Rest is how to speak to the API server with every right.
	Rest *rest.Config
}

// Check says what is missing before Karpenter can be had, and how to get it.
func Check(bin string) error {
	for _, path := range []string{program(bin), manifests(bin)} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("Karpenter: %s is missing: `make karpenter` builds it, which takes 2 to 4 minutes the first time",
				path)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func program(bin string) string   { return filepath.Join(bin, Name) }
func manifests(bin string) string { return filepath.Join(bin, "karpenter-manifests") }

// stopGrace is enough for what is under way.
const stopGrace = 2 * time.Second

// Start installs Karpenter's kinds and what it needs, starts the program, and returns when it works.
func Start(ctx context.Context, cfg Config, o Options) (*child.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, instance.StartPatience)
	defer cancel()
	if err := cfg.install(ctx, o); err != nil {
		return nil, fmt.Errorf("Karpenter's manifests: %w", err)
	}
	kubeconfig, types, err := cfg.files()
	if err != nil {
		return nil, err
	}
	process, err := child.Start(child.Spec{
		Name: Name, Path: program(cfg.Bin), Log: cfg.Log(Name), Grace: stopGrace,
		Args: append(o.args(), "--instance-types-file-path="+types,
			fmt.Sprintf("--health-probe-port=%d", cfg.Ports.KarpenterHealth()),
			fmt.Sprintf("--metrics-port=%d", cfg.Ports.KarpenterMetrics())),
		Env: []string{"KUBECONFIG=" + kubeconfig},
	})
	if err != nil {
		return nil, err
	}
	if err := cfg.await(ctx, process); err != nil {
		process.Stop()
		return nil, err
	}
	return process, nil
}

// files writes what the program reads: as whom it asks, and which machines there are.
func (c Config) files() (kubeconfig, types string, err error) {
	admin, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		return "", "", err
	}
	for _, user := range admin.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + accountNamespace + ":" + accountName
		user.ImpersonateGroups = []string{
			"system:serviceaccounts", "system:serviceaccounts:" + accountNamespace, "system:authenticated",
		}
	}
	kubeconfig, types = c.Path("pki", "karpenter.kubeconfig"), c.Path("karpenter-machines.json")
	if err := clientcmd.WriteToFile(*admin, kubeconfig); err != nil {
		return "", "", err
	}
	text, err := instanceTypes(c.Topology)
	if err != nil {
		return "", "", err
	}
	return kubeconfig, types, os.WriteFile(types, text, 0o600)
}

// install applies the CRDs, and what is of their kinds once they are served.
func (c Config) install(ctx context.Context, o Options) error {
	client, err := dynamic.NewForConfig(c.Rest)
	if err != nil {
		return err
	}
	applier, err := manifest.NewApplier(c.Rest, client)
	if err != nil {
		return err
	}
	kinds, err := manifest.ReadFolder(manifests(c.Bin))
	if err != nil {
		return err
	}
	if err := applier.Apply(ctx, append(kinds, account()...)); err != nil {
		return err
	}
	if err := manifest.AwaitKinds(ctx, client); err != nil {
		return err
	}
	classes := schema.GroupVersionResource{
		Group: "karpenter.kwok.sh", Version: "v1alpha1", Resource: "kwoknodeclasses",
	}
	if err := create(ctx, client.Resource(classes), nodeClass()); err != nil || o.NoNodePool {
		return err
	}
	pools := schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	return create(ctx, client.Resource(pools), nodePool(c.Topology))
}

// create makes an object unless there is one: somebody may have changed it. A kind is not served everywhere as soon as
// it is established.
func create(ctx context.Context, of dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	return manifest.Poll(ctx, func() (bool, error) {
		_, err := of.Create(ctx, o, metav1.CreateOptions{FieldManager: manifest.FieldOwner})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		return !apierrors.IsNotFound(err), err
	})
}

// await waits until the program knows what there is in the cluster.
func (c Config) await(ctx context.Context, process *child.Process) error {
	url := "http://" + instance.Loopback(c.Ports.KarpenterHealth()) + "/readyz"
	for {
		if ready(ctx, url) {
			return nil
		}
		if s := process.State(); s.Restarts > 0 {
			return fmt.Errorf("Karpenter does not start: %s (see %s)", s.LastExit, s.Log)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("Karpenter is not ready within %s (see %s)", instance.StartPatience, process.Log)
		}
	}
}

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
