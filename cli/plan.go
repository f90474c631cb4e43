package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Plan is what a drain would do and wait for, as of now. Nothing is changed to find it out.
type Plan struct {
	At     time.Time                `json:"at"`
	Input  workflows.DrainNodeInput `json:"input"`
	Node   activities.NodeState     `json:"node"`
	Policy string                   `json:"policy"`
	// Domain is the failure domain that would be disrupted; zero when it is not known.
	Domain     storage.FailureDomain `json:"domain,omitzero"`
	labelValue string                // by which a budget tells its pods from others
	Daemons    []string              `json:"daemons"` // on the node
	Outlook    kube.Outlook          `json:"outlook"`

	MaintenanceTimeout metav1.Duration `json:"maintenanceTimeout"` // of noout
	AllowMonQuorumLoss bool            `json:"allowMonQuorumLoss,omitempty"`
	// Now is what the keeper says; nil when it does not answer, and then the policy's status has to do.
	Now           *workflows.KeeperStatus          `json:"now,omitempty"`
	Reported      v1alpha1.MaintenancePolicyStatus `json:"reported"`
	kind          storage.Kind                     // of the policy
	detach        bool                             // what was attached by hand
	flush         bool                             // spec.ceph.flushPGStats
	keeperProblem error                            // why it does not
	// Running is a drain of this node that runs already.
	Running *Drain `json:"running,omitempty"`
	// Lease is what the keeper would answer to the request for the lease, unless LeaseUnknown says why nobody knows.
	Lease        storage.Answer `json:"lease"`
	LeaseUnknown string         `json:"leaseUnknown,omitempty"`
	// Unknown lists what could not be found out, and why.
	Unknown []string `json:"unknown,omitempty"`
	// Others are the same for the other storage clusters that have daemons on the node, in the order of their keys. What
	// all have in common is repeated.
	Others []Plan `json:"others,omitempty"`
}

// all are the plans for each storage cluster on the node.
func (p Plan) all() []Plan { return append([]Plan{p}, p.Others...) }

// Plan finds out what a drain would do.
func (c *Command) Plan(ctx context.Context, in workflows.DrainNodeInput) (Plan, error) {
	keys, err := c.policiesFor(ctx, in.Node, in.Policy)
	if err != nil {
		return Plan{}, err
	}
	slices.SortFunc(keys, func(a, b storage.ClusterKey) int { return strings.Compare(a.String(), b.String()) })
	in.Policy = joined(keys)
	var namespaces []string
	for _, key := range keys {
		namespaces = append(namespaces, key.Namespace)
	}
	first, err := c.planOn(ctx, in, keys[0], namespaces)
	for _, key := range keys[1:] {
		var other Plan
		if err == nil {
			other, err = c.planOn(ctx, in, key, namespaces)
			first.Others = append(first.Others, other)
		}
	}
	return first, err
}

// planOn finds out what a drain would do in one storage cluster.
func (c *Command) planOn(
	ctx context.Context, in workflows.DrainNodeInput, key storage.ClusterKey, namespaces []string,
) (Plan, error) {
	p := Plan{At: c.Now(), Input: in, Policy: key.String()}
	unknown := func(what string, err error) {
		p.Unknown = append(p.Unknown, what+": "+err.Error())
	}
	policy, err := c.Kubernetes.MaintenancePolicy(ctx, key)
	if err != nil {
		return Plan{}, err
	}
	settings := kube.Settings(&policy.Spec)
	p.kind, p.detach = kube.KindOf(policy), settings.DetachOnCordon
	p.flush = policy.Spec.Ceph != nil && policy.Spec.Ceph.FlushPGStats
	p.MaintenanceTimeout, p.AllowMonQuorumLoss, p.Reported = metav1.Duration{Duration: settings.MaintenanceTimeout},
		settings.AllowMonQuorumLoss, policy.Status
	if p.Node, err = c.Kubernetes.Node(ctx, in.Node); err != nil {
		unknown("the node", err)
	}
	if p.Outlook, err = c.Kubernetes.DrainOutlook(ctx, in.Node, in.Eviction, namespaces); err != nil {
		unknown("the pods to evict", err)
	}
	if now, err := c.Temporal.Keeper(ctx, key); err != nil {
		unknown(keeperNow, err)
		p.keeperProblem = err
	} else {
		p.Now = &now
	}
	unseen := c.lookAgain(ctx, policy, p.Now, in.Node)
	switch job, err := lookUp[Drain](ctx, c.Temporal, jobs.DrainNode.ID(in.Node)); {
	case err == nil && job.State == Running:
		p.Running = &job
	case err != nil && !errors.Is(err, ErrNoJob):
		unknown("whether "+jobs.DrainNode.ID(in.Node)+" runs already", err)
	}
	pods, err := c.Kubernetes.StoragePods(ctx, policy)
	if err != nil {
		unknown("the storage on the node", err)
	}
	p.locate(policy, pods)
	switch {
	case p.Now == nil:
		p.LeaseUnknown = "the keeper does not answer"
	case unseen != nil:
		p.LeaseUnknown = unseen.Error()
	case p.Domain.IsZero():
		p.LeaseUnknown = "the failure domain is not known"
	case p.Now.Known == nil:
		p.LeaseUnknown = "the worker is older than this command, and does not tell all that its keeper judges by"
	default:
		p.Lease = p.askForLease()
	}
	return p, nil
}

// locate finds the node's daemons and their failure domain as their pods tell it.
func (p *Plan) locate(policy *v1alpha1.MaintenancePolicy, pods []storageview.Pod) {
	p.Domain.Type = p.Reported.Storage.FailureDomainType
	if p.Now != nil && p.Now.View.FailureDomainType != "" {
		p.Domain.Type = p.Now.View.FailureDomainType
	}
	perOSD := p.Domain.Type == failuredomain.OSDType
	label := strings.ReplaceAll(kube.FailureDomainLabel(policy), "{type}", p.Domain.Type)
	for _, pod := range pods {
		if pod.Node != p.Input.Node {
			continue
		}
		name := pod.Name
		if pod.OSD != storageview.NoOSD {
			name = fmt.Sprintf("osd.%d", pod.OSD)
		}
		if !slices.Contains(p.Daemons, name) {
			p.Daemons = append(p.Daemons, name)
		}
		switch {
		case p.Domain.Name != "":
		case perOSD:
			p.Domain.Name, p.labelValue = name, pod.Labels[kube.IDLabel(policy)]
		default:
			p.Domain.Name, p.labelValue = pod.Labels[label], pod.Labels[label]
		}
	}
	slices.Sort(p.Daemons)
	if p.Domain.Type == "" || p.Domain.Name == "" {
		p.Domain = storage.FailureDomain{}
		p.Unknown = append(p.Unknown, "the failure domain: neither the keeper nor the labels of the pods tell it")
	}
}

// askForLease asks the keeper's own decision, by all that the keeper judges by and last saw, what it would answer.
func (p *Plan) askForLease() storage.Answer {
	g := guardOf(p.Now.Kind)
	if g == nil {
		return storage.Answer{Reason: fmt.Sprintf("this version of lockkeeper does not know how %s is guarded", p.Now.Kind)}
	}
	claim := lease.Claim{
		WorkflowID: jobs.DrainNode.ID(p.Input.Node), RunID: "plan", Domain: p.Domain, Node: p.Input.Node,
		Reason: p.Input.Reason, Priority: jobs.DrainNode.Priority, Requested: p.At,
	}
	in := p.Now.Input(p.At)
	if in.View.Others == nil { // or this domain may be one of those for which there was no name
		in.View.Domains = withDomain(in.View.Domains,
			storage.Domain{Name: p.Domain.Name, LabelValues: []string{p.labelValue}})
	}
	return guard.WouldGrant(g, guard.Input{Input: in, Own: p.Now.Own}, claim)
}

// withDomain adds a failure domain in which all is well: the keeper's view names only those that have something to say.
func withDomain(domains []storage.Domain, quiet storage.Domain) []storage.Domain {
	if slices.ContainsFunc(domains, func(d storage.Domain) bool { return d.Name == quiet.Name }) {
		return domains
	}
	return append(slices.Clone(domains), quiet)
}
