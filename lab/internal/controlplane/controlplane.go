// Package controlplane runs a real Kubernetes control plane as processes: etcd, kube-apiserver, kube-controller-manager
// and kube-scheduler, started in the order in which they need each other.
package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// ControlPlane is a running one.
type ControlPlane struct {
	inst      instance.Instance
	accounts  instance.ControllerAccounts
	etcd      *embed.Etcd
	processes []*child.Process
}

// Start returns when the API server is ready and the others have been started. binary is our own, which holds them all.
func Start(ctx context.Context, config instance.Config, binary string, progress func(string)) (*ControlPlane, error) {
	inst := config.Instance
	url, service := "https://"+instance.Loopback(inst.Ports.APIServer()), net.ParseIP(inst.Ports.ServiceAddress(1))
	if err := writePKI(inst.Path("pki"), url, service); err != nil {
		return nil, err
	}
	admin, err := os.ReadFile(inst.Path("pki", "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(inst.Kubeconfig(), admin, 0o600); err != nil {
		return nil, err
	}
	if err := writeAuditPolicy(inst); err != nil {
		return nil, err
	}
	c := &ControlPlane{inst: inst, accounts: config.Topology.ControllerAccounts}
	if c.etcd, err = startEtcd(ctx, inst, progress); err != nil {
		return nil, err
	}
	progress("etcd is ready")
	if err := c.start(ctx, binary, progress); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, binary string, progress func(string)) error {
	if err := c.spawn(apiserver(c.inst, binary)); err != nil {
		return err
	}
	if err := c.awaitAPIServer(ctx, progress); err != nil {
		return err
	}
	progress("kube-apiserver is ready")
	// Only now: both give up, or wait seconds before they try again, when nobody answers.
	if err := c.spawn(controllerManager(c.inst, c.accounts, binary)); err != nil {
		return err
	}
	return c.spawn(scheduler(c.inst, binary))
}

func (c *ControlPlane) spawn(spec child.Spec) error {
	p, err := child.Start(spec)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

const (
	readyPoll = 20 * time.Millisecond
	// readyPatience is for one answer. A server that starts on busy processors may need seconds for its first ones, and
	// who hangs up each time before they come never hears that it is ready.
	readyPatience = 20 * time.Second
)

// awaitAPIServer asks for /readyz, which everybody may read, until it says yes, the server dies, or time is up.
func (c *ControlPlane) awaitAPIServer(ctx context.Context, progress func(string)) error {
	client, err := c.anonymous()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, instance.StartPatience)
	defer cancel()
	process := c.processes[0]
	err = awaitReady(ctx, client, "https://"+instance.Loopback(c.inst.Ports.APIServer())+"/readyz", func() error {
		if s := process.State(); s.Restarts > 0 {
			return fmt.Errorf("it ended: %s", s.LastExit)
		}
		return nil
	}, progress)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w (see %s)", err, process.Log)
	}
	return nil
}

// awaitReady asks at url until the answer is 200, ended has an error, or ctx ends.
func awaitReady(ctx context.Context, client *http.Client, url string, ended func() error, progress func(string)) error {
	began := time.Now()
	still := instance.Awaiting("kube-apiserver", progress)
	var last error
	for {
		err := get(ctx, client, url)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // else it only says that we hung up
			last = err
		}
		if err := ended(); err != nil {
			return err
		}
		if ctx.Err() == nil {
			still(last)
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return fmt.Errorf("not ready after %s: %w", time.Since(began).Round(time.Second), last)
		}
	}
}

func (c *ControlPlane) anonymous() (*http.Client, error) {
	ca, err := os.ReadFile(c.inst.Path("pki", caFile))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, TLSHandshakeTimeout: readyPatience}
	return &http.Client{Timeout: readyPatience, Transport: transport}, nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// Processes are the programs that are watched over.
func (c *ControlPlane) Processes() []*child.Process { return c.processes }

// Stop ends everything, the users of a service before the service. Nothing is lost by killing: what the API server has
// acknowledged is in etcd, which is closed properly.
func (c *ControlPlane) Stop() {
	for i := len(c.processes) - 1; i >= 0; i-- {
		c.processes[i].Kill()
	}
	c.etcd.Close()
}

// Client is what the supervisor uses: as fast as the machine allows.
func Client(inst instance.Instance) (kubernetes.Interface, error) {
	cfg, err := RestConfig(inst)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(cfg)
}

// RestConfig is how the supervisor speaks to the API server.
func RestConfig(inst instance.Instance) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", inst.Path("pki", "kubelets.kubeconfig"))
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // the API server says itself when it is too much
	return cfg, nil
}

// KubeletTLS is the kubelets' server side: only the API server may talk to them.
func KubeletTLS(inst instance.Instance) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(inst.Path("pki", kubeletName+".crt"), inst.Path("pki", kubeletName+".key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(inst.Path("pki", caFile))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			if user := s.PeerCertificates[0].Subject.CommonName; user != "kube-apiserver" {
				return fmt.Errorf("user %q is not the API server", user)
			}
			return nil
		},
	}, nil
}
