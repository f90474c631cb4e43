package remediator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/test/barelab"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// storageNodes host OSDs. node-f hosts none.
var storageNodes = []string{"node-a", "node-b", "node-c", "node-d", "node-e"}

// TestHeldAndReleased has nodes fail in a lab without Ceph, whose word is made up. Of each API: a node without storage
// is fenced without delay; of two with storage that fail together none is fenced while it is held, and each is when it
// is released, one after the other.
func TestHeldAndReleased(t *testing.T) {
	turns.Await(t, "the remediators of other APIs", time.Minute)
	lab := barelab.Up(t, "--temporal=false")
	apply(lab, "../api/testdata/fencing-crds.yaml")
	apply(lab, "testdata/medik8s.yaml")
	require.NoError(t, lab.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "machines"}}))
	for _, test := range []struct {
		api   API
		spec  v1alpha1.FencingSpec
		check string
	}{
		{
			Budgets,
			v1alpha1.FencingSpec{API: v1alpha1.FencingMachineDisruptionBudget, Namespace: "machines"},
			`{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {name: all, namespace: machines},
				spec: {selector: {}, unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]}}`,
		},
		{
			NodeHealths,
			v1alpha1.FencingSpec{API: v1alpha1.FencingNodeHealthCheck},
			`{apiVersion: remediation.medik8s.io/v1alpha1, kind: NodeHealthCheck, metadata: {name: all}, spec: {selector: {},
				minHealthy: 3, unhealthyConditions: [{type: Ready, status: Unknown, duration: 2s}], remediationTemplate: {
				apiVersion: self-node-remediation.medik8s.io/v1alpha1, kind: SelfNodeRemediationTemplate, namespace: machines,
				name: automatic}}}`,
		},
		{ // last, since its nodes go for good
			OpenShift,
			v1alpha1.FencingSpec{API: v1alpha1.FencingOpenShift, Namespace: "machines"},
			`{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {name: all, namespace: machines},
				spec: {selector: {}, maxUnhealthy: "50%", unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]}}`,
		},
	} {
		t.Run(string(test.api), func(t *testing.T) {
			w := world{lab.In(t).Store(test.spec, storageNodes...), nil}
			for _, o := range append(w.machinesOf(test.api), decode(t, test.check)) {
				require.NoError(t, w.Create(t.Context(), o))
				t.Cleanup(func() { w.remove(o) })
			}
			w.start(test.api)
			w.play()
		})
	}
}

type world struct {
	*barelab.Storage
	remediator *Remediator
}

// machinesOf are Machines for all nodes, of metal where nodes are only started again; none where Nodes are held.
func (w *world) machinesOf(api API) (out []*unstructured.Unstructured) {
	if api == NodeHealths {
		return nil
	}
	for _, node := range append(slices.Clone(storageNodes), "node-f") {
		o := decode(w.T, fmt.Sprintf(`{apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {namespace: machines,
			name: machine-of-%s, finalizers: [%s]}, spec: {providerID: "%s:///%s"}, status: {nodeRef: {name: %s}}}`, node,
			Finalizer, map[API]string{Budgets: "baremetalhost", OpenShift: "aws"}[api], node, node))
		out = append(out, o)
	}
	return out
}

func (w *world) start(api API) {
	w.InLab("kubectl wait --for=condition=Ready nodes --all --timeout=60s") // those that were fenced before are back
	ctx, stop := context.WithCancel(w.Context())
	w.remediator = &Remediator{
		Client: w.Client, API: api, Every: 300 * time.Millisecond,
		Fence: func(ctx context.Context, node string, gone bool) error {
			fault := "node-return"
			if gone {
				fault = "node-remove"
			}
			return exec.CommandContext(ctx, "../../lab/bin/lab", "fault", fault, node).Run()
		},
		Said: func(err error) { w.Logf("the remediator: %v", err) },
	}
	if api != NodeHealths {
		w.remediator.Namespace = "machines"
	}
	ended := make(chan struct{})
	go func() { defer close(ended); w.remediator.Run(ctx) }()
	w.Cleanup(func() { stop(); <-ended })
}

// play has nodes fail.
func (w *world) play() {
	w.settle()
	for _, m := range w.Machines() {
		require.Equal(w, m.Node != "node-f", m.Held, m)
	}
	w.lose("node-f")
	w.await("the node without storage is fenced", "node-f")

	// The budget would let a first one go at 1, if it were asked before Ceph's word has come.
	w.Down["node-a"], w.Down["node-b"] = true, true
	w.settle()
	w.lose("node-a")
	w.lose("node-b")
	w.unhealthy("node-a")
	w.unhealthy("node-b")
	time.Sleep(3 * time.Second) // ten looks of the remediator
	require.Equal(w, []string{"node-f"}, w.remediator.Fenced(), "what is held is fenced")
	for i, want := range []string{"node-a", "node-b"} {
		failed := []string{"node-a", "node-b"}[i:]
		node, _ := w.Choose(fencing.WhyUnhealthy, failed...)
		require.Equal(w, want, node)
		w.Released = []string{node}
		w.settle()
		w.await("what is released is fenced", append([]string{"node-f"}, []string{"node-a", "node-b"}[:i+1]...)...)
		w.Released = nil
		delete(w.Down, node) // its OSDs are up again, there or elsewhere
		w.settle()
	}
	w.End()
}

// settle brings holds, and the budget where there is one, to where they belong.
func (w *world) settle() {
	w.Helper()
	w.Settle()
	if w.remediator.API == Budgets {
		require.NoError(w, w.Holder.SetBudget(w.Context(), fencing.MaxUnavailable(w.Facts())))
	}
}

func (w *world) lose(node string) {
	w.Helper()
	w.Lab("fault", "node-lost", node)
}

// await waits until exactly these nodes were fenced, in this order.
func (w *world) await(what string, nodes ...string) {
	w.Helper()
	began := time.Now()
	w.until(what, func() bool { return slices.Equal(nodes, w.remediator.Fenced()) })
	w.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond))
}

// unhealthy waits until a node has met the condition for as long as its health check wants.
func (w *world) unhealthy(node string) {
	w.Helper()
	w.until(node+" is unhealthy", func() bool {
		n, err := w.Typed.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
		require.NoError(w, err)
		return unhealthy(n, []condition{{"Ready", "Unknown", 2 * time.Second}}, time.Now())
	})
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if is() {
			return
		}
	}
	require.Fail(w, "not within a minute: "+what, "fenced: %v", w.remediator.Fenced())
}

// remove takes an object away, whoever keeps it.
func (w *world) remove(o *unstructured.Unstructured) {
	ctx := context.Background()
	_ = w.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	_ = w.Delete(ctx, o)
}

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &o.Object))
	return o
}

// apply creates what a file has, and waits until it is served.
func apply(w *barelab.World, file string) {
	w.Helper()
	text, err := os.ReadFile(file)
	require.NoError(w, err)
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		o := decode(w.T, string(part))
		require.NoError(w, w.Create(w.Context(), o))
	}
	w.InLab(`kubectl wait --for=condition=Established -f "$1" --timeout=30s`, file)
}
