package main

import (
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/klog/v2"
)

// group is the machines of a zone. What it knows besides its nodes is guarded by the cloud's lock.
type group struct {
	cloud    *cloud
	zone     string
	min, max int

	coming map[string]bool // asked for, and not among the nodes yet
	going  map[string]bool // deleted, and still among the nodes
}

// settle forgets what has come, and what has gone.
func (g *group) settle() {
	for name := range g.coming {
		if g.cloud.nodes[name] != nil {
			delete(g.coming, name)
		}
	}
	for name := range g.going {
		if g.cloud.nodes[name] == nil {
			delete(g.going, name)
		}
	}
}

func (g *group) prefix() string { return "lab:///" + g.zone + "/" }

func (g *group) owns(n *corev1.Node) bool { return strings.HasPrefix(n.Spec.ProviderID, g.prefix()) }

// machines are those that the group has, or has asked for.
func (g *group) machines() []string {
	g.cloud.mu.Lock()
	defer g.cloud.mu.Unlock()
	var names []string
	for name, n := range g.cloud.nodes {
		if g.owns(n) && !g.going[name] {
			names = append(names, name)
		}
	}
	for name := range g.coming {
		names = append(names, name)
	}
	return names
}

func (g *group) MaxSize() int                 { return g.max }
func (g *group) MinSize() int                 { return g.min }
func (g *group) TargetSize() (int, error)     { return len(g.machines()), nil }
func (g *group) Id() string                   { return g.zone } //nolint:revive // the interface spells it so
func (g *group) Debug() string                { return fmt.Sprintf("%s (%d to %d)", g.zone, g.min, g.max) }
func (g *group) Exist() bool                  { return true }
func (g *group) Autoprovisioned() bool        { return false }
func (g *group) Delete() error                { return cloudprovider.ErrNotImplemented }
func (g *group) AtomicIncreaseSize(int) error { return cloudprovider.ErrNotImplemented }

func (g *group) Create() (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

func (g *group) GetOptions(config.NodeGroupAutoscalingOptions) (*config.NodeGroupAutoscalingOptions, error) {
	return nil, cloudprovider.ErrNotImplemented
}

// IncreaseSize adds machines, one after the other.
func (g *group) IncreaseSize(delta int) error {
	for range delta {
		name := g.reserve()
		klog.Infof("lab: add %s", name)
		if err := g.cloud.add(name, g.zone); err != nil {
			g.cloud.mu.Lock()
			delete(g.coming, name)
			g.cloud.mu.Unlock()
			return err
		}
	}
	return nil
}

// nameLength leaves so many names that a machine never gets that of one before it, of which others may know something.
const nameLength = 5

// reserve finds a name that no machine has.
func (g *group) reserve() string {
	g.cloud.mu.Lock()
	defer g.cloud.mu.Unlock()
	for {
		name := g.zone + "-" + rand.String(nameLength)
		if g.cloud.nodes[name] == nil && !g.coming[name] {
			g.coming[name] = true
			return name
		}
	}
}

// DecreaseTargetSize would take back what was asked for and has not come; here everything comes at once.
func (g *group) DecreaseTargetSize(int) error {
	return fmt.Errorf("group %s has nothing that has not come yet", g.zone)
}

func (g *group) DeleteNodes(nodes []*corev1.Node) error {
	if size := len(g.machines()); size-len(nodes) < g.min {
		return fmt.Errorf("group %s has %d machines, and %d at least", g.zone, size, g.min)
	}
	return g.ForceDeleteNodes(nodes)
}

func (g *group) ForceDeleteNodes(nodes []*corev1.Node) error {
	for _, n := range nodes {
		klog.Infof("lab: remove %s", n.Name)
		if err := g.cloud.remove(n.Name); err != nil {
			return err
		}
		g.cloud.mu.Lock()
		g.going[n.Name] = true
		g.cloud.mu.Unlock()
	}
	return nil
}

func (g *group) Nodes() ([]cloudprovider.Instance, error) {
	var instances []cloudprovider.Instance
	for _, name := range g.machines() {
		g.cloud.mu.Lock()
		state := cloudprovider.InstanceRunning
		if g.coming[name] {
			state = cloudprovider.InstanceCreating
		}
		g.cloud.mu.Unlock()
		instances = append(instances, cloudprovider.Instance{
			Id: g.prefix() + name, Status: &cloudprovider.InstanceStatus{State: state},
		})
	}
	return instances, nil
}

// TemplateNodeInfo is what a new machine would be: as the lab's nodes are.
func (g *group) TemplateNodeInfo() (*framework.NodeInfo, error) {
	name := g.zone + "-template"
	cpus, err := resource.ParseQuantity(os.Getenv("LAB_NODE_CPUS"))
	if err != nil {
		return nil, fmt.Errorf("LAB_NODE_CPUS: %w", err)
	}
	has := corev1.ResourceList{
		corev1.ResourceCPU: cpus, corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("250"),
	}
	return framework.NewNodeInfo(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: g.zone, corev1.LabelOSStable: "linux",
			corev1.LabelArchStable: "amd64",
		}},
		Spec: corev1.NodeSpec{ProviderID: g.prefix() + name},
		Status: corev1.NodeStatus{
			Capacity: has, Allocatable: has,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}, nil), nil
}
