package karpenter

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Names of what a lab with Karpenter has.
const (
	// NodeClass is the name of the KWOKNodeClass that a NodePool refers to.
	NodeClass = "lab"
	// NodePool is the name of the NodePool that the lab makes.
	NodePool = "lab"
)

// maxMachines is for how many machines of a lab's own size its NodePool has leave.
const maxMachines = 10

// offering is a kind of machine in a zone, and its price.
type offering struct {
	Price        float64
	Available    bool
	Requirements []corev1.NodeSelectorRequirement
}

// instanceType is a kind of machine, as the kwok provider reads it from a file.
type instanceType struct {
	Name             string            `json:"name"`
	Offerings        []offering        `json:"offerings"`
	Architecture     string            `json:"architecture"`
	OperatingSystems []string          `json:"operatingSystems"`
	Resources        map[string]string `json:"resources"`
}

// pricePerCPU makes a machine half as large half as dear, so that Karpenter has a reason to prefer it.
const pricePerCPU = 0.01

// instanceTypes are the machines that can be had: as large as those that the lab began with, half as large, and a
// quarter, in each zone.
func instanceTypes(t instance.Topology) ([]byte, error) {
	var types []instanceType
	for cpus := t.CPUs(); cpus >= 1 && cpus >= t.CPUs()/4; cpus /= 2 {
		kind := instanceType{
			Name: fmt.Sprintf("lab-%d", cpus), Architecture: "amd64", OperatingSystems: []string{"linux"},
			Resources: map[string]string{
				"cpu": fmt.Sprint(cpus), "memory": fmt.Sprintf("%dGi", 4*cpus), "ephemeral-storage": "100Gi", "pods": "250",
			},
		}
		for _, zone := range t.ZoneNames() {
			kind.Offerings = append(kind.Offerings, offering{
				Price: pricePerCPU * float64(cpus), Available: true,
				Requirements: []corev1.NodeSelectorRequirement{
					{Key: "karpenter.sh/capacity-type", Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}},
					{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}},
				},
			})
		}
		types = append(types, kind)
	}
	return json.MarshalIndent(types, "", "  ")
}

// As whom Karpenter asks the API server: a service account, as in a cluster, so that admission policies and the audit
// log tell it from people.
const (
	accountNamespace = "kube-system"
	accountName      = "karpenter"
)

// account has every right.
func account() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": map[string]any{"namespace": accountNamespace, "name": accountName},
		}},
		{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
			"metadata": map[string]any{"name": "lab:karpenter"},
			"roleRef": map[string]any{
				"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
			},
			"subjects": []any{
				map[string]any{"kind": "ServiceAccount", "namespace": accountNamespace, "name": accountName},
			},
		}},
	}
}

func nodeClass() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": map[string]any{"name": NodeClass},
	}}
}

// nodePool has nodes come for pods that find no room, and go as soon as they are not needed.
func nodePool(t instance.Topology) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": map[string]any{"name": NodePool},
		"spec": map[string]any{
			"template": map[string]any{"spec": map[string]any{
				"nodeClassRef": map[string]any{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": NodeClass},
				"requirements": []any{map[string]any{
					"key": "karpenter.sh/capacity-type", "operator": "In", "values": []any{"on-demand"},
				}},
				"expireAfter": "Never",
			}},
			"disruption": map[string]any{
				"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
				"budgets": []any{map[string]any{"nodes": "100%"}},
			},
			"limits": map[string]any{"cpu": fmt.Sprint(maxMachines * t.CPUs())},
		},
	}}
}
