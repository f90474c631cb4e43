package rookceph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/image"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// bootstrap runs the monitors for a moment, outside of Kubernetes, and registers what Rook's operator would: OSDs,
// their place in the CRUSH map, the pool. Doing it here instead of after Deploy hides it behind the start of the
// control plane.
func (c cluster) bootstrap(ctx context.Context, id identity, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, instance.StartPatience)
	wait, err := c.startBootstrapMons(ctx)
	defer func() { // also when only some have started: the pods need their ports and folders
		cancel()
		wait()
	}()
	if err != nil {
		return err
	}
	still := instance.Awaiting("Ceph's first quorum", progress)
	if err := c.awaitQuorum(ctx, c.topo.Mons, func(have int) {
		still(fmt.Errorf("%d of %d mons", have, c.topo.Mons))
	}); err != nil {
		return fmt.Errorf("first quorum: %w (logs: %s)", err, c.path("log"))
	}
	// Right after the first election the keys may not be committed yet, and every command is refused. All commands can be
	// repeated, and with its input from a file the ceph command's exit status tells nothing: look at the result.
	for {
		out, err := c.setUp(ctx, id)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("set up Ceph: %w: %s", err, tail(out, 2000))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startBootstrapMons starts the monitors with a short election timeout, which the first election always waits for
// because they have not met before, and without the pause that gathers changes into one proposal: every command is one.
// They end with ctx; the returned function waits for that.
func (c cluster) startBootstrapMons(ctx context.Context) (wait func(), err error) {
	var started []*exec.Cmd
	wait = func() {
		for _, cmd := range started {
			_ = cmd.Wait()
		}
	}
	for _, m := range c.mons() {
		log, err := os.Create(c.path("log", "bootstrap-mon-"+m.id+".log"))
		if err != nil {
			return wait, err
		}
		defer log.Close()
		cmd := c.command(ctx, "ceph-mon", "--conf", AdminConfig(c.inst), "--foreground", "--id", m.id,
			"--keyring", c.path("keys", "mon"), "--mon-election-timeout", "0.3",
			"--paxos-propose-interval", "0.005", "--paxos-min-wait", "0.005")
		cmd.Env = cephEnv("/dev/null")
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 5 * time.Second
		if err := c.start(cmd); err != nil {
			return wait, err
		}
		started = append(started, cmd)
	}
	return wait, nil
}

// awaitQuorum waits until the first monitor has that many in its quorum.
func (c cluster) awaitQuorum(ctx context.Context, want int, progress func(have int)) error {
	for {
		quorum, err := c.quorum(ctx, c.mons()[0].id)
		if progress(len(quorum)); err == nil && len(quorum) >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d mons in quorum: %w", len(quorum), want, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// setUp sends all commands to one ceph process and checks what came of them.
func (c cluster) setUp(ctx context.Context, id identity) (output []byte, err error) {
	cmd := c.command(ctx, "ceph", "--connect-timeout", "10", "--mon-client-hunt-interval", "0.3",
		"--format", "json")
	cmd.Env = cephEnv(AdminConfig(c.inst))
	cmd.Stdin = strings.NewReader(strings.Join(c.setUpCommands(id), "\n") + "\n")
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := c.finish(cmd); err != nil {
		return all.Bytes(), err
	}
	return all.Bytes(), c.checkSetUp(all.String())
}

// setUpCommands ends with the question that checkSetUp reads the answer of.
func (c cluster) setUpCommands(id identity) []string {
	var commands []string
	for i, osdUUID := range id.OSDs {
		commands = append(commands, fmt.Sprintf("osd new %s %d", osdUUID, i))
	}
	for _, osd := range c.topo.OSDs() {
		commands = append(commands, fmt.Sprintf("osd crush add %s 1 root=default zone=%s host=%s", osdName(osd.ID),
			osd.Zone, c.topo.CrushHost(osd)))
	}
	commands = append(commands, fmt.Sprintf("osd crush rule create-replicated %s default zone", Pool))
	if c.topo.Release() != image.Machine {
		// The manager makes a pool for itself as soon as it may. By Ceph's default its copies are on three hosts, which may
		// be of one zone, and then no zone may go. Not in ceph.conf: a monitor does not start with a rule that is not there.
		commands = append(commands, "config set global osd_pool_default_crush_rule 1")
	}
	// The lab needs none of the manager's modules, and some of them do not get on with it.
	switch c.topo.Release() {
	case 18:
		// Debian's manager loads Python's cryptography for one module, and then for no other ("PyO3 modules do not yet
		// support subinterpreters").
		commands = append(commands, "health mute MGR_MODULE_DEPENDENCY --sticky")
	case 20:
		// Devicehealth wants to write before the pool that the manager makes for it is active, and does not try again.
		commands = append(commands, "health mute MGR_MODULE_ERROR --sticky")
	}
	return append(commands,
		"config set mgr mgr/devicehealth/enable_monitoring false --force", // else it makes a pool of its own
		"config set mgr mgr/balancer/active false --force",                // data moves only when a test makes it move
		"config set mgr mgr/progress/enabled false --force",
		fmt.Sprintf("osd pool create %s %d %d replicated %s", Pool, c.placementGroups(), c.placementGroups(), Pool),
		fmt.Sprintf("osd pool application enable %s rados", Pool),
		"osd dump",
	)
}

// checkSetUp looks for all OSDs and the pool in the last line that is JSON.
func (c cluster) checkSetUp(output string) error {
	var dump struct {
		OSDs  []struct{} `json:"osds"`
		Pools []struct {
			Name         string              `json:"pool_name"`
			Applications map[string]struct{} `json:"application_metadata"`
		} `json:"pools"`
	}
	answer := "{}"
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "{") {
			answer = line
		}
	}
	if err := json.Unmarshal([]byte(answer), &dump); err != nil {
		return err
	}
	if len(dump.OSDs) != len(c.topo.OSDs()) {
		return fmt.Errorf("%d of %d OSDs registered", len(dump.OSDs), len(c.topo.OSDs()))
	}
	for _, pool := range dump.Pools {
		if _, ok := pool.Applications["rados"]; ok && pool.Name == Pool {
			return nil
		}
	}
	return fmt.Errorf("no pool %q", Pool)
}
