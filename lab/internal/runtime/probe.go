package runtime

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
)

var (
	httpProber = httpprobe.New(false)
	tcpProber  = tcpprobe.New()
	grpcProber = grpcprobe.New()
)

// Probe asks a container once how it is, with the kubelet's own probers. nil means well. run runs a command in the
// container and fails unless it exits with 0 in time.
func Probe(
	ctx context.Context, p *corev1.Probe, c *corev1.Container, ip string, run func(context.Context, []string) error,
) error {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	switch {
	case p.Exec != nil:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return run(ctx, p.Exec.Command)
	case p.HTTPGet != nil:
		req, err := httpprobe.NewRequestForHTTPGetAction(p.HTTPGet, c, ip, "probe")
		if err != nil {
			return err
		}
		return verdict(httpProber.Probe(req, timeout))
	case p.TCPSocket != nil:
		port, err := probe.ResolveContainerPort(p.TCPSocket.Port, c)
		if err != nil {
			return err
		}
		return verdict(tcpProber.Probe(orElse(p.TCPSocket.Host, ip), port, timeout))
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		return verdict(grpcProber.Probe(ip, service, int(p.GRPC.Port), timeout, grpcprobe.ProbeOptions{}))
	}
	return fmt.Errorf("probe without exec, httpGet, tcpSocket or grpc")
}

func verdict(result probe.Result, output string, err error) error {
	if err != nil {
		return err
	}
	if result != probe.Success && result != probe.Warning {
		return fmt.Errorf("%s: %s", result, output)
	}
	return nil
}

func orElse(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
