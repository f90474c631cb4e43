package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/clusterapi"
	"github.com/lockkeeper/lockkeeper/lab/internal/controlplane"
	"github.com/lockkeeper/lockkeeper/lab/internal/image"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/kubelet"
	"github.com/lockkeeper/lockkeeper/lab/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/lab/internal/rookceph"
	"github.com/lockkeeper/lockkeeper/lab/internal/serviceproxy"
	"github.com/lockkeeper/lockkeeper/lab/internal/temporal"
)

// lab is everything that runs.
type lab struct {
	instance.Config
	binary string
	stop   chan bool // asks the supervisor to end, and tells whether to keep the data

	mu           sync.Mutex
	controlPlane *controlplane.ControlPlane
	kubelet      *kubelet.Kubelet
	temporal     *child.Process
	clusterAPI   *clusterapi.ClusterAPI
	autoscaler   *child.Process
	karpenter    *child.Process
	load         *child.Process
	longhorn     io.Closer // the right to run it
	server       *http.Server
	ready        bool
	cancel       context.CancelFunc // of all that lives as long as the lab

	scaling sync.Mutex // held while an autoscaler is started or stopped, and taken before mu
}

// up starts everything, side by side as far as it does not need each other, and returns when all of it is healthy.
func (l *lab) up(ctx context.Context, progress func(string)) error {
	life, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	if l.Topology.Longhorn {
		var err error
		if l.longhorn, err = longhorn.Claim(); err != nil {
			return err
		}
	}
	// For PATH, and for envtest.
	for name, program := range map[string]string{
		"kubectl": l.beside("lab-kubectl"), "etcd": l.binary, "kube-apiserver": l.binary,
	} {
		if err := l.link(name, program); err != nil {
			return err
		}
	}
	if err := l.useImage(ctx, progress); err != nil {
		return err
	}
	if err := l.serveControl(life); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if l.Temporal {
		g.Go(func() error { return l.startTemporal(ctx, progress) })
	}
	prepared := make(chan struct{})
	if l.Ceph {
		g.Go(func() error {
			if err := rookceph.Prepare(ctx, l.Instance, l.Topology, progress); err != nil {
				return fmt.Errorf("ceph: %w", err)
			}
			progress("Ceph's stores are made")
			close(prepared)
			return nil
		})
	}
	g.Go(func() error {
		client, err := l.startKubernetes(ctx, life, progress)
		if err != nil {
			return err
		}
		if l.Topology.Machines > 0 {
			g.Go(func() error { return l.startClusterAPI(ctx, life, progress) })
		}
		if l.Topology.Longhorn {
			g.Go(func() error { return l.startLonghorn(ctx, progress) })
		}
		if !l.Ceph {
			return nil
		}
		select {
		case <-prepared:
		case <-ctx.Done():
			return ctx.Err()
		}
		mons, err := rookceph.Deploy(ctx, client, l.Instance, l.Topology)
		if err == nil {
			err = rookceph.Follow(life, client, l.Instance, l.Topology)
		}
		if err != nil {
			return fmt.Errorf("ceph: %w", err)
		}
		progress("Ceph's daemons are deployed")
		return rookceph.WaitHealthy(ctx, l.Instance, l.Topology, mons, progress)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	l.mu.Lock()
	l.ready = true
	l.mu.Unlock()
	return nil
}

// useImage has whoever talks to Ceph do so with the programs and libraries of its release.
func (l *lab) useImage(ctx context.Context, progress func(string)) error {
	if !l.Ceph || l.Topology.Release() == image.Machine {
		return nil
	}
	root, err := image.Root(ctx, l.Topology.Release(), progress)
	if err != nil {
		return err
	}
	if err := os.Symlink(root, l.ImageLink()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, program := range []string{"ceph", "rados"} { // the machine's cannot read the keys of a new cluster of 20
		if err := l.wrap(program); err != nil {
			return err
		}
	}
	return nil
}

// beside is another of the programs that are built with the lab, which are in one folder.
func (l *lab) beside(program string) string { return filepath.Join(filepath.Dir(l.binary), program) }

// podEnv is a variable that every container has: one sees the programs of its own image already.
const podEnv = "LAB_POD"

// wrap makes one of the image's programs a program of the lab. Without its folder, it would find itself.
func (l *lab) wrap(name string) error {
	script := fmt.Sprintf("#!/bin/sh\nif [ -n \"${"+podEnv+"-}\" ]; then exec /usr/bin/"+name+" \"$@\"; fi\n"+
		"LAB_HOME='%s' exec '%s' --name '%s' /usr/bin/%s \"$@\"\n",
		filepath.Dir(l.Dir), l.beside(inImageProgram), l.Name, name)
	return os.WriteFile(l.Path("bin", name), []byte(script), 0o700)
}

func (l *lab) link(name, target string) error {
	if err := os.MkdirAll(l.Path("bin"), 0o700); err != nil {
		return err
	}
	link := l.Path("bin", name)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

func (l *lab) startTemporal(ctx context.Context, progress func(string)) error {
	// Everything is where `go build` and the repository put it, unless LAB_TEMPORAL says otherwise.
	bin := filepath.Dir(l.binary)
	binary, err := temporal.EnsureBinary(ctx, filepath.Join(filepath.Dir(bin), "temporal"), filepath.Join(bin, "temporal"),
		progress)
	if err != nil {
		return err
	}
	if err := l.link("temporal", binary); err != nil {
		return err
	}
	process, err := child.Start(temporal.Child(l.Instance, binary))
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.temporal = process
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, instance.StartPatience)
	defer cancel()
	if err := temporal.WaitReady(ctx, l.Instance, progress); err != nil {
		return err
	}
	progress("Temporal is ready, its UI at " + temporal.UI(l.Instance))
	return nil
}

func (l *lab) startKubernetes(ctx, life context.Context, progress func(string)) (kubernetes.Interface, error) {
	controlPlane, err := controlplane.Start(ctx, l.Config, l.binary, progress)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.controlPlane = controlPlane
	l.mu.Unlock()
	client, err := controlplane.Client(l.Instance)
	if err != nil {
		return nil, err
	}
	if err := serviceproxy.Start(life, client); err != nil {
		return nil, fmt.Errorf("service network: %w", err)
	}
	if err := l.startNodes(ctx, life, client); err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	progress(fmt.Sprintf("%d nodes are Ready", len(l.kubelet.Nodes())))
	return client, nil
}

func (l *lab) startClusterAPI(ctx, life context.Context, progress func(string)) error {
	config, err := controlplane.RestConfig(l.Instance)
	if err != nil {
		return err
	}
	c, err := clusterapi.Start(ctx, life, clusterapi.Config{
		Instance: l.Instance, Topology: l.Topology, Bin: filepath.Dir(l.binary), Nodes: l.kubelet, Rest: config,
	}, progress)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.clusterAPI = c
	l.mu.Unlock()
	return nil
}

func (l *lab) startLonghorn(ctx context.Context, progress func(string)) error {
	config, err := controlplane.RestConfig(l.Instance)
	if err != nil {
		return err
	}
	return longhorn.Start(ctx, config, filepath.Dir(l.binary), len(l.kubelet.Nodes()), progress)
}

func (l *lab) startNodes(ctx, life context.Context, client kubernetes.Interface) error {
	config := kubelet.Config{
		Client: client, Dir: l.Nodes(), Disk: l.NodeDisk, Lab: l.Dir, Port: l.Ports.Kubelet(), Network: l.Ports.Network(),
		Zones: l.Topology.ZoneNames(), CPUs: l.Topology.CPUs(),
		Env: map[string]string{
			"PATH":                    l.Path("bin") + ":" + os.Getenv("PATH"),
			podEnv:                    l.Name,
			"KUBERNETES_SERVICE_HOST": "127.0.0.1",
			"KUBERNETES_SERVICE_PORT": strconv.Itoa(l.Ports.APIServer()),
		},
	}
	if l.Topology.Longhorn {
		images, err := longhorn.Images(filepath.Dir(l.binary), l.Dir)
		if err != nil {
			return err
		}
		config.Images, config.Furnish = images, longhorn.Furnish
	}
	k, err := kubelet.Start(life, config)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.kubelet = k
	l.mu.Unlock()
	tls, err := controlplane.KubeletTLS(l.Instance)
	if err != nil {
		return err
	}
	if err := k.Serve(life, tls); err != nil {
		return err
	}
	known, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range l.Topology.Nodes() {
		gone := !slices.ContainsFunc(known.Items, func(k corev1.Node) bool { return k.Name == n.Name })
		if len(known.Items) > 0 && gone && (l.Topology.Machines > 0 || !l.hasFolder(n.Name)) {
			continue // its machine was deleted before the restart
		}
		if err := k.AddNode(life, n.Name, n.Zone); err != nil {
			return err
		}
	}
	if err := k.Adopt(life, known.Items); err != nil {
		return err
	}
	return k.AwaitReady(ctx)
}

// hasFolder tells whether a node has a folder, which it has from its first pod until its machine is discarded.
func (l *lab) hasFolder(node string) bool {
	_, err := os.Stat(filepath.Join(l.Nodes(), node))
	return err == nil
}

// down ends everything in the opposite order. What a crash would end without harm is just ended.
func (l *lab) down() {
	defer l.cancel()
	_ = l.stopLoad()       // none, perhaps
	_ = l.stopAutoscaler() // the same
	_ = l.stopKarpenter()
	if l.kubelet != nil {
		l.kubelet.Stop()
	}
	var wg sync.WaitGroup
	if l.temporal != nil {
		wg.Go(l.temporal.Kill) // its database is made for that
	}
	if l.clusterAPI != nil {
		l.clusterAPI.Stop()
	}
	if l.controlPlane != nil {
		wg.Go(l.controlPlane.Stop)
	}
	wg.Wait()
	if l.longhorn != nil {
		l.longhorn.Close()
	}
	if l.server != nil {
		l.server.Close()
	}
}
