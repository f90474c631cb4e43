package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// fencingStatus writes what a report says of fencing; nil: nothing is held, and nothing is to be.
func fencingStatus(r activities.Report) *v1alpha1.FencingStatus {
	l := r.Memory.Fencing
	if l == nil && r.Fencing == nil {
		return nil
	}
	if l == nil {
		l = &fencing.Ledger{}
	}
	s := &v1alpha1.FencingStatus{
		API: l.API, Namespace: l.Namespace, Hold: l.Hold, Held: int32(len(l.Held)), Budget: l.Budget, Marked: l.Held,
	}
	if r.Fencing != nil {
		s.Problem, s.Notes = r.Fencing.Problem, r.Fencing.Notes
		if r.Fencing.Max != nil {
			s.MaxUnavailable = new(int32(*r.Fencing.Max))
		}
	}
	for _, c := range l.Cases {
		s.Nodes = append(s.Nodes, fencingNode(c))
	}
	return s
}

func fencingNode(c fencing.Case) v1alpha1.FencingNode {
	n := v1alpha1.FencingNode{
		Node: c.Node, Stage: string(c.Stage), Why: string(c.Why), Since: metav1.NewTime(c.Since), Reason: c.Reason,
		Message: c.Message, Machine: c.Machine, MachineUID: c.UID, HostsNothing: c.Free, Returns: int32(c.Returns),
		DisksGo: c.DisksGo, WorkflowID: c.WorkflowID, RunID: c.RunID,
	}
	if !c.At.IsZero() {
		n.ReleasedAt = &metav1.Time{Time: c.At}
	}
	if o := c.Override; o != nil {
		n.Override = &v1alpha1.FencingOverride{By: o.By, Reason: o.Reason, At: metav1.NewTime(o.At), Against: c.Against}
	}
	for _, d := range c.Domains {
		n.FailureDomains = append(n.FailureDomains, v1alpha1.FailureDomain{Type: d.Type, Name: d.Name})
	}
	return n
}

// FencingInForce is how the Machines of a policy are held: as it says, or as it said before, while a node is to be
// fenced that is held so.
func FencingInForce(p *v1alpha1.MaintenancePolicy) v1alpha1.FencingSpec {
	spec := p.Spec.Fencing
	if is, waits := fencing.InForce(Settings(&p.Spec).Fencing, ledgerOf(p.Status.Fencing)); waits != "" {
		spec.API, spec.Namespace, spec.Hold = v1alpha1.FencingAPI(is.API), is.Namespace, v1alpha1.FencingHold(is.Hold)
	}
	return spec
}

// ledgerOf is the reverse of fencingStatus, as far as the keeper has to remember it.
func ledgerOf(s *v1alpha1.FencingStatus) *fencing.Ledger {
	if s == nil {
		return nil
	}
	l := &fencing.Ledger{
		Fencing: storage.Fencing{API: s.API, Namespace: s.Namespace, Hold: s.Hold}, Held: s.Marked, Budget: s.Budget,
	}
	for _, n := range s.Nodes {
		c := fencing.Case{
			Target: fencing.Target{
				Node: n.Node, Why: fencing.Why(n.Why), Since: n.Since.UTC(), WorkflowID: n.WorkflowID, RunID: n.RunID,
				DisksGo: n.DisksGo,
			},
			Stage: fencing.Stage(n.Stage), Machine: n.Machine, UID: n.MachineUID, Free: n.HostsNothing,
			Returns: int(n.Returns), Reason: n.Reason, Message: n.Message,
		}
		if n.ReleasedAt != nil {
			c.At = n.ReleasedAt.UTC()
		}
		if o := n.Override; o != nil {
			c.Override, c.Against = &fencing.Override{By: o.By, Reason: o.Reason, At: o.At.UTC()}, o.Against
		}
		for _, d := range n.FailureDomains {
			c.Domains = append(c.Domains, storage.FailureDomain{Type: d.Type, Name: d.Name})
		}
		l.Cases = append(l.Cases, c)
	}
	if l.None() {
		return nil
	}
	return l
}
