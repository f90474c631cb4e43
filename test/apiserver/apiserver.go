// Package apiserver starts a real API server, and nothing else of Kubernetes, for tests and benchmarks that need no
// kubelet: the lab's, run by controller-runtime's envtest.
package apiserver

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Patience is how long whatever a real API server does may take, and whoever watches it: labs may start at the same
// moment. envtest's own 20 s to start were not enough then, five times in a row, nor to stop, nor its 10 s for
// definitions to be served.
const Patience = 3 * time.Minute

// Server is a running API server with its etcd.
type Server struct {
	Config *rest.Config // of an administrator
	Etcd   *url.URL

	env    *envtest.Environment
	assets string
}

// Start starts an API server that knows the definitions in crds, files or folders. root is the repository, with
// lab/bin/lab built.
func Start(root string, crds ...string) (*Server, error) { return StartWith(root, nil, crds...) }

// StartWith is Start with flags of the API server, by their names without hyphens in front.
func StartWith(root string, flags map[string]string, crds ...string) (*Server, error) {
	assets, err := labAsAssets(root)
	if err != nil {
		return nil, err
	}
	s := &Server{assets: assets, env: &envtest.Environment{
		BinaryAssetsDirectory: assets, CRDDirectoryPaths: crds, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: Patience, ControlPlaneStopTimeout: Patience,
		CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: Patience},
	}}
	// It listens on a loopback address, and would announce another one.
	s.env.ControlPlane.GetAPIServer().Configure().Set("endpoint-reconciler-type", "none")
	for name, value := range flags {
		s.env.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	if s.Config, err = s.env.Start(); err != nil {
		_ = s.Stop()
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	s.Etcd = s.env.ControlPlane.Etcd.URL
	return s, nil
}

// Install has it know the definitions in crds, files or folders, too, and waits until it serves them.
func (s *Server) Install(crds ...string) error {
	_, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{
		Paths: crds, ErrorIfPathMissing: true, MaxTime: Patience,
	})
	return err
}

// Stop stops the API server and its etcd, and removes what they wrote.
func (s *Server) Stop() error {
	defer os.RemoveAll(s.assets)
	if err := s.env.Stop(); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}

// labAsAssets gives envtest the programs that it looks for: the lab is each of them, when called by its name.
func labAsAssets(root string) (string, error) {
	lab, err := filepath.Abs(filepath.Join(root, "lab", "bin", "lab"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(lab); err != nil {
		return "", fmt.Errorf("the lab's API server is needed: run `make lab/bin/lab` first (%w)", err)
	}
	dir, err := os.MkdirTemp("", "lockkeeper-apiserver-")
	if err != nil {
		return "", err
	}
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(lab, filepath.Join(dir, program)); err != nil {
			_ = os.RemoveAll(dir)
			return "", err
		}
	}
	return dir, nil
}
