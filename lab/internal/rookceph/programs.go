package rookceph

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/lockkeeper/lockkeeper/lab/internal/image"
	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

// usePrograms finds Ceph's programs: the machine's, or those of the cluster's release, unpacked if need be. After it,
// start can be called; forget lets go of them.
func (c *cluster) usePrograms(ctx context.Context, progress func(string)) (forget func(), err error) {
	release := c.topo.Release()
	if release == image.Machine {
		return func() {}, requirePrograms()
	}
	root, err := image.Root(ctx, release, progress)
	if err != nil {
		return nil, err
	}
	staging := c.inst.Path("ceph-programs")
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return nil, err
	}
	c.sandbox, err = runtime.NewSandbox(staging, root, "lab", nil)
	if err != nil {
		return nil, fmt.Errorf("the programs of Ceph %d: %w", release, err)
	}
	return c.sandbox.Close, nil
}

// program is the path of one of Ceph's programs, for those who run where it is: pods of the release's image, too.
func (c cluster) program(name string) string {
	if c.topo.Release() == image.Machine {
		return findProgram(name)
	}
	return "/usr/bin/" + name
}

// command is a command of one of Ceph's programs; start starts it.
func (c cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.program(name), args...)
}

func (c cluster) start(cmd *exec.Cmd) error {
	if c.sandbox == nil {
		return cmd.Start()
	}
	return c.sandbox.Start(cmd)
}

// finish starts a command and waits for its end.
func (c cluster) finish(cmd *exec.Cmd) error {
	if err := c.start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// run runs a program to its end and reports the end of what it said if it failed.
func (c cluster) run(ctx context.Context, program string, args ...string) error {
	cmd := c.command(ctx, program, args...)
	cmd.Env = cephEnv("/dev/null")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := c.finish(cmd); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, tail([]byte(said.String()), 2000))
	}
	return nil
}
