// Package scaling is a lab in which a real autoscaler is tried, for the tests of each of them.
package scaling

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

const (
	lab      = "../../lab/bin/lab"
	patience = 3 * time.Minute
)

// Autoscaler is one of those that a lab may have.
type Autoscaler struct {
	// Name is what people call it.
	Name string
	// Program is its program beside the lab's, and Target the target of make that builds it.
	Program, Target string
	// Taint is the key of the taint by which it says that it is about to remove a node.
	Taint string
}

// World is a lab without Ceph, in which no autoscaler is started yet.
type World struct {
	*testing.T
	client.Client
	Typed   kubernetes.Interface
	Config  *rest.Config
	Journal *Journal
}

// Start starts a lab for an autoscaler. Who decides beside it is whatever a test then starts in it.
func Start(t *testing.T, a Autoscaler, flags ...string) *World {
	t.Helper()
	turns.Need(t, a.Name, filepath.Join(filepath.Dir(lab), a.Program), a.Target)
	home, err := os.MkdirTemp("", "lk-") //nolint:usetesting // t.TempDir() is too long for unix sockets
	require.NoError(t, err)
	t.Setenv("LAB_HOME", home)
	log.SetLogger(logr.Discard())
	w := &World{T: t}
	w.upAlone(flags)
	t.Cleanup(func() {
		w.Lab("down")
		require.NoError(t, os.RemoveAll(home))
	})
	w.Config, err = clientcmd.BuildConfigFromFlags("", strings.TrimSpace(w.Lab("kubeconfig")))
	require.NoError(t, err)
	w.Config.QPS, w.Config.WarningHandler = -1, rest.NoWarnings{}
	w.Typed, err = kubernetes.NewForConfig(w.Config)
	require.NoError(t, err)
	w.Client, err = client.New(w.Config, client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	w.Journal = Follow(t, w.Typed, a.Taint)
	return w
}

// upAlone starts the lab. Tests of other packages may have one with Longhorn on this machine, whose end it awaits.
func (w *World) upAlone(flags []string) {
	w.Helper()
	args := append([]string{"up", "--ceph=none", "--temporal=false"}, flags...)
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

// Lab runs a command of the lab, and returns its output.
func (w *World) Lab(args ...string) string {
	w.Helper()
	return w.LabWith("", args...)
}

// LabWith is Lab for a command that reads something.
func (w *World) LabWith(input string, args ...string) string {
	w.Helper()
	c := exec.CommandContext(context.Background(), lab, args...)
	var out, said bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(input), &out, &said
	err := c.Run()
	require.NoError(w, err, "lab %s: %s", strings.Join(args, " "), strings.TrimSpace(said.String()))
	return out.String()
}

// Folder is where a node of the lab has all that is its own.
func (w *World) Folder(node string) string {
	return filepath.Join(os.Getenv("LAB_HOME"), "default", "nodes", node)
}

// Nodes are the names of the nodes that are ready, sorted.
func (w *World) Nodes() []string {
	w.Helper()
	list, err := w.Typed.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	var names []string
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// AwaitNodes waits until so many nodes are ready, and returns them.
func (w *World) AwaitNodes(n int) []string {
	w.Helper()
	w.Await("the number of nodes", func() bool { return len(w.Nodes()) == n })
	return w.Nodes()
}

// Annotate sets an annotation of a node, or takes it away if it is "".
func (w *World) Annotate(node, key, value string) {
	w.Helper()
	quoted := fmt.Sprintf("%q", value)
	if value == "" {
		quoted = "null"
	}
	_, err := w.Typed.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+key+`":`+quoted+`}}}`), metav1.PatchOptions{})
	require.NoError(w, err)
}

// Await waits until the answer is yes.
func (w *World) Await(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s\n%s", patience, what, w.Journal)
		}
	}
}
