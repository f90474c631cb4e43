package budget

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// Noout is a noout flag of ours on one host of the storage cluster's topology. It is recorded before it is set, so that
// a crash in between leaves a record without a flag, which is harmless, and never a flag without a record.
type Noout struct {
	Host    string    `json:"host"`
	Owner   string    `json:"owner"` // workflow ID
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
	// Confirmed: it was seen on the host after it was set. When it is then missing, a person took it away, and we do not
	// set it again.
	Confirmed bool `json:"confirmed,omitempty"`
	// Withdrawn: no longer set, kept only so that it is not set again for the same owner.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// NooutPlan is what to do about noout.
type NooutPlan struct {
	Records []Noout  // to be remembered before anything is done
	Set     []string // hosts
	Unset   []string // hosts
}

// PlanNoout compares what the holders of the lease want with what is recorded and what is there. present is the list of
// hosts that carry noout in the storage cluster.
//
// A host that carries noout without a record of ours was flagged by a person: it is left alone, now and at the end.
func PlanNoout(now time.Time, timeout time.Duration, holders []lease.Claim, records []Noout, present []string) NooutPlan {
	var plan NooutPlan
	wanted := map[string]lease.Claim{}
	for _, h := range holders {
		for _, host := range h.NooutHosts {
			if _, dup := wanted[host]; !dup {
				wanted[host] = h
			}
		}
	}
	for _, r := range records {
		is := slices.Contains(present, r.Host)
		h, want := wanted[r.Host]
		if want && !r.isFor(h) {
			// The host changed hands. What an earlier holder's flag went through says nothing about the new one's.
			if r.Withdrawn {
				continue
			}
			r = newNoout(now, timeout, r.Host, h)
			r.Confirmed = is
		}
		if want {
			r.Expires = h.Granted.Add(timeout) // the policy may have changed
		}
		switch {
		case r.Withdrawn && !want:
			continue
		case r.Withdrawn:
		case !want || !now.Before(r.Expires):
			// Unset without looking whether it is there: a set that timed out may still arrive.
			plan.Unset = append(plan.Unset, r.Host)
		case is:
			r.Confirmed = true
		case r.Confirmed:
			r.Withdrawn = true
		default:
			plan.Set = append(plan.Set, r.Host)
		}
		plan.Records = append(plan.Records, r)
		delete(wanted, r.Host)
	}
	for _, host := range sortedKeys(wanted) {
		r := newNoout(now, timeout, host, wanted[host])
		if !now.Before(r.Expires) || slices.Contains(present, host) {
			continue
		}
		plan.Records = append(plan.Records, r)
		plan.Set = append(plan.Set, host)
	}
	return plan
}

func newNoout(now time.Time, timeout time.Duration, host string, h lease.Claim) Noout {
	return Noout{Host: host, Owner: h.WorkflowID, Since: now, Expires: h.Granted.Add(timeout)}
}

// isFor tells whether a flag was set under this very grant.
func (n Noout) isFor(h lease.Claim) bool {
	return n.Owner == h.WorkflowID && !n.Since.Before(h.Granted)
}

// Withdraw takes note that the flag of a host is unset. Only then may its record be forgotten, and it is, unless a holder
// still wants the flag: then the record says that it had its time.
func Withdraw(records []Noout, host string, holders []lease.Claim) []Noout {
	wanted := slices.ContainsFunc(holders, func(c lease.Claim) bool { return slices.Contains(c.NooutHosts, host) })
	var out []Noout
	for _, r := range records {
		if r.Host == host {
			if !wanted {
				continue
			}
			r.Withdrawn = true
		}
		out = append(out, r)
	}
	return out
}

func sortedKeys(m map[string]lease.Claim) []string {
	out := make([]string, 0, len(m))
	//workflowcheck:ignore sorted below
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
