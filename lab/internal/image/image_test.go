package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRelease(t *testing.T) {
	for name, want := range map[string]int{
		"none": 16, "busybox:1.36": 16, "lab/ceph:16": 16, "lab/ceph:18": 18,
		"lab/ceph:20": 20,
	} {
		if release, err := Release(name); err != nil || release != want {
			t.Errorf("%s: got %d, %v", name, release, err)
		}
	}
	for _, name := range []string{"lab/ceph:19", "lab/ceph", "lab/ceph:20@sha256:0", "example.org/ceph/ceph:v18.2.7"} {
		_, err := Release(name)
		if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "lab/ceph:18") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Check(17); err == nil || !strings.Contains(err.Error(), "allowed are 16, 18, 20") {
		t.Error(err)
	}
}

func TestCache(t *testing.T) {
	t.Setenv("GOCACHE", "/caches/go")
	for set, want := range map[string]string{"": "/caches/lockkeeper-lab/images", "/elsewhere": "/elsewhere"} {
		t.Setenv("LAB_IMAGES", set)
		if dir, err := Cache(); err != nil || dir != want {
			t.Errorf("got %s, %v, want %s", dir, err, want)
		}
	}
}

func TestArchive(t *testing.T) {
	got := firstArchive(`
Contents-deb main bookworm http://mirror/debian/
Packages main nodistro http://somebody/node
Packages main bookworm-security http://mirror/debian-security/
Packages main bookworm-updates http://mirror/debian/
Packages main bookworm http://mirror/debian/
`)
	if got != "http://mirror/debian" {
		t.Errorf("got %q", got)
	}
	if got := firstArchive("Packages main jammy http://mirror/ubuntu/\n"); got != "" {
		t.Errorf("got %q", got)
	}
}

// A release in the cache is used only if nothing of it is missing.
func TestWhole(t *testing.T) {
	dir := t.TempDir()
	u := unpacking{release: 18, root: filepath.Join(dir, "ceph-18"), progress: func(string) {}}
	if err := u.whole(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	root := filepath.Join(dir, "root")
	must(t, makeRoot(root))
	must(t, os.WriteFile(filepath.Join(root, "bin", "ceph-osd"), []byte("program"), 0o755))
	must(t, u.finish(root, manifest{Version: "18.2.7"}))
	must(t, u.whole())
	compiled := filepath.Join(u.root, "usr", "lib", "__pycache__")
	must(t, os.MkdirAll(compiled, 0o755))
	must(t, os.WriteFile(filepath.Join(compiled, "x.pyc"), []byte("code"), 0o644))
	must(t, u.whole()) // what Python compiled is no damage
	program := filepath.Join(u.root, "usr", "bin", "ceph-osd")
	for what, damage := range map[string]func() error{
		"truncated": func() error { return os.Truncate(program, 3) },
		"removed":   func() error { return os.Remove(program) },
	} {
		must(t, damage())
		if err := u.whole(); err == nil || !strings.Contains(err.Error(), "there should be") {
			t.Errorf("%s: %v", what, err)
		}
		must(t, os.WriteFile(program, []byte("program"), 0o755))
		must(t, u.whole())
	}
}

// An archive that cannot be reached leaves nothing behind, neither half a release nor what was fetched.
func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LAB_IMAGES", dir)
	t.Setenv("LAB_DEBIAN", "http://127.0.0.1:9/debian")
	_, err := Root(context.Background(), 18, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "unpack Ceph 18") || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Error(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"ceph-18.lock"}) {
		t.Errorf("left behind: %q", left)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
