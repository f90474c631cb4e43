package rados

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ceph/go-ceph/rados"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// ErrClosed is returned for a command on a connection that was closed.
var ErrClosed = errors.New("the connection to Ceph is closed")

// commandsAtOnce bounds the commands under way: each holds an operating system thread, and without a quorum they pile
// up.
const commandsAtOnce = 32

// Conn is a connection to a cluster's monitors. librados finds them again when they move or fail, so it can be kept for
// as long as the cluster's addresses and the user's key stay the same. It is safe for concurrent use, and a
// ceph.Commander.
type Conn struct {
	conn  *rados.Conn
	slots chan struct{}
	// osdSlots are for commands to OSDs: one that hangs must not keep anybody from asking the monitors.
	osdSlots chan struct{}

	mu       sync.Mutex // guards what follows
	closed   bool
	underWay sync.WaitGroup
}

var (
	_ ceph.Commander        = (*Conn)(nil)
	_ ceph.OSDCommander     = (*Conn)(nil)
	_ ceph.MonitorCommander = (*Conn)(nil)
)

// Connect connects, which takes some 15 ms, or fails within the Config's ConnectTimeout. When ctx ends first, the
// attempt goes on aside until then, and its connection is closed. Errors are *ceph.CommandError for what Ceph said.
func Connect(ctx context.Context, config Config) (*Conn, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("connect to Ceph: %w", err)
	}
	if why := config.readable(Version()); why != "" {
		return nil, &storage.UnreachableError{Cause: storage.CauseLibrary, Err: fmt.Errorf("connect to Ceph: %s", why)}
	}
	conn, err := rados.NewConnWithUser(config.User)
	if err != nil {
		return nil, connectError(config, err)
	}
	for _, option := range config.options() {
		if err := conn.SetConfigOption(option[0], option[1]); err != nil {
			return nil, fmt.Errorf("connect to Ceph: set librados option %s: %w", option[0], err)
		}
	}
	connected := make(chan error, 1)
	go func() { connected <- conn.Connect() }()
	select {
	case err := <-connected:
		if err != nil {
			return nil, connectError(config, err)
		}
		return &Conn{conn: conn, slots: make(chan struct{}, commandsAtOnce), osdSlots: make(chan struct{}, commandsAtOnce)},
			nil
	case <-ctx.Done():
		go func() {
			if <-connected == nil {
				conn.Shutdown()
			}
		}()
		return nil, fmt.Errorf("connect to Ceph: %w", ctx.Err())
	}
}

// connectError says in words what a failure to connect usually means.
func connectError(config Config, err error) error {
	failed := &ceph.CommandError{Command: "connect", Err: err}
	var coded interface{ ErrorCode() int }
	if errors.As(err, &coded) {
		failed.Code = coded.ErrorCode()
	}
	switch {
	case ceph.IsTimeout(failed):
		failed.Text = "no monitor answers at " + config.MonHost
	case ceph.IsDenied(failed):
		failed.Text = "the monitors refuse client." + config.User + ": its key is wrong"
	case ceph.IsUnknown(failed):
		failed.Text = "the monitors do not know client." + config.User
	}
	return failed
}

// MonCommand implements ceph.Commander. A command whose ctx ends is left to itself; it ends within the CommandTimeout.
func (c *Conn) MonCommand(ctx context.Context, command []byte) ([]byte, string, error) {
	return c.do(ctx, c.slots, func() ([]byte, string, error) { return c.conn.MonCommand(command) })
}

// MonitorCommand implements ceph.MonitorCommander. A monitor that hangs gives no answer within the CommandTimeout.
func (c *Conn) MonitorCommand(ctx context.Context, monitor string, command []byte) ([]byte, string, error) {
	return c.do(ctx, c.slots, func() ([]byte, string, error) {
		return c.conn.MonCommandTarget(monitor, [][]byte{command})
	})
}

// OSDCommand implements ceph.OSDCommander. An OSD that hangs gives no answer within the CommandTimeout.
func (c *Conn) OSDCommand(ctx context.Context, osd int, command []byte) ([]byte, string, error) {
	return c.do(ctx, c.osdSlots, func() ([]byte, string, error) { return c.conn.OsdCommand(osd, [][]byte{command}) })
}

func (c *Conn) do(
	ctx context.Context, slots chan struct{}, send func() ([]byte, string, error),
) ([]byte, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	if !c.enter() {
		<-slots
		return nil, "", ErrClosed
	}
	answered := make(chan answer, 1)
	go func() {
		output, status, err := send()
		c.underWay.Done()
		<-slots
		answered <- answer{output, status, err}
	}()
	select {
	case a := <-answered:
		return a.output, strings.TrimSpace(a.status), a.err
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

type answer struct {
	output []byte
	status string
	err    error
}

// enter notes a command, unless the connection was closed.
func (c *Conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.underWay.Add(1)
	return true
}

// Close lets nobody in any more, and disconnects once the commands under way have ended. It does not wait for that, and
// may be called more than once.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	go func() {
		c.underWay.Wait() // disconnecting under a command would crash
		c.conn.Shutdown()
	}()
}
