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

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
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
	started, err := apiserver.Start(*root, filepath.Join(*root, "deploy", "crds"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := started.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	config, etcd = started.Config, started.Etcd
	server, err = client.New(config, client.Options{Scheme: kube.Scheme})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
