// Package cephcluster is the Ceph kind of a storage cluster: one Ceph cluster over a kept connection, together with the
// pods and nodes that run it. It satisfies activities.StorageCluster; what it sees is joined and judged by pure
// packages.
package cephcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Kubernetes is what is read of the API server.
type Kubernetes interface {
	MaintenancePolicy(ctx context.Context, key storage.ClusterKey) (*v1alpha1.MaintenancePolicy, error)
	StoragePods(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]storageview.Pod, error)
	StorageNodes(ctx context.Context) ([]storageview.Node, error)
	// DaemonPods lists the pods of the OSDs and of the mons.
	DaemonPods(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]storageview.Pod, []storageview.MonPod, error)
	// MarkPods and UnmarkPods change those that still are what was seen of them, and count them.
	MarkPods(ctx context.Context, p *v1alpha1.MaintenancePolicy, pods []storageview.Pod, progress func(done int)) (int,
		error)
	UnmarkPods(ctx context.Context, p *v1alpha1.MaintenancePolicy, pods []storageview.Pod, progress func(done int)) (int,
		error)
	ReplacingOSDs(ctx context.Context, p *v1alpha1.MaintenancePolicy) (map[int]bool, error)
	// ConfigMapValue and SecretValue return the value of a key; errors name the object and the key.
	ConfigMapValue(ctx context.Context, namespace, name, key string) (string, error)
	SecretValue(ctx context.Context, namespace, name, key string) (string, error)
}

// Address is how to reach a Ceph cluster: where its mons are, as which user, with which key.
type Address struct {
	MonHost string
	User    string // with or without "client."
	Key     string
}

// Conn is a connection that is kept.
type Conn interface {
	ceph.Commander
	Close()
}

// Dialer connects to a Ceph cluster.
type Dialer interface {
	Dial(ctx context.Context, a Address) (Conn, error)
}

// Clusters keeps one connection for each policy. It is safe for concurrent use.
type Clusters struct {
	kube Kubernetes
	dial Dialer

	mu    sync.Mutex
	open  map[storage.ClusterKey]*cluster
	seen  map[storage.ClusterKey]seenPolicy
	turns map[storage.ClusterKey]chan struct{} // who holds the one value of a key may dial
}

// New makes Clusters that connect on demand.
func New(k Kubernetes, d Dialer) *Clusters {
	return &Clusters{
		kube: k, dial: d, open: map[storage.ClusterKey]*cluster{}, seen: map[storage.ClusterKey]seenPolicy{},
		turns: map[storage.ClusterKey]chan struct{}{},
	}
}

// Close closes all connections.
func (c *Clusters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, x := range c.open {
		x.line.Close()
		delete(c.open, key)
	}
}

// seenPolicy is a policy as it was read a moment ago.
type seenPolicy struct {
	*v1alpha1.MaintenancePolicy
	at time.Time
}

// policyLasts is for how long a policy that was read need not be read again for what follows from a look: a command, a
// question, the next watch. The look itself always brings a new one.
const policyLasts = 5 * time.Second

// StorageCluster implements activities.StorageClusters.
func (c *Clusters) StorageCluster(ctx context.Context, key storage.ClusterKey) (activities.StorageCluster, error) {
	p := c.lately(key)
	if p == nil {
		var err error
		if p, err = c.kube.MaintenancePolicy(ctx, key); err != nil {
			return nil, err
		}
	}
	return c.connect(ctx, p, key)
}

// Client asks the storage cluster of a policy over the kept connection.
func (c *Clusters) Client(ctx context.Context, key storage.ClusterKey) (ceph.Client, error) {
	s, err := c.StorageCluster(ctx, key)
	if err != nil {
		return ceph.Client{}, err
	}
	return ceph.Client{Commander: s.(*cluster).line}, nil
}

// Apart asks the storage cluster of a policy over a connection of its own, which whoever has it closes. Monitors that
// have no quorum keep what they were asked for, and carry it out as soon as they have one again, whether anybody still
// waits for that or not, for as long as the connection is there. What must not be done late is asked for on such a one.
func (c *Clusters) Apart(ctx context.Context, key storage.ClusterKey) (ceph.Client, func(), error) {
	s, err := c.StorageCluster(ctx, key)
	if err != nil {
		return ceph.Client{}, nil, err
	}
	x := s.(*cluster)
	conn, err := x.sameCluster(ctx, c.dialAs, x.policy)
	if err != nil {
		return ceph.Client{}, nil, err
	}
	return ceph.Client{Commander: conn}, conn.Close, nil
}

// lately is the policy, if it was read a moment ago; nil otherwise.
func (c *Clusters) lately(key storage.ClusterKey) *v1alpha1.MaintenancePolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, was := c.seen[key]; was && time.Since(s.at) < policyLasts {
		return s.MaintenancePolicy
	}
	return nil
}

// StorageClusterOf implements activities.StorageClusters.
func (c *Clusters) StorageClusterOf(ctx context.Context, p activities.Policy) (activities.StorageCluster, error) {
	object, is := p.Object.(*v1alpha1.MaintenancePolicy)
	if !is {
		return c.StorageCluster(ctx, p.Key)
	}
	c.mu.Lock()
	c.seen[p.Key] = seenPolicy{object, time.Now()}
	c.mu.Unlock()
	return c.connect(ctx, object, p.Key)
}

// connect returns the connection of a policy. A connection lives for as long as the policy says the same about how to
// connect: librados follows the mons when they move, and where it does not, its line is made anew.
func (c *Clusters) connect(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, key storage.ClusterKey,
) (activities.StorageCluster, error) {
	if p.Spec.Ceph == nil {
		return nil, fmt.Errorf("MaintenancePolicy %s: spec.ceph is missing: this is no policy of a Ceph cluster",
			key)
	}
	if x := c.kept(p, key); x != nil {
		return x, nil
	}
	// One dials at a time for each cluster: one whose mons are away must not hold up the others.
	turn := c.turn(key)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if x := c.kept(p, key); x != nil {
		return x, nil
	}
	conn, err := c.dialAs(ctx, p)
	if err != nil {
		return nil, err
	}
	x := newCluster(c.kube, conn, p)
	x.line.redial = func(ctx context.Context) (Conn, error) { return x.sameCluster(ctx, c.dialAs, p) }
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.open[key]; old != nil {
		old.line.Close()
	}
	c.open[key] = x
	return x, nil
}

// dialAs connects as a policy says now.
func (c *Clusters) dialAs(ctx context.Context, p *v1alpha1.MaintenancePolicy) (Conn, error) {
	a, err := c.address(ctx, p)
	if err != nil {
		return nil, err
	}
	conn, err := c.dial.Dial(ctx, a)
	if err != nil {
		err = fmt.Errorf("connect to Ceph at %s as %s: %w", a.MonHost, a.User, err)
		if ceph.IsDenied(err) || ceph.IsUnknown(err) {
			err = &storage.UnreachableError{Cause: storage.CauseCredentials, Err: err}
		}
		return nil, err
	}
	return conn, nil
}

// kept is the connection that there is, if it still is what the policy asks for.
func (c *Clusters) kept(p *v1alpha1.MaintenancePolicy, key storage.ClusterKey) activities.StorageCluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.open[key]; x != nil && x.connection == p.Spec.Ceph.Connection && !x.failed() {
		return x.with(p)
	}
	return nil
}

func (c *Clusters) turn(key storage.ClusterKey) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns[key] == nil {
		c.turns[key] = make(chan struct{}, 1)
	}
	return c.turns[key]
}

func (c *Clusters) address(ctx context.Context, p *v1alpha1.MaintenancePolicy) (Address, error) {
	at := p.Spec.Ceph.Connection
	endpoints := orDefault(at.MonEndpoints, v1alpha1.KeyReference{Name: "rook-ceph-mon-endpoints", Key: "data"})
	raw, err := c.kube.ConfigMapValue(ctx, p.Namespace, endpoints.Name, endpoints.Key)
	if err != nil {
		return Address{}, unreadable(storage.CauseAddress, "spec.ceph.connection.monEndpoints", err)
	}
	monHost, err := ceph.ParseMonEndpoints("spec.ceph.connection.monEndpoints", raw)
	if err != nil {
		return Address{}, &storage.UnreachableError{Cause: storage.CauseAddress, Err: err}
	}
	cred := at.Credentials
	secret := orDefault(cred.Name, "rook-ceph-mon")
	user, err := c.kube.SecretValue(ctx, p.Namespace, secret, orDefault(cred.UserKey, "ceph-username"))
	if err != nil {
		return Address{}, unreadable(storage.CauseCredentials, "spec.ceph.connection.credentials", err)
	}
	if user, err = ceph.ParseUser("spec.ceph.connection.credentials", user); err != nil {
		return Address{}, &storage.UnreachableError{Cause: storage.CauseCredentials, Err: err}
	}
	secretKey, err := c.kube.SecretValue(ctx, p.Namespace, secret, orDefault(cred.SecretKey, "ceph-secret"))
	if err != nil {
		return Address{}, unreadable(storage.CauseCredentials, "spec.ceph.connection.credentials", err)
	}
	return Address{MonHost: monHost, User: user, Key: secretKey}, nil
}

// unreadable is a failure to read what a field of the policy names.
func unreadable(cause storage.Cause, field string, err error) error {
	if apierrors.IsForbidden(err) {
		cause = storage.CauseAccess
	}
	return &storage.UnreachableError{Cause: cause, Err: fmt.Errorf("%s: %w", field, err)}
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
