package child

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRestartsWhatEndsUntilStopped(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	p, err := Start(Spec{Name: "x", Path: "/bin/sh", Args: []string{"-c", "echo x >> " + count + "; test $(wc -l < " +
		count + ") -gt 1 && exec sleep 600; exit 3"}, Log: filepath.Join(dir, "log")})
	if err != nil {
		t.Fatal(err)
	}
	// It counts as started when it says so itself: a process exists for a while before its first command ran.
	started := func() string { b, _ := os.ReadFile(count); return string(b) }
	for deadline := time.Now().Add(10 * time.Second); started() != "x\nx\n" ||
		p.State().PID == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("started %d times: %+v", len(started())/2, p.State())
		}
	}
	if s := p.State(); s.LastExit != "exit status 3" {
		t.Errorf("got %+v", s)
	}
	p.Stop()
	if started() != "x\nx\n" {
		t.Errorf("started %d times", len(started())/2)
	}
}

func TestCrashIsAnEndLikeAnyOther(t *testing.T) {
	p, err := Start(Spec{Name: "x", Path: "/bin/sleep", Args: []string{"600"}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	first := p.State().PID
	const away = restartDelay + 200*time.Millisecond
	began := time.Now()
	if err := p.Crash(away); err != nil {
		t.Fatal(err)
	}
	for deadline := began.Add(10 * time.Second); p.State().PID == first ||
		p.State().PID == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not started again: %+v", p.State())
		}
	}
	if took := time.Since(began); took < away {
		t.Errorf("it was away for %s only", took)
	}
	if s := p.State(); s.Restarts != 1 || s.LastExit != "signal: killed" {
		t.Errorf("got %+v", s)
	}
}

// TestStaysInTheSession: a lab is one session, and each of its programs a group of its own.
func TestStaysInTheSession(t *testing.T) {
	p, err := Start(Spec{Name: "x", Path: "/bin/sleep", Args: []string{"600"}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	pid := p.State().PID
	ours, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err := unix.Getsid(pid); err != nil || theirs != ours {
		t.Errorf("session %d, want ours, %d: %v", theirs, ours, err)
	}
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		t.Errorf("group %d, want its own, %d: %v", group, pid, err)
	}
}

// TestHang: a program that hangs is the same one afterwards, and one that is killed meanwhile is no error.
func TestHang(t *testing.T) {
	p, err := Start(Spec{Name: "x", Path: "/bin/sleep", Args: []string{"600"}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	state := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.State().PID))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(text))[2]
	}
	done := make(chan error)
	go func() { done <- p.Hang(300 * time.Millisecond) }()
	for deadline := time.Now().Add(10 * time.Second); state() != "T"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not hang: %s", state())
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); state() == "T"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it hangs still")
		}
	}
	if s := p.State(); s.Restarts != 0 {
		t.Errorf("got %+v", s)
	}
	p.Stop()
	if err := p.Hang(0); err == nil {
		t.Error("one that has ended cannot hang")
	}
}

func TestStopWhileWaitingForARestart(t *testing.T) {
	p, err := Start(Spec{Name: "x", Path: "/bin/false", Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	for p.State().Restarts == 0 {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	p.Stop()
	if took := time.Since(began); took > restartDelay/2 {
		t.Errorf("took %s", took)
	}
}

func TestStopKillsTheStubborn(t *testing.T) {
	p, err := Start(Spec{
		Name: "x", Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; while :; do sleep 0.01; done"},
		Log: filepath.Join(t.TempDir(), "log"), Grace: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
}

func TestMissingProgram(t *testing.T) {
	if _, err := Start(Spec{Name: "x", Path: "/no/such/program", Log: filepath.Join(t.TempDir(), "log")}); err == nil {
		t.Error("started")
	}
}
