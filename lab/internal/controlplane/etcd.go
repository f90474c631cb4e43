package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// startEtcd runs etcd in this process. It listens on unix sockets in the lab's folder: over TCP, anybody on the machine
// could write the objects that make us start processes.
func startEtcd(ctx context.Context, inst instance.Instance) (*embed.Etcd, error) {
	cfg := embed.NewConfig()
	cfg.Dir = inst.Path("etcd")
	cfg.LogLevel, cfg.LogOutputs = "warn", []string{inst.Log("etcd")}
	cfg.UnsafeNoFsync = true // the page cache survives the death of any process, and no lab outlives its machine
	cfg.QuotaBackendBytes = 8 << 30
	cfg.ListenClientUrls = []url.URL{unixURL(etcdSocket(inst))}
	cfg.ListenPeerUrls = []url.URL{unixURL(inst.Path("etcd-peer.sock"))}
	// Nobody dials these: the only client knows the socket, and there are no peers.
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: instance.Loopback(inst.Ports.EtcdClient())}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: instance.Loopback(inst.Ports.EtcdPeer())}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// A lab has one member: nobody else could win the election, so do not wait for them.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w (see %s)", err, inst.Log("etcd"))
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-e.Err():
	case <-time.After(instance.StartPatience):
		err = fmt.Errorf("not ready after %s", instance.StartPatience)
	}
	e.Close()
	return nil, fmt.Errorf("etcd: %w (see %s)", err, inst.Log("etcd"))
}

func etcdSocket(inst instance.Instance) string { return inst.Path("etcd.sock") }

func unixURL(path string) url.URL { return url.URL{Scheme: "unix", Path: path} }
