package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file finds out which storage lives on a node, of however many clusters.

// ResolveInput names a node, and the storage clusters if the caller knows them.
type ResolveInput struct {
	Node    string               `json:"node"`
	Cluster storage.ClusterKey   `json:"cluster,omitzero"` // zero: all that have daemons on the node
	More    []storage.ClusterKey `json:"more,omitempty"`   // beside Cluster
	// All: also those that are not named but have daemons on the node.
	All bool `json:"all,omitempty"`
	// Again: the job has begun. What is no longer looked after is left out, as long as anything is left.
	Again bool `json:"again,omitempty"`
}

// silentAttempts is how often a storage cluster that is not named is given a chance to answer. Somebody else empties
// the node already, and the others on it must not go unguarded because of one that does not answer.
const silentAttempts = 3

func (in ResolveInput) named() []storage.ClusterKey {
	if in.Cluster == (storage.ClusterKey{}) {
		return nil
	}
	return append([]storage.ClusterKey{in.Cluster}, in.More...)
}

// ResolveNode finds out which storage lives on a node. It changes nothing.
func (d *Drain) ResolveNode(ctx context.Context, in ResolveInput) (Target, error) {
	n, err := d.Nodes.Node(ctx, in.Node)
	if err != nil {
		return Target{}, Unavailable("read node "+in.Node, err)
	}
	clusters, err := d.clustersOn(ctx, in, n)
	if err != nil {
		return Target{}, err
	}
	var hosted []Hosted
	var refused error
	for _, cluster := range clusters {
		h, err := d.hostedBy(ctx, cluster, in.Node)
		named := slices.Contains(in.named(), cluster)
		switch {
		case err == nil:
			hosted = append(hosted, h)
		case isInvalid(err) && (!named || in.Again), in.All && !named && activity.GetInfo(ctx).Attempt > silentAttempts:
			refused = cmp.Or(refused, err)
		default:
			return Target{}, err
		}
	}
	if len(hosted) == 0 {
		return Target{}, refused
	}
	return Target{
		Hosted: hosted[0], Others: slices.Clip(hosted[1:]), Node: in.Node, UID: n.UID, BootID: n.BootID,
		Cordoned: n.Cordoned, Gone: !n.Found,
	}, nil
}

// clustersOn lists the storage clusters that a job has to do with, in the order of their keys: at least one.
func (d *Drain) clustersOn(ctx context.Context, in ResolveInput, n NodeState) ([]storage.ClusterKey, error) {
	clusters := in.named()
	if len(clusters) == 0 && !n.Found {
		return nil, Invalid("node", in.Node, "no such node; `kubectl get nodes` lists them")
	}
	if len(clusters) == 0 || in.All {
		found, answer, err := d.Nodes.PoliciesOf(ctx, in.Node)
		if err != nil {
			return nil, Unavailable("find the storage clusters of node "+in.Node, err)
		}
		if clusters = append(clusters, found...); len(clusters) == 0 {
			return nil, Invalid("node", in.Node, answer.Reason)
		}
	}
	slices.SortFunc(clusters, func(a, b storage.ClusterKey) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(clusters), nil
}

// hostedBy finds the storage of one cluster on a node.
func (d *Drain) hostedBy(ctx context.Context, cluster storage.ClusterKey, node string) (Hosted, error) {
	p, err := d.Policies.Policy(ctx, cluster)
	switch {
	case errors.Is(err, ErrNotFound):
		return Hosted{}, Invalid("policy", cluster.String(),
			"no such MaintenancePolicy; `kubectl get maintenancepolicies -A` lists them")
	case err != nil:
		return Hosted{}, Unavailable("read MaintenancePolicy "+cluster.String(), err)
	case p.Second != "":
		return Hosted{}, Invalid("policy", cluster.String(), p.Second)
	}
	c, err := d.Clusters.StorageClusterOf(ctx, p)
	if err != nil {
		return Hosted{}, Unavailable("connect to the storage cluster of "+cluster.String(), err)
	}
	seen, err := c.Observe(ctx, Look{Nodes: []string{node}})
	if err != nil {
		return Hosted{}, Unavailable("observe "+cluster.String(), err)
	}
	if first := p.Standing(seen.ID).First; first != "" {
		return Hosted{}, Invalid("policy", cluster.String(), first)
	}
	if seen.View.Unavailable != "" {
		return Hosted{}, Unavailable("observe "+cluster.String(), errors.New(seen.View.Unavailable))
	}
	n, ok := seen.View.Node(node)
	// No reason to drain it unguarded, nor to leave this cluster out beside another one.
	if ok && len(n.Daemons) > 0 && n.Domain == "" {
		return Hosted{}, Unavailable("observe "+cluster.String(), fmt.Errorf("%s hosts %s, which is in no %s", node,
			n.Daemons[0], seen.View.FailureDomainType))
	}
	if !ok || len(n.Daemons) == 0 {
		return Hosted{}, Invalid("node", node,
			fmt.Sprintf("hosts no storage of %s, so nothing has to be guarded; use `kubectl drain`", cluster))
	}
	return Hosted{
		Turn: cmp.Or(p.Settings.AnnouncementTimeout, shortestTurn), TaintExpiry: p.Settings.RemovalTaintExpiry,
		Detach: p.Settings.DetachOnCordon, Cluster: cluster, Hosts: hostsOf(n), Daemons: n.Daemons,
		Domain: storage.FailureDomain{Type: seen.View.FailureDomainType, Name: n.Domain},
	}, nil
}

// shortestTurn is the turn of a node where cordons announce nothing: who removes it needs some time for the first pod.
const shortestTurn = time.Minute

func isInvalid(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == InvalidInput
}

// hostsOf lists the hosts of a node in the storage cluster's topology.
func hostsOf(n storage.Node) []string {
	if len(n.Hosts) > 0 {
		return n.Hosts
	}
	if n.Host == "" {
		return nil
	}
	return []string{n.Host}
}
