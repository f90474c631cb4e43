package runtime

import (
	"bytes"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/lab/internal/rootfs"
)

// TestMain runs the tests in namespaces of their own, as the supervisor does.
func TestMain(m *testing.M) {
	if os.Getenv("LOOK") != "" {
		look()
		return
	}
	if os.Getpid() == 1 {
		if err := Isolated(); err != nil {
			log.Fatal(err)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := StartIsolated(cmd); err != nil {
		log.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		os.Exit(1)
	}
}

func sandboxed(t *testing.T, mounts []rootfs.Mount, script string) string {
	t.Helper()
	s, err := NewSandbox(t.TempDir(), "", "box", mounts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	return strings.TrimSpace(out.String())
}

func TestSandboxShowsVolumesWhereTheMachineHasNothing(t *testing.T) {
	volume := t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "f"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{
		"/etc/lab-test-mount", "/lab-test-mount/deep/er", "/var/run/lab/test",
		"/usr/share/lab-test/x",
	} {
		t.Run(target, func(t *testing.T) {
			mounts := []rootfs.Mount{
				{Source: volume, Target: target},
				{Source: filepath.Join(volume, "f"), Target: target + "-file"},
			}
			script := "cat " + target + "/f " + target + "-file; test -e /etc/passwd && test -d /proc/self && hostname"
			if got := sandboxed(t, mounts, script); got != "hellohellobox" {
				t.Errorf("got %q", got)
			}
			if _, err := os.Lstat(target); err == nil {
				t.Errorf("%s was left on the machine", target)
			}
		})
	}
}

func TestSandboxNestsAndProtects(t *testing.T) {
	outer, inner := t.TempDir(), t.TempDir()
	mounts := []rootfs.Mount{
		{Source: inner, Target: "/lab-outer/inner", ReadOnly: true},
		{Source: outer, Target: "/lab-outer"},
	}
	got := sandboxed(t, mounts, "echo x > /lab-outer/f; (echo y > /lab-outer/inner/f) 2>&1 | grep -c 'Read-only'")
	if got != "1" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(filepath.Join(outer, "f")); err != nil {
		t.Error(err)
	}
}

// TestSandboxStaysInTheSession: a lab is one session, so that its many processes have no more of busy processors than
// what is tried in it. A signal reaches all of a container all the same, and nothing else.
func TestSandboxStaysInTheSession(t *testing.T) {
	s, err := NewSandbox(t.TempDir(), "", "box", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cmd := exec.Command("/bin/sleep", "600")
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { s.Kill(); _ = cmd.Wait() }()
	ours, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err := unix.Getsid(cmd.Process.Pid); err != nil || theirs != ours {
		t.Errorf("session %d, want ours, %d: %v", theirs, ours, err)
	}
	if group, err := unix.Getpgid(cmd.Process.Pid); err != nil || group != cmd.Process.Pid {
		t.Errorf("group %d, want its own, %d: %v", group, cmd.Process.Pid, err)
	}
}

func TestKillFindsProcessesThatLeftTheirSession(t *testing.T) {
	s, err := NewSandbox(t.TempDir(), "", "box", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cmd := exec.Command("sh", "-c", "setsid sleep 600 & setsid sleep 600 & wait")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if len(s.Processes()) == 3 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if n := len(s.Processes()); n != 3 {
		t.Errorf("%d processes, want 3", n)
	}
	s.Kill()
	_ = cmd.Wait()
	if left := s.Processes(); len(left) != 0 {
		t.Errorf("still there: %v", left)
	}
}

// Programs and libraries are the image's, all else is the machine's, and a volume may be mounted in either.
func TestSandboxShowsTheImagesPrograms(t *testing.T) {
	image, volume := t.TempDir(), t.TempDir()
	for _, dir := range []string{"usr/bin", "usr/share/own"} {
		if err := os.MkdirAll(filepath.Join(image, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(image, "bin")); err != nil {
		t.Fatal(err)
	}
	busybox, err := os.ReadFile("/proc/self/exe") // the only program that surely needs no library
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "usr/bin/look"), busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := NewSandbox(t.TempDir(), image, "box",
		[]rootfs.Mount{{Source: volume, Target: "/usr/share/volume"}, {Source: volume, Target: "/etc/lab-test-mount"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out bytes.Buffer
	cmd := exec.Command("look", "look")
	cmd.Env = []string{"PATH=/bin", "LOOK=/usr /usr/bin /usr/share /etc/lab-test-mount /etc/passwd /bin/sh"}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	want := "/usr bin share\n/usr/bin look\n/usr/share own volume\n/etc/lab-test-mount\n/etc/passwd is there\n/bin/sh " +
		"is not there\n/usr/bin cannot be written\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// look tells what a program in a sandbox sees of the paths in $LOOK.
func look() {
	for _, path := range strings.Fields(os.Getenv("LOOK")) {
		entries, err := os.ReadDir(path)
		if err == nil {
			line := path
			for _, e := range entries {
				line += " " + e.Name()
			}
			os.Stdout.WriteString(line + "\n")
			continue
		}
		if _, err := os.Stat(path); err == nil {
			os.Stdout.WriteString(path + " is there\n")
		} else {
			os.Stdout.WriteString(path + " is not there\n")
		}
	}
	if err := os.WriteFile("/usr/bin/new", nil, 0o755); err != nil {
		os.Stdout.WriteString("/usr/bin cannot be written\n")
	}
}

// TestRoomForOneVolumeHidesNoOther: /etc is the machine's, and so is a folder in it that one volume is mounted at. Room
// for another one must not bring the machine's back.
func TestRoomForOneVolumeHidesNoOther(t *testing.T) {
	first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, says := range map[string]string{first: "first", second: "second", third: "third"} {
		if err := os.WriteFile(filepath.Join(dir, "says"), []byte(says+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := sandboxed(t, []rootfs.Mount{
		{Source: first, Target: "/etc/skel"},            // every Debian has it
		{Source: second, Target: "/etc/lab-test-other"}, // nobody has it
		{Source: third, Target: "/var/lib/lab-test/a/b"},
		{Source: second, Target: "/var/lab-test-longer-than-the-one-before"},
	},
		"cat /etc/skel/says /etc/lab-test-other/says /var/lib/lab-test/a/b/says "+
			"/var/lab-test-longer-than-the-one-before/says")
	if got != "first\nsecond\nthird\nsecond" {
		t.Errorf("got %q", got)
	}
}
