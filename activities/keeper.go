// Package activities holds the thin, idempotent steps in which lockkeeper looks at the world and changes it. Each
// observes (and returns a small struct) or applies (and may be repeated at any time); none decides. What an activity
// needs from outside is a small interface declared here; the adapters in internal/ satisfy them.
package activities

import (
	"context"
	"errors"
	"sync"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Keeper holds the keeper's activities.
type Keeper struct {
	Policies Policies
	Budgets  Budgets
	Clusters StorageClusters
	Jobs     Jobs
	Machines Machines
	// Mons and Migrations are how those who look after the mons hear of one that is out of quorum; nil: nobody does.
	Mons       Mons
	Migrations Migrations

	told sync.Map // by storage.ClusterKey: toldMons
}

// Jobs tells about workflows.
type Jobs interface {
	// AwaitEnd returns when the workflow chain that began with this run has ended, in whatever way, and how.
	AwaitEnd(ctx context.Context, workflowID, runID string) (string, error)
}

// ObserveInput asks for one look at a storage cluster and its policy.
type ObserveInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Look    Look               `json:"look"`
}

// Observation is the policy and what was seen. Found is false when there is no such policy.
type Observation struct {
	Found      bool             `json:"found"`
	Deleting   bool             `json:"deleting,omitempty"`
	UID        string           `json:"uid,omitempty"`
	Generation int64            `json:"generation"`
	Settings   storage.Settings `json:"settings"`
	// Second: another policy is in charge of this storage cluster, and the reason. Then nothing that was seen counts.
	Second string `json:"second,omitempty"`
	// SecondElsewhere: the other policy is of another namespace, so its budgets cover none of this one's pods.
	SecondElsewhere bool `json:"secondElsewhere,omitempty"`
	// SecondGuards: the other policy makes budgets over the same pods. This one's stay, closed, until they are there.
	SecondGuards bool `json:"secondGuards,omitempty"`
	// Claim is what the policy's status said before the look; nil: the worker that looked did not know of claims.
	Claim *precedence.Claim `json:"claim,omitempty"`
	Seen  Seen              `json:"seen"`
	// Book is what was read of the budgets before the look. OtherBudgets: there were some of somebody else, too.
	Book         budget.Book `json:"book,omitempty"`
	OtherBudgets bool        `json:"otherBudgets,omitempty"`
	// Survey is what there is to know of Machines; nil: the policy does not ask for that.
	Survey *fencing.Survey `json:"survey,omitempty"`
}

// ObserveStorage takes one look at the policy, Kubernetes and the storage cluster. It ends before its time is over, and
// so says who did not answer.
func (k *Keeper) ObserveStorage(ctx context.Context, in ObserveInput) (Observation, error) {
	ctx, stop := endsInTime(ctx)
	defer stop()
	var (
		out      Observation
		unread   error
		together sync.WaitGroup
	)
	// Before the look: an alarm that is raised during it changes them.
	together.Go(func() { out.Book, out.OtherBudgets, unread = k.Budgets.ReadBudgets(ctx, in.Cluster) })
	p, err := k.Policies.Policy(ctx, in.Cluster)
	together.Wait()
	if errors.Is(err, ErrNotFound) {
		return Observation{}, nil
	}
	if err != nil {
		return Observation{}, Unavailable("read MaintenancePolicy "+in.Cluster.String(), err)
	}
	out.Found, out.Deleting, out.Settings = true, p.Deleting, p.Settings
	out.UID, out.Generation = p.UID, p.Generation
	out.Second, out.Claim = p.Second, &p.Memory.Claim
	if p.Second != "" {
		out.SecondGuards = p.guards(p.First)
		out.Seen.View.Unavailable = "not looked at: another policy is in charge"
		return out, nil
	}
	if unread != nil && !p.Deleting { // the end needs no look
		return Observation{}, Unavailable("read the PodDisruptionBudgets", unread)
	}
	var listed *surveying
	if spec, _ := fencingOf(p); spec != nil {
		in.Look.Hosting = true
		together.Go(func() { listed = k.listMachines(ctx, p) })
	}
	c, err := k.Clusters.StorageClusterOf(ctx, p)
	if err == nil {
		out.Seen, err = c.Observe(ctx, in.Look)
	}
	together.Wait()
	if err != nil {
		if ctx.Err() != nil {
			return Observation{}, Unavailable("observe "+in.Cluster.String(), err)
		}
		// Not to know is a reason to close, and closing must not wait for retries.
		out.Seen = Seen{View: storage.View{Unavailable: err.Error(), Cause: storage.CauseOf(err)}}
		out.Seen.Hosting = k.hostedByPods(ctx, p, in.Look)
	}
	switch s := p.Standing(out.Seen.ID); {
	case s.First != "":
		out.Second, out.SecondElsewhere = s.First, s.Key.Namespace != in.Cluster.Namespace
		out.SecondGuards = p.guards(s.Key)
		out.Seen.View = storage.View{Unavailable: "not looked at: another policy is in charge"}
	default:
		out.Seen.View.NotInCharge = s.Waits
	}
	out.Survey = listed.survey(p, out.Seen, in.Look)
	if l := in.Look; l.Bounded {
		first := storage.Interest{Domains: l.Domains, Nodes: l.Nodes, Daemons: l.Daemons}
		for _, h := range l.Hosts {
			first.Hosts = append(first.Hosts, h.Name)
		}
		out.Seen.View = out.Seen.View.Bounded(first)
	}
	return out, nil
}

// hostedByPods is for a storage cluster that cannot be reached, if somebody asks who hosts it. Pods that cannot be
// listed tell nothing: holds that are noted stay.
func (k *Keeper) hostedByPods(ctx context.Context, p Policy, in Look) map[string]fencing.Hosted {
	if !in.Hosting {
		return nil
	}
	hosted, err := k.Policies.HostedByPods(ctx, p)
	if err != nil {
		return nil
	}
	return hosted
}

// Recall returns what the keeper before this one left in the policy's status.
func (k *Keeper) Recall(ctx context.Context, key storage.ClusterKey) (Memory, error) {
	p, err := k.Policies.Policy(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return Memory{}, nil
	}
	if err != nil {
		return Memory{}, Unavailable("read MaintenancePolicy "+key.String(), err)
	}
	return p.Memory, nil
}
