// Package test tries the lab as its users do: the real binary, the real control plane.
package test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	binary  = "../bin/lab"
	labName = "shared"
)

// home is LAB_HOME of these tests: nothing of theirs is anywhere else.
var (
	home   string
	config *rest.Config
	client kubernetes.Interface
)

// TestMain starts one lab for all tests that leave the others alone, and looks for what it leaves behind.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) (code int) {
	if out, err := exec.Command("../build.sh").CombinedOutput(); err != nil {
		log.Printf("build.sh: %v\n%s", err, out)
		return 1
	}
	var err error
	if home, err = os.MkdirTemp("", "lab"); err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(home)
	os.Setenv("LAB_HOME", filepath.Join(home, "h"))
	defer func() {
		if out, err := lab("down", "--name", labName); err != nil {
			log.Printf("lab down: %v\n%s", err, out)
			code = 1
		}
		for _, left := range remains() {
			log.Print("left behind: ", left)
			code = 1
		}
	}()
	if out, err := lab("up", "--name", labName, "--ceph=none", "--temporal=false"); err != nil {
		log.Printf("lab up: %v\n%s", err, out)
		return 1
	}
	if err := connect(); err != nil {
		log.Print(err)
		return 1
	}
	return m.Run()
}

func connect() error {
	kubeconfig, err := lab("kubeconfig", "--name", labName)
	if err != nil {
		return err
	}
	config, err = clientcmd.BuildConfigFromFlags("", strings.TrimSpace(kubeconfig))
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err = kubernetes.NewForConfig(config)
	return err
}

// lab runs a command of the lab.
func lab(args ...string) (string, error) {
	out, err := exec.CommandContext(context.Background(), binary, args...).CombinedOutput()
	return string(out), err
}

func mustLab(t *testing.T, args ...string) string {
	t.Helper()
	out, err := lab(args...)
	if err != nil {
		t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// fault injects a fault into the shared lab.
func fault(t *testing.T, args ...string) {
	t.Helper()
	mustLab(t, append([]string{"fault", "--name", labName}, args...)...)
}

// remains lists files, processes and mounts that belong to these tests.
func remains() []string {
	var left []string
	if entries, err := os.ReadDir(filepath.Join(home, "h")); err == nil {
		for _, e := range entries {
			left = append(left, "file "+e.Name())
		}
	}
	return append(left, processes()...)
}

// processes lists those that mention our folder in their command line, environment or mounts.
func processes() []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if dir == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		for _, file := range []string{"cmdline", "environ", "mounts"} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil && strings.Contains(string(b), home) {
				cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
				found = append(found, fmt.Sprintf("process %s (%s): %s", filepath.Base(dir), file,
					strings.ReplaceAll(string(cmdline), "\x00", " ")))
				break
			}
		}
	}
	return found
}
