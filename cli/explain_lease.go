package cli

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file looks for who else has the lease, or waits for it.

func lookHolders(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	var out []Obstacle
	for _, h := range f.Now.Lease.Holders {
		if h.Domain == f.Domain || h.Node == f.Input.Node {
			continue
		}
		o := Obstacle{
			Name: budget.ReasonLeaseHeld, Since: h.Granted,
			What: fmt.Sprintf("%s holds the lease of %s", h.WorkflowID, h.Domain),
		}
		if h.Reason != "" {
			o.What += " (" + h.Reason + ")"
		}
		if h.Reserved() {
			o.What += "; in reserve, until it has that of another storage cluster"
		}
		if h.Finishing {
			o.What += "; its work is done, and it waits for the storage there to be whole"
		}
		if job, ok := f.Holders[h.WorkflowID]; ok && job.WaitsFor() != "" {
			o.What += fmt.Sprintf("; it waits for %s, since %s", job.WaitsFor(), when(job.waitsSince(), f.At))
		}
		o.Change = f.howItEnds(h)
		out = append(out, o)
	}
	return out
}

// howItEnds says what has to happen for a holder to give the lease back.
func (f Facts) howItEnds(h lease.Claim) string {
	if h.Reserved() && !h.Ready {
		return fmt.Sprintf("it goes back by itself when it is %s old, since others wait for it; or %s gets the other lease "+
			"before", duration.HumanDuration(h.Reserve), h.WorkflowID)
	}
	if _, target, ok := jobs.Parse(h.WorkflowID); ok && target.Node == "" {
		return fmt.Sprintf("its OSDs have to serve again, and the data to be whole; then others have their turn before its "+
			"next batch. `lockkeeper status %s` says how far it is; `lockkeeper pause %s` holds it after this batch",
			h.WorkflowID, h.WorkflowID)
	}
	for _, n := range f.Now.Flags {
		if n.Owner == h.WorkflowID && !n.Withdrawn && f.At.Before(n.Expires) {
			return fmt.Sprintf("it ends when %s is back and its storage whole; noout there lasts until %s. `lockkeeper status "+
				"%s`; if nobody wants it any more: `lockkeeper abort %s`", h.Node, when(n.Expires, f.At), h.Node, h.Node)
		}
	}
	if !f.At.Before(h.Granted.Add(f.MaintenanceTimeout.Duration)) {
		return fmt.Sprintf("it has had noout for %s, all that the policy allows: Ceph makes new copies elsewhere, and when "+
			"the data is whole without %s, the lease is free. Or bring %s back",
			duration.HumanDuration(f.MaintenanceTimeout.Duration), h.Node, h.Node)
	}
	return fmt.Sprintf("it ends when %s is back and its storage whole. `lockkeeper status %s`; if nobody wants it any "+
		"more: `lockkeeper abort %s`", h.Node, h.Node, h.Node)
}

func lookQueue(f Facts) []Obstacle {
	if f.Now == nil || f.holds() {
		return nil
	}
	var names []string
	var since time.Time
	for _, q := range f.Now.Lease.Queue {
		if q.Node == f.Input.Node {
			break // the others come after it
		}
		if q.Domain == f.Domain {
			continue // they may go together
		}
		if since.IsZero() {
			since = q.Requested
		}
		names = append(names, q.WorkflowID)
	}
	if len(names) == 0 {
		return nil
	}
	return []Obstacle{{
		Name: obstacleQueue, Since: since, What: some(names, mostNames) +
			" asked before, and waits for the lease",
		Change: "wait: one failure domain after the other, in the order in which they asked",
	}}
}

// holds tells whether a drain of this very node has the lease.
func (f Facts) holds() bool {
	return slices.ContainsFunc(f.Now.Lease.Holders, func(c lease.Claim) bool { return c.Node == f.Input.Node })
}

// heldDomain tells whether somebody was named already who holds this domain.
func (f Facts) heldDomain(name string) bool {
	return slices.ContainsFunc(f.Now.Lease.Holders, func(c lease.Claim) bool { return c.Domain.Name == name })
}

func workflowsOf(claims []lease.Claim) []string {
	out := make([]string, len(claims))
	for i := range claims {
		out[i] = claims[i].WorkflowID
	}
	return out
}
