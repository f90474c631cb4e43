package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/guard/cephguard"
	"github.com/lockkeeper/lockkeeper/internal/guard/longhornguard"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is what commands ask of a Longhorn installation. Its keeper knows of those nodes alone that jobs empty or
// wait for, so that for another one the installation is looked at with the rights of whoever asks.

// Installations finds the storage clusters whose objects are looked at. *longhorncluster.Clusters satisfies it.
type Installations interface {
	StorageClusterOf(ctx context.Context, p activities.Policy) (activities.StorageCluster, error)
}

// guardOf is the guard of a kind of storage; nil: this version knows none.
func guardOf(kind storage.Kind) guard.Guard {
	switch kind {
	case storage.Longhorn:
		return longhornguard.Guard{}
	case storage.Ceph:
		return cephguard.Guard{}
	default:
		return nil
	}
}

// lookAgain has what a keeper knows be as of now, with the node that is asked about: a job that would empty it stands
// behind those that wait.
func (c *Command) lookAgain(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, now *workflows.KeeperStatus, node string,
) error {
	if kube.KindOf(p) != storage.Longhorn || now == nil || now.Known == nil {
		return nil
	}
	cluster, err := c.Installations.StorageClusterOf(ctx, activities.Policy{
		Key: storage.ClusterKey{Namespace: p.Namespace, Name: p.Name}, Object: p,
	})
	if err != nil {
		return err
	}
	in := guard.Input{Input: now.Input(c.Now()), Own: now.Own}
	claims := append(slices.Concat(in.Lease.Holders, in.Lease.Queue), lease.Claim{Node: node})
	i := longhornguard.Guard{}.Interest(in, claims)
	seen, err := cluster.Observe(ctx, activities.Look{
		Held: i.Held, Domains: i.Domains, Nodes: i.Nodes, Last: i.Last, Went: i.Went, Over: i.Over,
	})
	if err != nil {
		return fmt.Errorf("look at Longhorn: %w", err)
	}
	seen.View.NotInCharge = now.View.NotInCharge
	now.View, now.Own = seen.View, seen.Own
	return nil
}

// lookLonghorn says why a node of a Longhorn installation has to wait.
func lookLonghorn(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Kind != storage.Longhorn {
		return nil
	}
	a, asked := longhornguard.AdmissionOf(f.Now.Own, f.Input.Node)
	if !asked || a.OK {
		return nil
	}
	return []Obstacle{{
		Name: string(a.Reason), Since: f.Now.Since, What: a.Reason.Sentence(a.Subject), Change: changeOf(a.Reason),
	}}
}

// changeOf is what a person may do about a reason why a node has to stay.
func changeOf(r longhorn.Reason) string {
	switch r {
	case longhorn.LastReplica:
		return "nothing, if a replica elsewhere is being rebuilt; else attach the volume, or give it one more replica"
	case longhorn.SharesVolume:
		return "nothing: it goes when the other node is back or gone"
	case longhorn.Malformed:
		return "mend what it names"
	case longhorn.ReplicaOnNode:
		return "have Longhorn evict the replicas of the node, or change its setting node-drain-policy"
	default:
		return "nothing: it changes with the volumes"
	}
}

// managers looks for the instance managers of an installation.
func (d *Doctor) managers(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
	if kube.KindOf(p) != storage.Longhorn {
		return
	}
	pods, err := d.Kubernetes.StoragePods(ctx, p)
	switch {
	case err != nil:
		d.unknown(name+": which pods are instance managers", err)
	case len(pods) == 0:
		d.found(FoundBroken, name+": there is no instance manager in "+p.Namespace,
			"the policy has to be in Longhorn's namespace: kubectl get pods -A -l longhorn.io/component=instance-manager")
	default:
		d.ok("%s selects %d instance managers", name, len(pods))
	}
}

// longhorn says what of an installation's settings and volumes is against what lockkeeper is there for.
func (d *Doctor) longhorn(name string, k *workflows.KeeperStatus) {
	l, ok := longhornguard.Seen(k.Own)
	if !ok {
		return
	}
	if l.Fault != "" {
		d.found(FoundBroken, fmt.Sprintf("%s: %s", name, l.Fault), "what it may be about stays protected until it is mended")
	}
	if l.Settings.DrainPolicy == longhorn.AlwaysAllow {
		d.found(FoundWarning, name+": Longhorn's setting node-drain-policy is always-allow: a drain may take the last "+
			"healthy replica of a volume", "that is honoured as your word; block-if-contains-last-replica is Longhorn's default")
	}
	if l.Single > 0 {
		d.found(FoundWarning, fmt.Sprintf("%s: %d volumes have one replica only, %s is one of them: its node cannot be "+
			"emptied", name, l.Single, l.SingleExample), "give them a second one: spec.numberOfReplicas of the Volume")
	}
}
