// Package longhorn tries what lockkeeper decides about Longhorn against the real one, in a lab without Ceph.
package longhorn

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

const (
	lab       = "../../lab/bin/lab"
	namespace = "longhorn-system"
	patience  = 90 * time.Second
)

var allNodes = []string{"node-a", "node-b", "node-c"}

// world is a lab of three nodes with Longhorn, and the decision before.
type world struct {
	*testing.T
	client.Client
	typed  kubernetes.Interface
	reader *longhorncluster.Reader
	before longhorncluster.Before
}

// start starts it, with more flags of `lab up`.
func start(t *testing.T, flags ...string) *world {
	t.Helper()
	turns.Need(t, "the real Longhorn", filepath.Join(filepath.Dir(lab), "longhorn", "longhorn-manager"), "longhorn")
	home, err := os.MkdirTemp("", "lk-lh-") //nolint:usetesting // t.TempDir() is too long for unix sockets
	require.NoError(t, err)
	t.Setenv("LAB_HOME", home)
	w := &world{T: t}
	w.upAlone(flags)
	t.Cleanup(func() {
		w.lab("down")
		require.NoError(t, os.RemoveAll(home))
	})
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(w.lab("kubeconfig")))
	require.NoError(t, err)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	w.typed, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	w.Client, err = client.New(config, client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	w.reader = longhorncluster.New(w.Client, namespace)
	return w
}

// upAlone starts the lab. Tests of another module may have one with Longhorn on this machine, whose end it awaits.
func (w *world) upAlone(flags []string) {
	w.Helper()
	args := append([]string{"up", "--ceph=none", "--nodes-per-zone=1", "--longhorn"}, flags...)
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(2 * time.Second) {
		out, err := exec.CommandContext(context.Background(), lab, args...).CombinedOutput()
		if err == nil {
			return
		}
		if !strings.Contains(string(out), "only one lab of a machine") || time.Now().After(deadline) {
			require.NoError(w, err, "lab up: %s", out)
		}
	}
}

func (w *world) lab(args ...string) string {
	w.Helper()
	out, err := exec.CommandContext(context.Background(), lab, args...).CombinedOutput()
	require.NoError(w, err, "lab %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// decide reads the installation and decides, and remembers whom it kept.
func (w *world) decide() longhorn.Decision {
	w.Helper()
	read, err := w.reader.World(w.Context(), time.Now(), w.before)
	require.NoError(w, err)
	d := longhorn.Decide(read)
	require.Empty(w, d.Faults)
	w.before.Kept = d.Kept
	return d
}

// kept are the nodes that lockkeeper keeps.
func (w *world) kept() []string {
	var kept []string
	for _, n := range w.decide().Nodes {
		if n.State == longhorn.Kept {
			kept = append(kept, n.Node)
		}
	}
	return kept
}

// budgeted are the nodes over whose instance managers Longhorn itself has a budget.
func (w *world) budgeted() []string {
	w.Helper()
	var budgets policyv1.PodDisruptionBudgetList
	require.NoError(w, w.List(w.Context(), &budgets, client.InNamespace(namespace)))
	covered := map[string]bool{}
	for _, b := range budgets.Items {
		if b.Spec.Selector != nil && strings.HasPrefix(b.Name, "instance-manager-") {
			covered[b.Spec.Selector.MatchLabels["longhorn.io/node"]] = true
		}
	}
	var nodes []string
	for _, n := range allNodes {
		if covered[n] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (w *world) explain(node string) string {
	w.Helper()
	said, ok := w.decide().Explain(node)
	require.True(w, ok)
	return strings.Join(said, "\n")
}

func (w *world) cordon(node string, wanted bool) {
	w.Helper()
	verb := map[bool]string{true: "true", false: "false"}[wanted]
	_, err := w.typed.CoreV1().Nodes().Patch(w.Context(), node, "application/merge-patch+json",
		[]byte(`{"spec":{"unschedulable":`+verb+`}}`), patchOptions)
	require.NoError(w, err)
}

// set changes one of Longhorn's settings.
func (w *world) set(name, value string) {
	w.Helper()
	setting := &unstructured.Unstructured{}
	setting.SetGroupVersionKind(schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: "Setting"})
	setting.SetNamespace(namespace)
	setting.SetName(name)
	require.NoError(w, w.Patch(w.Context(), setting, client.RawPatch("application/merge-patch+json",
		[]byte(`{"value":"`+value+`"}`))))
}

func (w *world) await(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s\n%s", patience, what, w.describe())
		}
	}
}

// describe is how the installation looks, for who has to find out what went wrong.
func (w *world) describe() string {
	w.Helper()
	c := exec.CommandContext(context.Background(), "bash", "-c", `eval "$("$0" env)" && kubectl -n "$1" get \
		maintenancepolicies,pdb,instancemanagers,volumes.longhorn.io,nodes 2>&1
		kubectl -n "$1" get pods -L lockkeeper.io/proved,longhorn.io/node -l longhorn.io/component=instance-manager 2>&1`,
		lab, namespace)
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s (%v)", out, err)
	}
	return string(out)
}
