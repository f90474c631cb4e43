package runtime

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWriteFilesReplacesContents(t *testing.T) {
	dir := t.TempDir()
	if err := writeFiles(dir, map[string]file{"a": {[]byte("1"), 0o600}, "sub/b": {[]byte("2"), 0o644}}); err != nil {
		t.Fatal(err)
	}
	if err := writeFiles(dir, map[string]file{"a": {[]byte("new"), 0o600}}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "new" {
		t.Errorf("a: %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub", "b")); err == nil {
		t.Error("sub/b is still there")
	}
	if err := writeFiles(dir, map[string]file{"../out": {nil, 0o600}}); err == nil {
		t.Error("wrote outside of the volume")
	}
}

func TestHostPathsOfTwoNodesDiffer(t *testing.T) {
	root := t.TempDir()
	a, b := Volumes{Disk: filepath.Join(root, "a"), Lab: root}, Volumes{Disk: filepath.Join(root, "b"), Lab: root}
	kind := corev1.HostPathDirectoryOrCreate
	onA, err := a.hostPath(&corev1.HostPathVolumeSource{Path: "/no/such/folder", Type: &kind})
	if err != nil || onA != filepath.Join(root, "a/no/such/folder") {
		t.Errorf("on a: %s, %v", onA, err)
	}
	must := corev1.HostPathDirectory
	if path, err := b.hostPath(&corev1.HostPathVolumeSource{Path: "/no/such/folder", Type: &must}); err == nil {
		t.Errorf("on b: %s", path)
	}
	if path, err := a.hostPath(&corev1.HostPathVolumeSource{Path: "/no/such/folder", Type: &must}); err != nil ||
		path != onA {
		t.Errorf("on a again: %s, %v", path, err)
	}
	if path, err := a.hostPath(&corev1.HostPathVolumeSource{Path: "/etc", Type: &must}); err != nil || path != "/etc" {
		t.Errorf("what the machine has: %s, %v", path, err)
	}
	shared := filepath.Join(root, "ceph/mon-a")
	if path, err := a.hostPath(&corev1.HostPathVolumeSource{Path: shared, Type: &kind}); err != nil || path != shared {
		t.Errorf("in the lab's own folder: %s, %v", path, err)
	}
}
