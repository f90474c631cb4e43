// Package api tests what lockkeeper gives to the API server, in a real one: the CRDs with their defaulting, pruning and
// CEL, the rights of its accounts, the examples. The control plane is the lab's, run by controller-runtime's envtest.
package api

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

var root = flag.String("root", "../..", "the repository, with lab/bin/lab built")

// server is the API server of all tests in this package.
var server client.Client

// config reaches it as an administrator.
var config *rest.Config

// etcd is where the API server keeps everything.
var etcd *url.URL

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	assets, err := labAsAssets()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(assets)
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join(*root, "deploy", "crds")},
		ErrorIfCRDPathMissing: true,
	}
	defer func() {
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}()
	cfg, err := env.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		return 1
	}
	config, etcd = cfg, env.ControlPlane.Etcd.URL
	server, err = client.New(cfg, client.Options{Scheme: kube.Scheme})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// labAsAssets gives envtest the programs that it looks for: the lab is each of them, when called by its name.
func labAsAssets() (string, error) {
	lab, err := filepath.Abs(filepath.Join(*root, "lab", "bin", "lab"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(lab); err != nil {
		return "", fmt.Errorf("these tests need the lab's API server: run `make lab/bin/lab` first (%w)", err)
	}
	dir, err := os.MkdirTemp("", "lockkeeper-envtest-")
	if err != nil {
		return "", err
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(lab, filepath.Join(dir, program)); err != nil {
			return "", err
		}
	}
	return dir, nil
}
