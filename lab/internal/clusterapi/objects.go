package clusterapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/version"

	"github.com/lockkeeper/lockkeeper/lab/internal/manifest"
)

// This file makes the Cluster, and all that it takes until its Machines run: a MachineDeployment for each zone, as is
// usual where volumes cannot leave a zone, and one MachineHealthCheck for all workers.

const (
	coreGroup             = "cluster.x-k8s.io"
	coreVersion           = "v1beta2"
	infrastructure        = "infrastructure.cluster.x-k8s.io"
	infrastructureVersion = "v1beta1"

	clusterLabel      = coreGroup + "/cluster-name"
	controlPlaneLabel = coreGroup + "/control-plane"
	// controlPlane is the name of the one control-plane Machine.
	controlPlane = "control-plane"
	bootstrap    = "bootstrap"
	// PoolLabel is on the Machines of all workers.
	PoolLabel = "pool"
	workers   = "workers"
)

// What the MachineHealthCheck says: as real ones do, with seconds where those have minutes.
const (
	unhealthyAfter   = 5 // seconds
	maxUnhealthy     = "40%"
	nodeStartTimeout = 60 // seconds
)

// ours is a kind of the provider.
func ours(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: infrastructure, Version: infrastructureVersion, Resource: resource}
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: coreGroup, Version: coreVersion, Resource: resource}
}

var (
	clusters           = core("clusters")
	machines           = core("machines")
	machineDeployments = core("machinedeployments")
	healthChecks       = core("machinehealthchecks")

	labClusters          = ours("labclusters")
	labMachines          = ours("labmachines")
	labTemplates         = ours("labmachinetemplates")
	remediations         = ours("labremediations")
	remediationTemplates = ours("labremediationtemplates")
)

func ca64(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

// object makes one in our namespace.
func object(apiVersion, kind, name string, labels map[string]string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	o.SetNamespace(Namespace)
	o.SetLabels(labels)
	return o
}

// ourObject makes one of a kind of the provider.
func ourObject(kind, name string, fields map[string]any) *unstructured.Unstructured {
	return object(infrastructure+"/"+infrastructureVersion, kind, name, inCluster(), fields)
}

// createCluster makes everything, what is referred to first. What is there already stays as it is, since somebody may
// have changed it on purpose. It begins when the manager's webhooks answer.
func (c *ClusterAPI) createCluster(ctx context.Context) error {
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": Namespace},
	}}
	if err := c.apply(ctx, namespaces, namespace); err != nil {
		return err
	}
	home, err := os.ReadFile(c.Path("pki", "admin.kubeconfig"))
	if err != nil {
		return err
	}
	for _, o := range []struct {
		resource schema.GroupVersionResource
		object   *unstructured.Unstructured
	}{
		{secrets, secret(ClusterName+"-kubeconfig", "value", home)},
		{secrets, secret(bootstrap, "value", []byte("#!/bin/true\n"))},
		{labClusters, ourObject("LabCluster", ClusterName, map[string]any{
			"spec": map[string]any{}, "status": provisioned(),
		})},
		{clusters, c.cluster()},
		{labMachines, ourObject("LabMachine", controlPlane, map[string]any{"spec": map[string]any{}})},
		{machines, object(coreGroup+"/"+coreVersion, "Machine", controlPlane,
			map[string]string{clusterLabel: ClusterName, controlPlaneLabel: ""},
			map[string]any{"spec": machineSpec("LabMachine", controlPlane)})},
		{healthChecks, healthCheck()},
		{remediationTemplates, ourObject("LabRemediationTemplate", Reboot, map[string]any{
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}},
		})},
	} {
		if err := c.create(ctx, o.resource, o.object); err != nil {
			return err
		}
	}
	if err := c.initialize(ctx); err != nil {
		return err
	}
	for zone, n := range c.Topology.MachinesByZone() {
		if err := c.create(ctx, labTemplates, template(zone)); err != nil {
			return err
		}
		if err := c.create(ctx, machineDeployments, deployment(zone, n)); err != nil {
			return err
		}
	}
	return nil
}

// create makes an object unless it exists, and its status with it: a subresource, for kinds that have one.
func (c *ClusterAPI) create(
	ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured,
) error {
	in := c.client.Resource(r).Namespace(Namespace)
	var made *unstructured.Unstructured
	err := manifest.Poll(ctx, func() (bool, error) {
		var err error
		made, err = in.Create(ctx, o, metav1.CreateOptions{FieldManager: fieldOwner})
		switch {
		case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			return true, err
		default:
			return false, err // the manager's webhooks do not answer yet
		}
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	if status, ok := o.Object["status"]; ok {
		made.Object["status"] = status
		_, err = in.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: fieldOwner})
	}
	return err
}

func inCluster() map[string]string { return map[string]string{clusterLabel: ClusterName} }

func provisioned() map[string]any {
	return map[string]any{"initialization": map[string]any{"provisioned": true}}
}

func secret(name, key string, value []byte) *unstructured.Unstructured {
	return object("v1", "Secret", name, inCluster(), map[string]any{
		"type": coreGroup + "/secret", "data": map[string]any{key: base64.StdEncoding.EncodeToString(value)},
	})
}

func (c *ClusterAPI) cluster() *unstructured.Unstructured {
	return object(coreGroup+"/"+coreVersion, "Cluster", ClusterName, nil, map[string]any{"spec": map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": "127.0.0.1", "port": int64(c.Ports.APIServer())},
		"infrastructureRef":    map[string]any{"apiGroup": infrastructure, "kind": "LabCluster", "name": ClusterName},
	}})
}

// initialize says of the control plane that it works: a provider of control planes would. A MachineHealthCheck does
// nothing before that.
func (c *ClusterAPI) initialize(ctx context.Context) error {
	now := time.Now().UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"initialization": map[string]any{"controlPlaneInitialized": true},
		"conditions": []any{map[string]any{
			"type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
			"lastTransitionTime": now,
		}},
	}})
	if err != nil {
		return err
	}
	return manifest.Poll(ctx, func() (bool, error) {
		o, err := c.client.Resource(clusters).Namespace(Namespace).Get(ctx, ClusterName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if manifest.HasCondition(o, "ControlPlaneInitialized") {
			return true, nil
		}
		_, err = c.client.Resource(clusters).Namespace(Namespace).Patch(ctx, ClusterName, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: fieldOwner}, "status")
		return false, err // the manager may have overwritten it: it is looked at again
	})
}

func machineSpec(infraKind, infraName string) map[string]any {
	return map[string]any{
		"clusterName": ClusterName,
		"bootstrap":   map[string]any{"dataSecretName": bootstrap},
		"infrastructureRef": map[string]any{
			"apiGroup": infrastructure, "kind": infraKind, "name": infraName,
		},
	}
}

func template(zone string) *unstructured.Unstructured {
	return ourObject("LabMachineTemplate", zone, map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"zone": zone}}},
	})
}

func deployment(zone string, replicas int) *unstructured.Unstructured {
	spec := machineSpec("LabMachineTemplate", zone)
	spec["failureDomain"] = zone
	// As the nodes': a Machine of another version is not up to date.
	spec["version"] = version.Get().GitVersion
	labels := map[string]any{PoolLabel: workers, "zone": zone}
	return object(coreGroup+"/"+coreVersion, "MachineDeployment", zone, inCluster(), map[string]any{"spec": map[string]any{
		"clusterName": ClusterName, "replicas": int64(replicas),
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec},
	}})
}

func healthCheck() *unstructured.Unstructured {
	ready := func(status string) map[string]any {
		return map[string]any{"type": "Ready", "status": status, "timeoutSeconds": int64(unhealthyAfter)}
	}
	return object(coreGroup+"/"+coreVersion, "MachineHealthCheck", HealthCheck, inCluster(), map[string]any{
		"spec": map[string]any{
			"clusterName": ClusterName,
			"selector":    map[string]any{"matchLabels": map[string]any{PoolLabel: workers}},
			"checks": map[string]any{
				"nodeStartupTimeoutSeconds": int64(nodeStartTimeout),
				"unhealthyNodeConditions":   []any{ready("Unknown"), ready("False")},
			},
			"remediation": map[string]any{"triggerIf": map[string]any{"unhealthyLessThanOrEqualTo": maxUnhealthy}},
		},
	})
}

// awaitMachines waits until every worker has a node, and returns how many there are.
func (c *ClusterAPI) awaitMachines(ctx context.Context) (int, error) {
	want := 0
	list, err := c.client.Resource(machineDeployments).Namespace(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, d := range list.Items {
		n, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
		want += int(n)
	}
	return want, manifest.Poll(ctx, func() (bool, error) {
		list, err := c.client.Resource(machines).Namespace(Namespace).List(ctx, metav1.ListOptions{LabelSelector: PoolLabel})
		if err != nil {
			return false, err
		}
		have := 0
		for _, m := range list.Items {
			if node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name"); node != "" {
				have++
			}
		}
		if have < want {
			return false, fmt.Errorf("%d of %d Machines have their nodes", have, want)
		}
		return true, nil
	})
}

// providerKinds are the provider's own kinds.
func providerKinds() []*unstructured.Unstructured {
	kind := func(name, plural string) *unstructured.Unstructured {
		schema := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + infrastructure},
			"spec": map[string]any{
				"group": infrastructure, "scope": "Namespaced",
				"names": map[string]any{
					"kind": name, "listKind": name + "List", "plural": plural, "singular": strings.ToLower(name),
				},
				"versions": []any{map[string]any{
					"name": infrastructureVersion, "served": true, "storage": true,
					"schema":       map[string]any{"openAPIV3Schema": schema},
					"subresources": map[string]any{"status": map[string]any{}},
				}},
			},
		}}
	}
	return []*unstructured.Unstructured{
		kind("LabCluster", labClusters.Resource), kind("LabMachine", labMachines.Resource),
		kind("LabMachineTemplate", labTemplates.Resource),
		kind("LabRemediation", remediations.Resource), kind("LabRemediationTemplate", remediationTemplates.Resource),
	}
}
