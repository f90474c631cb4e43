// Package karpenter tries what the real Karpenter does to the nodes of a lab, and whether lockkeeper understands it.
package karpenter

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/scaling"
)

var theReal = scaling.Autoscaler{
	Name: "the real Karpenter", Program: "karpenter", Target: "karpenter", Taint: leaving.DisruptedTaint,
}

const (
	poolLabel    = "karpenter.sh/nodepool"
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
)

type world struct{ *scaling.World }

// startKarpenter starts a lab with Karpenter and one node that is not Karpenter's.
func startKarpenter(t *testing.T, flags ...string) world {
	t.Helper()
	w := world{scaling.Start(t, theReal, append([]string{"--zones=1", "--nodes-per-zone=1", "--mons=1"}, flags...)...)}
	w.Lab("karpenter", "start", "--no-node-pool")
	return w
}

// pool is a NodePool with one node, and the pods for which the node came: one small one, and a big one, without which a
// smaller node would do.
type pool struct {
	name      string
	namespace string // of its pods; "": default
	// consolidate has its nodes go as soon as they are not needed.
	consolidate bool
	expireAfter time.Duration // 0: never
	grace       time.Duration // the terminationGracePeriod; 0: none
	alone       bool          // there is no small pod
	tolerant    bool          // its pods tolerate every taint
	nodes       int32         // with a big pod on each; 0: one

	node string // once there is one
}

func (p *pool) ns() string {
	if p.namespace != "" {
		return p.namespace
	}
	return metav1.NamespaceDefault
}

func (p *pool) small() string { return p.name + "-small" }
func (p *pool) big() string   { return p.name + "-big" }

// podGrace is how long a pod may take to end.
const podGrace = 3 * time.Second

// create makes the NodePool and its pods.
func (w world) create(p *pool) {
	w.Helper()
	spec := map[string]any{
		"nodeClassRef": map[string]any{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "lab"},
		"requirements": []any{map[string]any{
			"key": "karpenter.sh/capacity-type", "operator": "In", "values": []any{"on-demand"},
		}},
		"expireAfter": "Never",
	}
	if p.expireAfter > 0 {
		spec["expireAfter"] = p.expireAfter.String()
	}
	if p.grace > 0 {
		spec["terminationGracePeriod"] = p.grace.String()
	}
	after := "Never"
	if p.consolidate {
		after = "0s"
	}
	require.NoError(w, w.Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": map[string]any{"name": p.name},
		"spec": map[string]any{
			"template": map[string]any{"spec": spec},
			"disruption": map[string]any{
				"consolidateAfter": after, "budgets": []any{map[string]any{"nodes": "100%"}},
			},
		},
	}}))
	w.run(p, p.big(), "10", max(p.nodes, 1))
	if !p.alone {
		w.run(p, p.small(), "2", 1)
	}
}

func (w world) run(p *pool, name, cpus string, pods int32) {
	w.Helper()
	rs := scaling.ReplicaSet(name, pods)
	rs.Namespace = p.ns()
	grace := int64(podGrace.Seconds())
	spec := &rs.Spec.Template.Spec
	spec.NodeSelector, spec.TerminationGracePeriodSeconds = map[string]string{poolLabel: p.name}, &grace
	if p.tolerant {
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
	require.NoError(w, w.Create(w.Context(), rs))
}

// awaitRunning waits until the pods of the pools run, and notes their nodes.
func (w world) awaitRunning(pools ...*pool) {
	w.Helper()
	w.Await("all pods run", func() bool {
		for _, p := range pools {
			names := []string{p.big(), p.small()}
			if p.alone {
				names = names[:1]
			}
			for _, name := range names {
				pods := w.Pods(p.ns(), name)
				if len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
					return false
				}
				p.node = pods[0].Spec.NodeName
			}
		}
		return true
	})
}

// drift changes what the nodes of a pool should be.
func (w world) drift(p *pool) {
	w.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("karpenter.sh/v1")
	o.SetKind("NodePool")
	o.SetName(p.name)
	require.NoError(w, w.Patch(w.Context(), o, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"labels":{"generation":"2"}}}}}`))))
}

// leave deletes a ReplicaSet, with its pods.
func (w world) leave(p *pool, name string) {
	w.Helper()
	background := metav1.DeletePropagationBackground
	require.NoError(w, w.Typed.AppsV1().ReplicaSets(p.ns()).Delete(w.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: &background}))
}

// allow deletes the budget over the small pod of a pool.
func (w world) allow(p *pool) {
	w.Helper()
	require.NoError(w, w.Typed.PolicyV1().PodDisruptionBudgets(p.ns()).Delete(w.Context(), p.small(),
		metav1.DeleteOptions{}))
}

// annotatePod sets do-not-disrupt on the small pod of a pool, or takes it away if it is "".
func (w world) annotatePod(p *pool, value string) {
	w.Helper()
	pod := w.Pods(p.ns(), p.small())[0]
	quoted := `"` + value + `"`
	if value == "" {
		quoted = "null"
	}
	require.NoError(w, w.Patch(w.Context(), &pod, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+doNotDisrupt+`":`+quoted+`}}}`))))
}

// apply applies the objects of a manifest, as kubectl does.
func (w world) apply(manifest []byte) {
	w.Helper()
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		o := &unstructured.Unstructured{}
		err := documents.Decode(o)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(w, err)
		require.NoError(w, w.Client.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner("test")), o.GetName())
	}
}

// unguard takes the guard of deletions away.
func (w world) unguard(p *pool) {
	w.Helper()
	require.NoError(w, w.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(w.Context(),
		"lockkeeper-guard-deletions-"+p.ns(), metav1.DeleteOptions{}))
}
