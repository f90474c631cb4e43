package instance

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Process names a process for good: a PID alone may name another one later.
type Process struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // in clock ticks since boot
	Boot    string `json:"boot"`
}

// RecordSupervisor writes down who runs the instance.
func (i Instance) RecordSupervisor(pid int) error {
	started, _, err := processStat(pid)
	if err != nil {
		return err
	}
	return writeJSON(i.Path("supervisor.json"), Process{PID: pid, Started: started, Boot: bootID()})
}

// Supervisor is the process that runs the instance, if it lives.
func (i Instance) Supervisor() (Process, bool) {
	var p Process
	b, err := os.ReadFile(i.Path("supervisor.json"))
	if err != nil || json.Unmarshal(b, &p) != nil {
		return p, false
	}
	return p, p.alive()
}

func (p Process) alive() bool {
	started, state, err := processStat(p.PID)
	return err == nil && started == p.Started && state != "Z" && bootID() == p.Boot
}

// Kill ends the process and waits until it, and with it all of its PID namespace, is gone.
func (p Process) Kill(timeout time.Duration) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		return err
	}
	if !p.AwaitEnd(timeout) {
		return fmt.Errorf("process %d does not die", p.PID)
	}
	return nil
}

// AwaitEnd waits until the process is gone, and tells whether that came true in time.
func (p Process) AwaitEnd(timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !p.alive() {
			return true
		}
	}
	return !p.alive()
}

// processStat reads a process's start time and state.
func processStat(pid int) (started, state string, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The name, in parentheses, may hold anything. After it come state (3rd field) and start time (22nd).
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 {
		return "", "", fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	return fields[19], fields[0], nil
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
