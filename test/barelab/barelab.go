// Package barelab is a lab without Ceph, for tests against the real controllers of others.
package barelab

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// program is the lab's, seen from the folder of a test of ours.
const program = "../../lab/bin/lab"

// World is a lab that is up, and clients of its API server that wait for nobody.
type World struct {
	*testing.T
	client.Client
	Typed  kubernetes.Interface
	Config *rest.Config
}

// Need skips a test for which make has to build something that is not there: a file beside the lab's program, and the
// target that builds it.
func Need(t *testing.T, what, file, target string) {
	t.Helper()
	turns.Need(t, what, filepath.Join(filepath.Dir(program), file), target)
}

// Up starts a lab, with more flags of `lab up`, until the test ends.
func Up(t *testing.T, flags ...string) *World {
	t.Helper()
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
	return w
}

// In is the same lab in a part of the test.
func (w *World) In(t *testing.T) *World {
	t.Helper()
	part := *w
	part.T = t
	return &part
}

// upAlone starts the lab. Tests of other packages and modules may have one with Longhorn on this machine, whose end it
// awaits.
func (w *World) upAlone(flags []string) {
	w.Helper()
	args := append([]string{"up", "--ceph=none"}, flags...)
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(2 * time.Second) {
		out, err := exec.CommandContext(context.Background(), program, args...).CombinedOutput()
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
	c := exec.CommandContext(context.Background(), program, args...)
	var out, said bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(input), &out, &said
	err := c.Run()
	require.NoError(w, err, "lab %s: %s", strings.Join(args, " "), strings.TrimSpace(said.String()))
	return out.String()
}
