package test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/longhorn"
)

const longhornLab = "lh"

// TestLonghorn goes through the life of one volume: its steps build on each other.
func TestLonghorn(t *testing.T) {
	if _, err := os.Stat("../bin/longhorn/longhorn-manager"); errors.Is(err, fs.ErrNotExist) {
		if os.Getenv("TEST_ALL") != "" {
			t.Fatal("Longhorn is not built: run make longhorn")
		}
		t.Skip("Longhorn is not built: make test-all, or make longhorn, builds it")
	}
	t.Parallel()
	mustLab(t, "up", "--name", longhornLab, "--ceph=none", "--temporal=false", "--nodes-per-zone=1", "--longhorn")
	t.Cleanup(func() { mustLab(t, "down", "--name", longhornLab) })

	// No second one on this machine, where it would find the first one's webhook.
	if out, err := lab("up", "--name", "lh2", "--ceph=none", "--temporal=false", "--longhorn"); err == nil ||
		!strings.Contains(out, "port 9502") {
		t.Errorf("a second lab with Longhorn: %v\n%s", err, out)
	}
	if out, err := lab("volume", "create", "v", "--name", longhornLab); err == nil || !strings.Contains(out, `volume "v"`) {
		t.Errorf("a name that Longhorn does not take: %v\n%s", err, out)
	}

	mustLab(t, "volume", "create", "vol", "--name", longhornLab, "--replicas", "3", "--size", "8Mi")
	mustLab(t, "volume", "attach", "vol", "node-a", "--name", longhornLab)
	mustLab(t, "load", "start", "--name", longhornLab, "--volume", "vol")
	time.Sleep(2 * time.Second)

	// A replica whose process is killed comes back with the bytes that were written meanwhile.
	killReplica(t, "node-b")
	eventually(t, "degraded", func() bool {
		return strings.Contains(mustLab(t, "volume", "list", "--name", longhornLab), "degraded")
	})
	mustLab(t, "volume", "attach", "vol", "node-a", "--name", longhornLab) // which returns when all replicas are in use
	if report := stopLoad(t); report.FailedWrites+report.LostWrites > 0 || report.Writes == 0 {
		t.Errorf("%+v", report)
	}
	if sums := replicaSums(t); len(sums) != 1 {
		t.Errorf("the replicas differ: %v", sums)
	}

	before := contentOn(t, "node-a")

	// Attached elsewhere, it has the same bytes; and a load of a volume that is not attached says so.
	mustLab(t, "volume", "detach", "vol", "--name", longhornLab)
	if out, err := lab("load", "start", "--name", longhornLab, "--volume", "vol"); err == nil {
		t.Errorf("load of a detached volume started: %s", out)
	}
	mustLab(t, "volume", "attach", "vol", "node-c", "--name", longhornLab)
	if after := contentOn(t, "node-c"); after != before {
		t.Errorf("attached elsewhere it has other bytes: %s, before %s", after, before)
	}
}

// killReplica kills the process of the volume's replica on a node.
func killReplica(t *testing.T, node string) {
	t.Helper()
	folder := filepath.Join(home, "h", longhornLab, "nodes", node, "disk/var/lib/longhorn/replicas/vol-*")
	found, _ := filepath.Glob(folder)
	if len(found) != 1 {
		t.Fatalf("replicas on %s: %v", node, found)
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		b, _ := os.ReadFile(file)
		if line := string(b); strings.Contains(line, filepath.Base(found[0])) && strings.Contains(line, "\x00replica\x00") {
			var pid int
			if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err != nil {
				t.Fatal(err)
			}
			process, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Kill(); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no process of the replica on %s", node)
}

// replicaSums are the different contents that the volume's replicas have on the disks of their nodes.
func replicaSums(t *testing.T) map[string]bool {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(home, "h", longhornLab, "nodes/*/disk/var/lib/longhorn/replicas/vol-*/*.img"))
	perReplica := map[string][]string{} // of its head and its snapshots, whose names may differ
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		perReplica[filepath.Dir(file)] = append(perReplica[filepath.Dir(file)], fmt.Sprintf("%x", sha256.Sum256(b)))
	}
	if len(perReplica) != 3 {
		t.Fatalf("replicas: %d", len(perReplica))
	}
	sums := map[string]bool{}
	for _, of := range perReplica {
		slices.Sort(of)
		sums[strings.Join(of, " ")] = true
	}
	return sums
}

// contentOn is a sum of what is read from the volume at its socket on a node.
func contentOn(t *testing.T, node string) string {
	t.Helper()
	socket, err := longhorn.OpenSocket(longhorn.SocketPath(filepath.Join(home, "h", longhornLab, "nodes", node, "disk"), "vol"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	content := sha256.New()
	block := make([]byte, 64<<10)
	for offset := int64(0); offset < 8<<20; offset += int64(len(block)) {
		if _, err := socket.ReadAt(block, offset); err != nil {
			t.Fatal(err)
		}
		content.Write(block)
	}
	return fmt.Sprintf("%x", content.Sum(nil))
}

// longhornReport is what `lab load stop -o json` says.
type longhornReport struct {
	Writes       int      `json:"writes"`
	FailedWrites int      `json:"failed_writes"`
	LostWrites   int      `json:"lost_writes"`
	Errors       []string `json:"errors"`
}

func stopLoad(t *testing.T) longhornReport {
	t.Helper()
	var r longhornReport
	if err := json.Unmarshal([]byte(mustLab(t, "load", "stop", "--name", longhornLab, "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	return r
}
