// Package kube is lockkeeper's hand in Kubernetes: policies and their status, budgets, nodes, evictions. It satisfies
// the small interfaces of package activities and decides nothing.
package kube

import (
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// Scheme knows Kubernetes' own types and lockkeeper's.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme,
		cephv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("register API types: %v", err)) // a programming error, seen at the first start
		}
	}
	return s
}()

// FieldOwner names lockkeeper in managed fields and events.
const FieldOwner = "lockkeeper"

// Cluster is the API server. Both clients read it directly: a cache would answer with what was, and these reads are
// what decisions rest on.
type Cluster struct {
	typed kubernetes.Interface
	api   client.Client
	// evictions is the version of the eviction API; nil: nobody has asked yet.
	evictions atomic.Pointer[schema.GroupVersion]
	// written are policies as they were after the last write of their status, by ClusterKey: the next is written upon
	// that without reading it, and fails if anybody else has written meanwhile.
	written sync.Map
	// read are policies as they were last read, by ClusterKey. Nobody changes them.
	read sync.Map
	// servers are the API servers one by one; nil: they cannot be asked so.
	servers APIServers
	// guarded are the budgets that guard a policy's deletions, guardedAs by ClusterKey.
	guarded sync.Map
}

// New connects to the API server of cfg.
func New(cfg *rest.Config) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = FieldOwner
	// The server's own priority and fairness limits us; a client-side limit would delay the one request that matters.
	cfg.QPS = -1
	servers, err := newAPIServers(cfg)
	if err != nil {
		return nil, fmt.Errorf("Kubernetes client: %w", err)
	}
	typed, err := kubernetes.NewForConfig(protobuf(cfg))
	if err != nil {
		return nil, fmt.Errorf("Kubernetes client: %w", err)
	}
	api, err := client.New(cfg, client.Options{Scheme: Scheme})
	if err != nil {
		return nil, fmt.Errorf("Kubernetes client: %w", err)
	}
	return NewFor(typed, api).WithServers(servers), nil
}

// protobuf makes large lists of built-in types several times cheaper for both sides.
func protobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg
}

// NewFor makes a Cluster of two clients of one API server.
func NewFor(typed kubernetes.Interface, api client.Client) *Cluster {
	return &Cluster{typed: typed, api: api}
}

// WithServers has it ask these API servers by which budgets they decide deletions.
func (c *Cluster) WithServers(s APIServers) *Cluster {
	c.servers = s
	return c
}

// CacheOf makes caches of the objects of one namespace, and of all nodes, for who only wants to hear of changes.
func CacheOf(cfg *rest.Config) func(namespace string) (cache.Cache, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = FieldOwner, -1
	return func(namespace string) (cache.Cache, error) {
		return cache.New(cfg, cache.Options{
			Scheme: Scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}},
			DefaultTransform: cache.TransformStripManagedFields(),
		})
	}
}

// Clients are the two of this API server, for other adapters.
func (c *Cluster) Clients() (typed kubernetes.Interface, api client.Client) { return c.typed, c.api }
