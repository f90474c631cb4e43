// Package clusterapi runs the real core manager of Cluster API in a lab, and is its infrastructure provider: a Machine
// is a node of the lab. A Machine that is deleted takes its node with it, and a new one brings a new node.
//
// The Cluster manages itself: its kubeconfig leads home. Its control plane is one Machine that runs nowhere and stays
// pending, since without any Cluster API deletes Machines with neither drain nor pre-drain hooks.
package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Names of what every lab with Machines has.
const (
	Namespace = "machines"
	// ClusterName is the name of the Cluster.
	ClusterName = "lab"
	// HealthCheck is the name of the MachineHealthCheck of all workers.
	HealthCheck = "workers"
	// Reboot is the name of the LabRemediationTemplate that a MachineHealthCheck may refer to: unhealthy nodes are then
	// rebooted, as bare metal is, instead of replaced.
	Reboot = "reboot"
)

// Certificate is the name of the webhooks' key and certificate in the folder pki.
const Certificate = "cluster-api"

// Config is what the package needs to know of its lab.
type Config struct {
	instance.Instance
	Topology instance.Topology
	// Bin is the folder of the manager's program, and of the folder with its manifests.
	Bin   string
	Nodes Nodes
	// Rest is how to speak to the API server with every right.
	Rest *rest.Config
}

// ClusterAPI is a running manager, and the provider beside it.
type ClusterAPI struct {
	Config
	client  dynamic.Interface
	process *child.Process
}

// Check says what is missing before Machines can be had, and how to get it.
func Check(bin string) error {
	for _, path := range []string{program(bin), manifests(bin)} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--machines: %s is missing: `make cluster-api` builds it, which takes 2 to 4 minutes the first "+
				"time", path)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func program(bin string) string   { return filepath.Join(bin, "cluster-api") }
func manifests(bin string) string { return filepath.Join(bin, "cluster-api-manifests") }

// Start installs what the manager needs, starts it and the provider, makes the Cluster and its Machines unless they are
// there, and returns when every Machine has its node. life is how long the provider works.
func Start(ctx, life context.Context, cfg Config, progress func(string)) (*ClusterAPI, error) {
	client, err := dynamic.NewForConfig(cfg.Rest)
	if err != nil {
		return nil, err
	}
	c := &ClusterAPI{Config: cfg, client: client}
	ctx, cancel := context.WithTimeout(ctx, instance.StartPatience)
	defer cancel()
	if err := c.install(ctx); err != nil {
		return nil, fmt.Errorf("Cluster API's manifests: %w", err)
	}
	if c.process, err = child.Start(c.manager()); err != nil {
		return nil, err
	}
	if err := c.start(ctx, life, progress); err != nil {
		c.Stop()
		return nil, fmt.Errorf("Cluster API: %w (see %s)", err, c.process.Log)
	}
	return c, nil
}

func (c *ClusterAPI) start(ctx, life context.Context, progress func(string)) error {
	if err := c.createCluster(ctx); err != nil {
		return err
	}
	progress("Cluster API is ready")
	if err := c.provide(ctx, life); err != nil {
		return err
	}
	n, err := c.awaitMachines(ctx)
	if err == nil {
		progress(fmt.Sprintf("%d Machines have their nodes", n))
	}
	return err
}

// Process is the manager.
func (c *ClusterAPI) Process() *child.Process { return c.process }

// Stop ends the manager. All that it knows is in the API server.
func (c *ClusterAPI) Stop() { c.process.Kill() }

// manager describes the program. It serves its webhooks itself; nobody else has to reach it. It looks after all
// namespaces: with --namespace its MachineDeployments fail ("failed to cast MachineSet informer").
func (c *ClusterAPI) manager() child.Spec {
	loopback := func(port int) string { return instance.Loopback(port) }
	return child.Spec{
		Name: "cluster-api", Path: program(c.Bin), Log: c.Log("cluster-api"),
		Args: []string{
			"--kubeconfig=" + c.Path("pki", "controller-manager.kubeconfig"),
			"--webhook-cert-dir=" + c.Path("pki"),
			"--webhook-cert-name=" + Certificate + ".crt", "--webhook-key-name=" + Certificate + ".key",
			"--webhook-port=" + strconv.Itoa(c.Ports.ClusterAPIWebhook()),
			"--health-addr=" + loopback(c.Ports.ClusterAPIHealth()),
			"--diagnostics-address=" + loopback(c.Ports.ClusterAPIDiagnostics()), "--insecure-diagnostics",
			// Nothing here is as old as the versions that a migration would rewrite.
			"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
			"--kube-api-qps=500", "--kube-api-burst=1000",
		},
	}
}
