package monspec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// realMons are three mons, each on its own address of the loopback network, with Ceph's standard ports.
type realMons struct {
	*testing.T
	dir, fsid, net string
	env            []string
}

// startMons starts a cluster that answers.
func startMons(t *testing.T) realMons {
	for _, program := range []string{"ceph-mon", "ceph", "monmaptool", "ceph-authtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: Ceph is not installed: run make packages", err)
		}
	}
	pid := os.Getpid()
	m := realMons{
		T: t, dir: t.TempDir(), fsid: newFSID(t), net: fmt.Sprintf("127.%d.%d", 80+pid/200%40, 1+pid%200),
	}
	conf := m.path("ceph.conf")
	require.NoError(t, os.WriteFile(conf, []byte(strings.Join([]string{
		"[global]", "fsid = " + m.fsid, "mon_host = " + m.hosts(), "run_dir = " + m.dir, "admin_socket =", "pid_file =",
		"log_file =", "keyring = " + m.path("keyring"), "mon_lease = 2", "mon_election_timeout = 2", "mon_tick_interval = 1",
		"paxos_propose_interval = 0.1", "mon_data_avail_crit = 1", "mon_data_avail_warn = 2", "",
	}, "\n")), 0o600))
	m.env = append(os.Environ(), "CEPH_CONF="+conf, "CEPH_ARGS=")
	m.must("ceph-authtool", m.path("keyring"), "--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
	m.must("ceph-authtool", m.path("keyring"), "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *")
	args := []string{"--create", "--fsid", m.fsid, m.path("monmap")}
	for i, name := range []string{"a", "b", "c"} {
		args = append(args, "--addv", name, m.address(i+1))
	}
	m.must("monmaptool", args...)
	for _, name := range []string{"a", "b", "c"} {
		m.must("ceph-mon", "--mkfs", "-i", name, "--mon-data", m.path(name), "--monmap", m.path("monmap"), "--keyring",
			m.path("keyring"))
		m.run(name, "--mon-data", m.path(name))
	}
	m.inQuorum("a", "b", "c")
	return m
}

func newFSID(t *testing.T) string {
	t.Helper()
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	require.NoError(t, err)
	return strings.TrimSpace(string(id))
}

func (m realMons) path(name string) string { return filepath.Join(m.dir, name) }
func (m realMons) address(host int) string {
	return fmt.Sprintf("[v2:%s.%d:3300,v1:%[1]s.%[2]d:6789]", m.net, host)
}

func (m realMons) hosts() string             { return m.address(1) + "," + m.address(2) + "," + m.address(3) }
func (m realMons) volume(name string) string { return m.path("volume-" + name) }

func (m realMons) must(name string, args ...string) string {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), name, args...)
	cmd.Env = m.env
	output, err := cmd.CombinedOutput()
	require.NoError(m, err, "%s %v: %s", name, args, output)
	return string(output)
}

// run runs a mon until the test ends.
func (m realMons) run(name string, args ...string) {
	m.Helper()
	args = append([]string{"-f", "-i", name}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(m.Context()), "ceph-mon", args...)
	cmd.Env = m.env
	require.NoError(m, cmd.Start())
	m.Cleanup(func() {
		if err := cmd.Process.Kill(); err == nil {
			_ = cmd.Wait() // killed
		}
	})
}

func (m realMons) inQuorum(names ...string) {
	m.Helper()
	require.EventuallyWithT(m, func(c *assert.CollectT) {
		cmd := exec.CommandContext(m.Context(), "ceph", "--connect-timeout", "5", "quorum_status")
		cmd.Env = m.env
		output, err := cmd.Output()
		if assert.NoError(c, err) {
			assert.Contains(c, string(output), `"quorum_names":["`+strings.Join(names, `","`)+`"]`)
		}
	}, time.Minute, 200*time.Millisecond)
}

// script is the init container of a mon.
func (m realMons) script(ctx context.Context, name, volume string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", makeStore)
	cmd.Env = append(m.env, append([]string{
		"MON_ID=" + name, "FSID=" + m.fsid, "VOLUME=" + volume, "KEYRING=" + m.path("keyring"), "MON_HOST=" + m.hosts(),
		"MON_ADDRESS=" + m.address(4),
	}, env...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// As a container: whoever kills it kills all of its processes.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// TestAStoreSurvivesEveryMoment kills the init container at random moments, until it has left stores half made. Then it
// runs to its end, and the mon joins, which no mon does on a store that was half made.
func TestAStoreSurvivesEveryMoment(t *testing.T) {
	m := startMons(t)
	volume := m.volume("d")
	require.NoError(t, os.Mkdir(volume, 0o700))
	begin := time.Now()
	require.NoError(t, m.script(t.Context(), "x", t.TempDir()).Run())
	length := time.Since(begin)
	half := 0
	for try := 0; half < 2; try++ {
		require.Less(t, try, 100, "hardly any store was half made: this proves nothing")
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(length)) // anywhere
		if try%4 > 0 {
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			require.NoError(t, os.RemoveAll(filepath.Join(volume, "store.begun"))) // of the try before
			go killDuringMkfs(filepath.Join(volume, "store.begun", "store.db"), cancel)
		}
		err := m.script(ctx, "d", volume).Run()
		cancel()
		if _, err := os.Stat(filepath.Join(volume, "store.begun", "store.db")); err == nil {
			half++
		}
		if _, none := os.Stat(filepath.Join(volume, "store")); none == nil { // too late: once more, from the beginning
			require.NoError(t, os.RemoveAll(filepath.Join(volume, "store")))
		} else {
			require.Error(t, err)
		}
	}
	output, err := m.script(t.Context(), "d", volume).CombinedOutput()
	require.NoError(t, err, string(output))
	t.Logf("half made: %d; to its end: %s", half, length.Round(time.Millisecond))
	entries, err := os.ReadDir(volume)
	require.NoError(t, err)
	require.Len(t, entries, 1, "%v", entries)
	m.run("d", "--mon-data", filepath.Join(volume, "store"), "--public-addrv", m.address(4))
	m.inQuorum("a", "b", "c", "d")

	output, err = m.script(t.Context(), "d", volume).CombinedOutput()
	require.NoError(t, err, "its own store is kept: %s", output)
	refuses(t, m.script(t.Context(), "d", m.volume("elsewhere"), "MON_ADDRESS=[v2:127.0.0.9:3300]"),
		"the monmap has mon.d already")
	m.refusesForeignStores(volume)
}

// killDuringMkfs waits until mkfs has begun to write the database, and for a few milliseconds of what it takes.
func killDuringMkfs(db string, kill context.CancelFunc) {
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Microsecond) {
		if _, err := os.Stat(db); err == nil {
			break
		}
	}
	time.Sleep(rand.N(5 * time.Millisecond))
	kill()
}

// refuses runs the init container, which has to say why it does nothing.
func refuses(t *testing.T, cmd *exec.Cmd, why string) {
	t.Helper()
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v: %s", err, output)
	require.Equal(t, 64, exit.ExitCode(), string(output))
	require.Contains(t, string(output), why)
}

func (m realMons) refusesForeignStores(volume string) {
	t := m.T
	mark := filepath.Join(volume, "store", "owner.lockkeeper")
	before, err := os.ReadFile(mark)
	require.NoError(t, err)
	refuses(t, m.script(t.Context(), "e", volume), "is the store of lockkeeper mon.d of "+m.fsid)
	refuses(t, m.script(t.Context(), "d", volume, "FSID="+newFSID(t)), "is the store of lockkeeper mon.d of "+m.fsid)
	after, err := os.ReadFile(mark)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))

	foreign := m.volume("foreign")
	require.NoError(t, os.MkdirAll(filepath.Join(foreign, "data"), 0o700))
	m.must("ceph-mon", "--mkfs", "-i", "f", "--mon-data", filepath.Join(foreign, "data"), "--monmap", m.path("monmap"),
		"--keyring", m.path("keyring"))
	refuses(t, m.script(t.Context(), "f", foreign), "is the store of a mon that lockkeeper did not make")
	require.NoError(t, os.Rename(filepath.Join(foreign, "data"), filepath.Join(foreign, "store")))
	refuses(t, m.script(t.Context(), "f", foreign), "is the store of a mon that lockkeeper did not make")
	require.FileExists(t, filepath.Join(foreign, "store", "kv_backend"))

	empty := m.volume("empty")
	refuses(t, m.script(t.Context(), "g", empty, "FSID="+newFSID(t)), "are of another cluster than")
	require.NoDirExists(t, filepath.Join(empty, "store"))
}
