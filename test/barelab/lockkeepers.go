package barelab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"
)

// Lockkeepers are the worker and the watcher.
type Lockkeepers struct {
	w         *World
	dir       string
	processes []*exec.Cmd
}

// MoveIn installs lockkeeper in the lab, and starts it. what are flags of hack/install-in-lab.sh.
func (w *World) MoveIn(what ...string) *Lockkeepers {
	w.Helper()
	k := &Lockkeepers{w: w, dir: w.TempDir()}
	w.InLab(`exec ../../hack/install-in-lab.sh "$@"`, append(what, k.dir)...)
	k.Start()
	return k
}

// Start starts both.
func (k *Lockkeepers) Start() {
	k.w.Helper()
	for who, command := range map[string]string{
		"worker": "exec ../../bin/lockkeeper-worker",
		"watch":  "exec ../../bin/lockkeeper watch --leader-elect-namespace lockkeeper-system",
	} {
		log, err := os.OpenFile(filepath.Join(k.dir, who+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(k.w, err)
		c := Command(context.Background(), `export KUBECONFIG="$1/`+who+`.kubeconfig" && `+command, k.dir)
		c.Stdout, c.Stderr = log, log
		require.NoError(k.w, c.Start())
		require.NoError(k.w, log.Close())
		k.processes = append(k.processes, c)
	}
}

func (k *Lockkeepers) end(by os.Signal) {
	for _, c := range k.processes {
		_ = c.Process.Signal(by)
	}
	for _, c := range k.processes {
		_ = c.Wait()
	}
	k.processes = nil
}

// Kill ends both as a lost machine does.
func (k *Lockkeepers) Kill() { k.end(syscall.SIGKILL) }

// Stop ends both, and shows their last words if the test failed.
func (k *Lockkeepers) Stop() {
	k.end(syscall.SIGTERM)
	if !k.w.Failed() {
		return
	}
	for _, who := range []string{"worker", "watch"} {
		said, _ := os.ReadFile(filepath.Join(k.dir, who+".log"))
		k.w.Logf("%s:\n%s", who, said[max(0, len(said)-3000):])
	}
}

// InLab runs a script in the lab's environment, with arguments from $1 on, and returns its output.
func (w *World) InLab(script string, args ...string) string {
	w.Helper()
	out, err := Command(w.Context(), script, args...).CombinedOutput()
	require.NoError(w, err, "%s: %s", strings.Join(append([]string{script}, args...), " "), out)
	return string(out)
}

// Command is a script in the lab's environment, not started yet.
func Command(ctx context.Context, script string, args ...string) *exec.Cmd {
	args = append([]string{"-c", `eval "$("$0" env)" && ` + script, program}, args...)
	return exec.CommandContext(ctx, "bash", args...)
}
