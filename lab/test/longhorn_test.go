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

	"golang.org/x/sys/unix"

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
	awaitTurn(t, 6)
	t.Parallel()
	upAlone(t)
	t.Cleanup(func() { mustLab(t, "down", "--name", longhornLab) })

	// No second one on this machine, where it would find the first one's webhook.
	if out, err := lab("up", "--name", "lh2", "--ceph=none", "--temporal=false", "--longhorn"); err == nil ||
		!strings.Contains(out, "only one lab of a machine") {
		t.Errorf("a second lab with Longhorn: %v\n%s", err, out)
	}
	out, err := lab("volume", "create", "v", "--name", longhornLab)
	if err == nil || !strings.Contains(out, `volume "v"`) {
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
	before := contentOn(t, "node-a")
	if sums := replicaSums(t); len(sums) != 1 || !sums[before] {
		t.Errorf("the replicas differ, or from what is read: %v, %s", sums, before)
	}

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

// upAlone starts the lab. Tests of another module may have one with Longhorn on this machine, whose end it awaits.
func upAlone(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(2 * time.Second) {
		out, err := lab("up", "--name", longhornLab, "--ceph=none", "--temporal=false", "--nodes-per-zone=1", "--longhorn")
		if err == nil {
			return
		}
		if !strings.Contains(out, "only one lab of a machine") || time.Now().After(deadline) {
			t.Fatalf("lab up: %v\n%s", err, out)
		}
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

// replicaSums are the different contents that the volume's replicas have on the disks of their nodes. Which file of a
// replica has a block differs: after a rebuild Longhorn merges the snapshots of each in its own time.
func replicaSums(t *testing.T) map[string]bool {
	t.Helper()
	folders, _ := filepath.Glob(filepath.Join(home, "h", longhornLab, "nodes/*/disk/var/lib/longhorn/replicas/vol-*"))
	if len(folders) != 3 {
		t.Fatalf("replicas: %v", folders)
	}
	sums := map[string]bool{}
	for _, folder := range folders {
		sums[fmt.Sprintf("%x", sha256.Sum256(replicaContent(t, folder)))] = true
	}
	return sums
}

// replicaContent is what a replica has: its files from the oldest snapshot to the head, each with the blocks that were
// written while it was the head, one on top of the other.
func replicaContent(t *testing.T, folder string) []byte {
	t.Helper()
	named := func(file, field string) string {
		b, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		var meta map[string]any
		if err := json.Unmarshal(b, &meta); err != nil {
			t.Fatalf("%s/%s: %v", folder, file, err)
		}
		name, _ := meta[field].(string)
		return name
	}
	var chain []string
	for file := named("volume.meta", "Head"); file != ""; file = named(file+".meta", "Parent") {
		chain = append(chain, file)
	}
	content := make([]byte, 8<<20)
	for _, file := range slices.Backward(chain) {
		overlay(t, content, filepath.Join(folder, file))
	}
	return content
}

// overlay puts the parts of a sparse file that were written over what is there.
func overlay(t *testing.T, content []byte, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing more was written
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(content[from:at], from); err != nil {
			t.Fatal(err)
		}
	}
}

// contentOn is a sum of what is read from the volume at its socket on a node.
func contentOn(t *testing.T, node string) string {
	t.Helper()
	disk := filepath.Join(home, "h", longhornLab, "nodes", node, "disk")
	socket, err := longhorn.OpenSocket(longhorn.SocketPath(disk, "vol"))
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
