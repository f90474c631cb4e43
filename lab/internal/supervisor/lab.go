package supervisor

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/controlplane"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/kubelet"
)

// lab is everything that runs.
type lab struct {
	instance.Config
	binary string
	stop   chan bool // asks the supervisor to end, and tells whether to keep the data

	mu           sync.Mutex
	controlPlane *controlplane.ControlPlane
	kubelet      *kubelet.Kubelet
	others       []*child.Process
	server       *http.Server
	ready        bool
	cancel       context.CancelFunc // of all that lives as long as the lab
}

// up starts everything. What does not need each other starts side by side.
func (l *lab) up(ctx context.Context, progress func(string)) error {
	life, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	if err := l.links(); err != nil {
		return err
	}
	if err := l.serveControl(life); err != nil {
		return err
	}
	if err := l.startKubernetes(ctx, life, progress); err != nil {
		return err
	}
	l.mu.Lock()
	l.ready = true
	l.mu.Unlock()
	return nil
}

// links makes a folder with the programs that go with the lab, for PATH and for envtest.
func (l *lab) links() error {
	if err := os.MkdirAll(l.Path("bin"), 0o700); err != nil {
		return err
	}
	for _, name := range []string{"kubectl", "etcd", "kube-apiserver"} {
		link := l.Path("bin", name)
		if target, err := os.Readlink(link); err == nil && target == l.binary {
			continue
		}
		_ = os.Remove(link)
		if err := os.Symlink(l.binary, link); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) startKubernetes(ctx, life context.Context, progress func(string)) error {
	controlPlane, err := controlplane.Start(ctx, l.Instance, l.binary, progress)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.controlPlane = controlPlane
	l.mu.Unlock()
	client, err := controlplane.Client(l.Instance)
	if err != nil {
		return err
	}
	if err := l.startNodes(ctx, life, client); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	progress(fmt.Sprintf("%d nodes are Ready", len(l.kubelet.Nodes())))
	return nil
}

func (l *lab) startNodes(ctx, life context.Context, client kubernetes.Interface) error {
	k, err := kubelet.Start(life, kubelet.Config{
		Client: client, Dir: l.Path("nodes"), Lab: l.Dir, Port: l.Ports.Kubelet(), Network: l.Ports.Network(),
		Env: map[string]string{
			"PATH":                    l.Path("bin") + ":" + os.Getenv("PATH"),
			"KUBERNETES_SERVICE_HOST": "127.0.0.1",
			"KUBERNETES_SERVICE_PORT": strconv.Itoa(l.Ports.APIServer()),
		},
	})
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
		if err := k.AddNode(life, n.Name, n.Zone); err != nil {
			return err
		}
	}
	if err := k.Adopt(life, known.Items); err != nil {
		return err
	}
	return k.AwaitReady(ctx)
}

// down ends everything in the opposite order. What a crash would end without harm is just ended.
func (l *lab) down() {
	if l.cancel != nil {
		defer l.cancel()
	}
	if l.kubelet != nil {
		l.kubelet.Stop()
	}
	var wg sync.WaitGroup
	for _, p := range l.others {
		wg.Go(p.Stop)
	}
	if l.controlPlane != nil {
		wg.Go(l.controlPlane.Stop)
	}
	wg.Wait()
	if l.server != nil {
		l.server.Close()
	}
}
