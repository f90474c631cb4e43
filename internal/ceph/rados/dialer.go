package rados

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
)

// Dialer connects to clusters by their address. Its zero value has the default timeouts.
type Dialer struct {
	ConnectTimeout time.Duration
	CommandTimeout time.Duration
}

var _ cephcluster.Dialer = Dialer{}

// Dial implements cephcluster.Dialer.
func (d Dialer) Dial(ctx context.Context, a cephcluster.Address) (cephcluster.Conn, error) {
	user, err := ceph.ParseUser("user", a.User)
	if err != nil {
		return nil, err
	}
	conn, err := Connect(ctx, Config{
		MonHost: a.MonHost, User: user, Key: Key(a.Key), ConnectTimeout: d.ConnectTimeout, CommandTimeout: d.CommandTimeout,
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
}
