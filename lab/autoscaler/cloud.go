package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/config/dynamic"
	caerrors "k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/client-go/kubernetes"
)

// cloud is the lab as a cloud: a node group for each zone, whose machines the lab adds and removes.
type cloud struct {
	client  kubernetes.Interface
	lab     http.Client // at its control socket
	limiter *cloudprovider.ResourceLimiter
	groups  []cloudprovider.NodeGroup

	mu    sync.Mutex
	nodes map[string]*corev1.Node // as of the last Refresh
}

// newCloud has the groups of --nodes=MIN:MAX:ZONE.
func newCloud(
	client kubernetes.Interface, specs []string, limiter *cloudprovider.ResourceLimiter,
) (*cloud, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv("LAB_CONTROL"))
	}
	c := &cloud{
		client: client, limiter: limiter,
		lab: http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: labTimeout},
	}
	for _, s := range specs {
		spec, err := dynamic.SpecFromString(s, true)
		if err != nil {
			return nil, fmt.Errorf("--nodes=%s: %w", s, err)
		}
		c.groups = append(c.groups, &group{
			cloud: c, zone: spec.Name, min: spec.MinSize, max: spec.MaxSize, coming: map[string]bool{}, going: map[string]bool{},
		})
	}
	return c, c.Refresh()
}

// labTimeout is far more than the lab takes for a machine.
const labTimeout = 30 * time.Second

// Refresh is called before each look of the autoscaler.
func (c *cloud) Refresh() error {
	list, err := c.client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = map[string]*corev1.Node{}
	for i := range list.Items {
		c.nodes[list.Items[i].Name] = &list.Items[i]
	}
	for _, g := range c.groups {
		g.(*group).settle()
	}
	return nil
}

func (c *cloud) NodeGroupForNode(n *corev1.Node) (cloudprovider.NodeGroup, error) {
	for _, g := range c.groups {
		if g.(*group).owns(n) {
			return g, nil
		}
	}
	return nil, nil //nolint:nilnil // so the interface says that it is nobody's
}

func (c *cloud) HasInstance(n *corev1.Node) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[n.Name] != nil, nil
}

func (c *cloud) Name() string                                { return "lab" }
func (c *cloud) NodeGroups() []cloudprovider.NodeGroup       { return c.groups }
func (c *cloud) GetAvailableMachineTypes() ([]string, error) { return nil, nil }
func (c *cloud) GPULabel() string                            { return "lab/gpu" }
func (c *cloud) GetAvailableGPUTypes() map[string]struct{}   { return nil }
func (c *cloud) Cleanup() error                              { return nil }

func (c *cloud) GetNodeGpuConfig(*corev1.Node) *cloudprovider.GpuConfig { return nil }

func (c *cloud) GetResourceLimiter() (*cloudprovider.ResourceLimiter, error) { return c.limiter, nil }

func (c *cloud) Pricing() (cloudprovider.PricingModel, caerrors.AutoscalerError) {
	return nil, cloudprovider.ErrNotImplemented
}

func (c *cloud) NewNodeGroup(
	string, map[string]string, map[string]string, []corev1.Taint, map[string]resource.Quantity,
) (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

// fault is what the lab is asked to do to one of its machines, as `lab fault` asks.
type fault struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Zone   string `json:"zone,omitempty"`
}

func (c *cloud) add(name, zone string) error {
	return c.ask(fault{Kind: "node-add", Target: name, Zone: zone})
}

// remove takes a machine away, with its disk and its Node.
func (c *cloud) remove(name string) error { return c.ask(fault{Kind: "node-remove", Target: name}) }

func (c *cloud) ask(f fault) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	answer, err := c.lab.Post("http://lab/fault", "application/json", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s %s: %w", f.Kind, f.Target, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s %s: %s", f.Kind, f.Target, strings.TrimSpace(string(said)))
	}
	return nil
}
