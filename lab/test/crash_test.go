package test

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

var bare = []string{"--ceph=none", "--temporal=false", "--zones", "1", "--nodes-per-zone", "1", "--mons", "1"}

// Not in parallel with each other: they look at all processes of an instance.

func TestNothingSurvivesTheSupervisor(t *testing.T) {
	mustLab(t, append([]string{"up", "--name", "killed"}, bare...)...)
	cfg := load(t, "killed")
	if out, err := lab("up", "--name", "killed"); err == nil || !strings.Contains(out, "already running") {
		t.Errorf("second up: %v, %s", err, out)
	}
	supervisor, alive := cfg.Supervisor()
	if !alive || len(processesOf(cfg)) < 4 {
		t.Fatalf("supervisor alive: %t, processes %v", alive, processesOf(cfg))
	}
	if err := syscall.Kill(supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all processes gone", func() bool { return len(processesOf(cfg)) == 0 })
	// A process that has died lets go of its files a moment later.
	eventually(t, "no longer claimed", func() bool { return !cfg.Running() })
	for _, port := range []int{cfg.Ports.APIServer(), cfg.Ports.Kubelet()} {
		eventually(t, "port free", func() bool {
			l, err := net.Listen("tcp", instance.Loopback(port))
			if err != nil {
				return false
			}
			return l.Close() == nil
		})
	}
	out := mustLab(t, append([]string{"up", "--name", "killed"}, bare...)...)
	if !strings.Contains(out, "removed what a crash had left") {
		t.Errorf("got %s", out)
	}
	mustLab(t, "down", "--name", "killed")
	absent(t, cfg)
}

func TestKeptLabContinues(t *testing.T) {
	mustLab(t, append([]string{"up", "--name", "kept"}, bare...)...)
	cfg := load(t, "kept")
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(cfg.Path("bin", "kubectl"),
			append([]string{"--kubeconfig", cfg.Kubeconfig()}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	kubectl("create", "deployment", "d", "--image=none")
	kubectl("rollout", "status", "deployment/d", "--timeout="+timeout.String())
	mustLab(t, "down", "--name", "kept", "--keep")
	if left := processesOf(cfg); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if out, err := lab("up", "--name", "kept", "--zones", "2"); err == nil ||
		!strings.Contains(out, "was kept with other sizes") {
		t.Errorf("other sizes: %v, %s", err, out)
	}
	out := mustLab(t, "up", "--name", "kept")
	if !strings.Contains(out, "continuing with the data") {
		t.Errorf("got %s", out)
	}
	if again := load(t, "kept"); again.Ports != cfg.Ports {
		t.Errorf("ports %v, before %v", again.Ports, cfg.Ports)
	}
	kubectl("rollout", "status", "deployment/d", "--timeout="+timeout.String())
	if got := kubectl("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}"); got != "1" {
		t.Errorf("restarts %q, want 1", got)
	}
	mustLab(t, "down", "--name", "kept")
	absent(t, cfg)
}

func TestInterruptedUpLeavesNothing(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			var out bytes.Buffer
			cmd := exec.Command(binary, append([]string{"up", "--name", "torn"}, bare...)...)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "begun", func() bool { _, err := instance.Load("torn"); return err == nil })
			time.Sleep(500 * time.Millisecond)
			cfg := load(t, "torn")
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait()
			eventually(t, "all processes gone", func() bool { return len(processesOf(cfg)) == 0 })
			eventually(t, "folder gone", func() bool {
				_, err := os.Stat(cfg.Dir)
				return os.IsNotExist(err)
			})
			mustLab(t, "down", "--name", "torn")
			absent(t, cfg)
		})
	}
}

func TestForegroundEndsWithItsTerminal(t *testing.T) {
	cmd := exec.Command(binary, append([]string{"up", "--name", "front", "--foreground"}, bare...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "up", func() bool {
		out, err := lab("status", "--name", "front", "-o", "json")
		var status struct{ State string }
		return err == nil && json.Unmarshal([]byte(out), &status) == nil && status.State == "up"
	})
	cfg := load(t, "front")
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	absent(t, cfg)
}

func load(t *testing.T, name string) instance.Config {
	t.Helper()
	cfg, err := instance.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func absent(t *testing.T, cfg instance.Config) {
	t.Helper()
	if left := processesOf(cfg); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, path := range []string{cfg.Dir, cfg.Dir + ".lock"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("left behind: %s", path)
		}
	}
}

// processesOf lists the processes that mention an instance's folder.
func processesOf(cfg instance.Config) []string {
	var list []string
	for _, p := range processes() {
		if strings.Contains(p, cfg.Dir) || strings.Contains(p, "--name "+cfg.Name) {
			list = append(list, p)
		}
	}
	return list
}
