package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ceph/go-ceph/rados"

	"github.com/lockkeeper/lockkeeper/lab/internal/load"
)

// pool is a load.Store on RADOS. librados waits for a placement group that is inactive without end, which is what the
// load wants: such a wait is a stall.
type pool struct {
	io         *rados.IOContext
	objectSize int
}

// openPool connects, or fails within ten seconds.
func openPool(conf, user, name string, objectSize int) (pool, error) {
	if _, err := os.Stat(conf); errors.Is(err, fs.ErrNotExist) {
		return pool{}, fmt.Errorf("--conf %s: no such file", conf)
	}
	conn, err := rados.NewConnWithClusterAndUser("ceph", user)
	if err != nil {
		return pool{}, fmt.Errorf("--user %s: %w", user, err)
	}
	if err := conn.ReadConfigFile(conf); err != nil {
		return pool{}, fmt.Errorf("--conf %s: %w", conf, err)
	}
	if err := conn.SetConfigOption("client_mount_timeout", "10"); err != nil {
		return pool{}, err
	}
	if err := conn.Connect(); err != nil {
		return pool{}, fmt.Errorf("connect to Ceph as %s with %s: %w", user, conf, err)
	}
	io, err := conn.OpenIOContext(name)
	if err != nil {
		return pool{}, fmt.Errorf("--pool %s: %w", name, err)
	}
	return pool{io, objectSize}, nil
}

func (p pool) Write(object string, data []byte) error { return p.io.WriteFull(object, data) }

func (p pool) Read(object string) ([]byte, error) {
	b := make([]byte, p.objectSize)
	n, err := p.io.Read(object, b, 0)
	if errors.Is(err, rados.ErrNotFound) {
		return nil, load.ErrNotFound
	}
	return b[:max(n, 0)], err
}
