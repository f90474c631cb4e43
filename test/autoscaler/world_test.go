// Package autoscaler tries what the real Cluster Autoscaler does to a lab, alone and beside the real Longhorn.
package autoscaler

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

// What people say to the autoscaler.
const (
	safeToEvict       = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// world is a lab without Ceph, in which the autoscaler is not started yet.
type world struct {
	*testing.T
	client.Client
	typed   kubernetes.Interface
	journal *journal
}

// start starts a lab. Who decides beside the autoscaler is whatever a test then starts in it.
func start(t *testing.T, flags ...string) *world {
	t.Helper()
	turns.Need(t, "the real Cluster Autoscaler", filepath.Join(filepath.Dir(lab), "cluster-autoscaler"), "autoscaler")
	home, err := os.MkdirTemp("", "lk-ca-") //nolint:usetesting // t.TempDir() is too long for unix sockets
	require.NoError(t, err)
	t.Setenv("LAB_HOME", home)
	log.SetLogger(logr.Discard())
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
	w.journal = follow(t, w.typed)
	return w
}

// upAlone starts the lab. Tests of other packages may have one with Longhorn on this machine, whose end it awaits.
func (w *world) upAlone(flags []string) {
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

func (w *world) lab(args ...string) string {
	w.Helper()
	return string(w.labWith(nil, args...))
}

// labWith runs a command of the lab with an input, and returns its output alone.
func (w *world) labWith(input []byte, args ...string) []byte {
	w.Helper()
	out, err := tryLab(input, args...)
	require.NoError(w, err)
	return out
}

func tryLab(input []byte, args ...string) ([]byte, error) {
	c := exec.CommandContext(context.Background(), lab, args...)
	var out, said bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(input), &out, &said
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("lab %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

// nodes are the names of the nodes that are ready, sorted.
func (w *world) nodes() []string {
	w.Helper()
	list, err := w.typed.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
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

// awaitNodes waits until so many nodes are ready, and returns them.
func (w *world) awaitNodes(n int) []string {
	w.Helper()
	w.await("the number of nodes", func() bool { return len(w.nodes()) == n })
	return w.nodes()
}

// annotate sets an annotation of a node, or takes it away if it is "".
func (w *world) annotate(node, key, value string) {
	w.Helper()
	quoted := `"` + value + `"`
	if value == "" {
		quoted = "null"
	}
	_, err := w.typed.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+key+`":`+quoted+`}}}`), metav1.PatchOptions{})
	require.NoError(w, err)
}

func (w *world) await(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s\n%s", patience, what, w.journal)
		}
	}
}
