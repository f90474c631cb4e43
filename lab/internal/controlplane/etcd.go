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
func startEtcd(ctx context.Context, inst instance.Instance, progress func(string)) (*embed.Etcd, error) {
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
	if err := awaitEtcd(ctx, e, progress); err != nil {
		e.Close()
		return nil, fmt.Errorf("etcd: %w (see %s)", err, inst.Log("etcd"))
	}
	return e, nil
}

func awaitEtcd(ctx context.Context, e *embed.Etcd, progress func(string)) error {
	still := instance.Awaiting("etcd", progress)
	again := time.NewTicker(instance.SayEvery)
	defer again.Stop()
	end := time.After(instance.StartPatience)
	for {
		select {
		case <-e.Server.ReadyNotify():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case err := <-e.Err():
			return err
		case <-end:
			return fmt.Errorf("not ready after %s", instance.StartPatience)
		case <-again.C:
			still(nil)
		}
	}
}

func etcdSocket(inst instance.Instance) string { return inst.Path("etcd.sock") }

func unixURL(path string) url.URL { return url.URL{Scheme: "unix", Path: path} }
