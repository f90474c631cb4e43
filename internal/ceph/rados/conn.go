// Package rados is the connection to a real Ceph cluster, by librados through go-ceph. It is the only package with cgo;
// everything that can be known without it is in package ceph.
package rados

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/lockkeeper/lockkeeper/internal/cephcluster"
)

// Timeouts bound every call into librados, which by itself waits for ever.
type Timeouts struct {
	Connect time.Duration // 0: 5 s
	Command time.Duration // 0: 3 s
}

// Dialer implements cephcluster.Dialer. The zero value is ready to use.
type Dialer struct {
	Timeouts Timeouts
}

// ErrClosed is returned for commands on a connection that was closed.
var ErrClosed = errors.New("the connection to Ceph is closed")

// Dial connects. The key goes straight to librados: it is in no file, no log and no error.
func (d Dialer) Dial(ctx context.Context, a cephcluster.Address) (cephcluster.Conn, error) {
	conn, err := rados.NewConnWithUser(strings.TrimPrefix(a.User, "client."))
	if err != nil {
		return nil, fmt.Errorf("create a Ceph client for user %q: %w", a.User, err)
	}
	connect, command := orDefault(d.Timeouts.Connect, 5*time.Second), orDefault(d.Timeouts.Command, 3*time.Second)
	for _, option := range [][2]string{
		{"mon_host", a.MonHost},
		{"key", a.Key},
		{"client_mount_timeout", seconds(connect)},
		{"rados_mon_op_timeout", seconds(command)},
		{"rados_osd_op_timeout", seconds(command)},
		// A client that hunts for a mon tries several at once; without this a lost mon costs the first caller a whole timeout.
		{"mon_client_hunt_parallel", "3"},
		{"log_to_stderr", "false"},
	} {
		if err := conn.SetConfigOption(option[0], option[1]); err != nil {
			conn.Shutdown()
			return nil, fmt.Errorf("set Ceph option %s: %w", option[0], err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- conn.Connect() }()
	select {
	case err := <-done:
		if err != nil {
			conn.Shutdown()
			return nil, err
		}
		return &Conn{conn: conn}, nil
	case <-ctx.Done():
		// librados cannot be interrupted; its own timeout ends the attempt.
		go func() { <-done; conn.Shutdown() }()
		return nil, ctx.Err()
	}
}

// Conn is one connection, kept for as long as the cluster is looked after. It is safe for concurrent use.
type Conn struct {
	mu     sync.RWMutex // held for reading during a command, so that Close waits for those under way
	closed bool
	conn   *rados.Conn
}

type answer struct {
	output []byte
	status string
	err    error
}

// MonCommand implements ceph.Commander. A context that ends first leaves the call to its own timeout.
//
// Commands for the manager go the same way, and the mons pass them on: a command that is sent to the manager directly
// and times out takes the whole process down when the manager comes back.
func (c *Conn) MonCommand(ctx context.Context, command []byte) ([]byte, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	done := make(chan answer, 1)
	go func() {
		c.mu.RLock()
		defer c.mu.RUnlock()
		if c.closed {
			done <- answer{err: ErrClosed}
			return
		}
		var a answer
		a.output, a.status, a.err = c.conn.MonCommand(command)
		done <- a
	}()
	select {
	case a := <-done:
		return a.output, a.status, a.err
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

// Close waits for commands under way and disconnects.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.conn.Shutdown()
	}
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
