package scaling

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"
)

// MoveIn installs lockkeeper in the lab, and starts a worker and a watcher, which end with the test. what are flags of
// hack/install-in-lab.sh.
func (w *World) MoveIn(what ...string) {
	w.Helper()
	dir := w.TempDir()
	w.inLab(`exec ../../hack/install-in-lab.sh "$@"`, append(what, dir)...)
	for who, command := range map[string]string{
		"worker": "exec ../../bin/lockkeeper-worker",
		"watch":  "exec ../../bin/lockkeeper watch --leader-elect-namespace lockkeeper-system",
	} {
		log, err := os.Create(filepath.Join(dir, who+".log"))
		require.NoError(w, err)
		c := exec.CommandContext(context.Background(), "bash", "-c",
			`eval "$("$0" env)" && export KUBECONFIG="$1/`+who+`.kubeconfig" && `+command, lab, dir)
		c.Stdout, c.Stderr = log, log
		require.NoError(w, c.Start())
		w.Cleanup(func() {
			_ = c.Process.Signal(syscall.SIGTERM)
			_ = c.Wait()
			log.Close()
			if said, _ := os.ReadFile(log.Name()); w.Failed() {
				w.Logf("%s:\n%s", who, said[max(0, len(said)-3000):])
			}
		})
	}
}

// inLab runs a script in the lab's environment.
func (w *World) inLab(script string, args ...string) {
	w.Helper()
	args = append([]string{"-c", `eval "$("$0" env)" && ` + script, lab}, args...)
	out, err := exec.CommandContext(w.Context(), "bash", args...).CombinedOutput()
	require.NoError(w, err, "%s: %s", strings.Join(args, " "), out)
}
