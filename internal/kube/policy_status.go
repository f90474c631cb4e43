package kube

import (
	"fmt"
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// statusOf writes a report as the policy's status. before supplies the transition times of unchanged conditions.
func statusOf(
	kind storage.Kind, r activities.Report, before v1alpha1.MaintenancePolicyStatus,
) v1alpha1.MaintenancePolicyStatus {
	since := metav1.NewTime(r.Since)
	s := v1alpha1.MaintenancePolicyStatus{
		ObservedGeneration: r.Generation, MayDrain: r.MayDrain, Reason: r.Decision.Reason, Message: r.Decision.Message,
		Since: &since, Lease: leaseStatus(r.Memory.Lease), Storage: storageStatus(kind, r),
		Keeper: r.Keeper, Conditions: before.Conditions,
		Fencing: fencingStatus(r),
	}
	s.Ceph, s.Longhorn = before.Ceph, before.Longhorn
	if r.Memory.Claim != (precedence.Claim{}) {
		s.Ceph, s.Longhorn = claimStatusOf(kind, r.Memory.Claim)
	}
	if !r.AsOf.IsZero() {
		s.AsOf = &metav1.Time{Time: r.AsOf}
	}
	if d := r.Decision.Open; !d.IsZero() {
		s.OpenFailureDomain = &v1alpha1.FailureDomain{Type: d.Type, Name: d.Name}
	}
	for _, n := range r.Memory.Flags {
		record := v1alpha1.NooutStatus{
			Host: n.Host, Owner: n.Owner, Since: metav1.NewTime(n.Since), Expires: metav1.NewTime(n.Expires),
			Confirmed: n.Confirmed, Withdrawn: n.Withdrawn, HostID: n.ID, Claimed: n.Claimed, Unsure: n.Unsure,
		}
		if !n.Until.IsZero() {
			record.Until = &metav1.Time{Time: n.Until}
		}
		s.Noout = append(s.Noout, record)
	}
	for _, c := range conditions(kind, r) {
		c.ObservedGeneration = r.Generation
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

// claimStatusOf writes a claim. A report without one is of a keeper that has not looked yet, or comes late: it
// withdraws nothing, and is not written.
func claimStatusOf(kind storage.Kind, c precedence.Claim) (*v1alpha1.CephClusterStatus, *v1alpha1.LonghornStatus) {
	if kind == storage.Longhorn {
		return nil, &v1alpha1.LonghornStatus{Installation: c.ID, Claimed: c.Held}
	}
	return &v1alpha1.CephClusterStatus{FSID: c.ID, Claimed: c.Held}, nil
}

func claimOf(s *v1alpha1.MaintenancePolicyStatus) precedence.Claim {
	switch {
	case s.Ceph != nil:
		return precedence.Claim{ID: s.Ceph.FSID, Held: s.Ceph.Claimed}
	case s.Longhorn != nil:
		return precedence.Claim{ID: s.Longhorn.Installation, Held: s.Longhorn.Claimed}
	default:
		return precedence.Claim{}
	}
}

func conditions(kind storage.Kind, r activities.Report) []metav1.Condition {
	is := func(b bool) metav1.ConditionStatus {
		if b {
			return metav1.ConditionTrue
		}
		return metav1.ConditionFalse
	}
	reachable := metav1.Condition{
		Type: v1alpha1.ConditionStorageReachable, Status: metav1.ConditionTrue,
		Reason: "Answers", Message: "a quorum answers",
	}
	if r.View.Unavailable != "" {
		reachable.Status, reachable.Reason, reachable.Message = metav1.ConditionFalse, "Unavailable", r.View.Unavailable
	}
	clean := metav1.Condition{
		Type: v1alpha1.ConditionDataClean, Status: is(r.Clean), Reason: "Clean",
		Message: fmt.Sprintf("%d of %d PGs are clean", r.Health.PGsClean, r.Health.PGs),
	}
	if kind == storage.Longhorn {
		reachable.Message = "its objects can be read"
		clean.Message = fmt.Sprintf("%d of %d instance managers run", r.View.Up, r.View.Daemons)
	}
	if !r.Clean {
		clean.Reason = "NotProvenClean"
		switch {
		case kind == storage.Longhorn && r.View.Unavailable == "":
			clean.Reason = "NotAllRun"
		case r.Health.Reason != "":
			clean.Message = r.Health.Reason
		case r.View.Unavailable != "":
			clean.Message = "not known: " + r.View.Unavailable
		}
	}
	protected := metav1.Condition{
		Type: v1alpha1.ConditionProtected, Status: metav1.ConditionTrue,
		Reason: "BudgetsInPlace", Message: "the PodDisruptionBudgets say what was decided",
	}
	switch {
	case r.Decision.Reason == budget.ReasonSecondPolicy:
		protected.Status, protected.Reason, protected.Message = metav1.ConditionFalse, budget.ReasonSecondPolicy,
			r.Decision.Message
	case r.Unmanaged:
		protected.Status, protected.Reason, protected.Message = metav1.ConditionFalse, budget.ReasonUnmanaged,
			"managePodBudgets is false: no budget of lockkeeper protects the storage"
	case r.Conflict != "":
		protected.Status, protected.Reason, protected.Message = metav1.ConditionFalse, "BudgetConflict", r.Conflict
	}
	allowed := metav1.Condition{
		Type:   v1alpha1.ConditionDisruptionAllowed,
		Status: is(r.Decision.Mode != budget.ModeClosed), Reason: r.Decision.Reason, Message: r.MayDrain + ": " +
			r.Decision.Message,
	}
	kept := metav1.Condition{
		Type: v1alpha1.ConditionKept, Status: metav1.ConditionTrue, Reason: "KeeperAtWork",
		Message: "the keeper keeps this status up to date",
	}
	return []metav1.Condition{reachable, clean, protected, allowed, kept}
}

func storageStatus(kind storage.Kind, r activities.Report) v1alpha1.StorageStatus {
	v := r.View
	if v.Unavailable != "" {
		return v1alpha1.StorageStatus{}
	}
	s := v1alpha1.StorageStatus{FailureDomainType: v.FailureDomainType, Up: fmt.Sprintf("%d/%d", v.Up, v.Daemons)}
	if kind == storage.Longhorn {
		return s
	}
	s.PGs = fmt.Sprintf("%d/%d", r.Health.PGsClean, r.Health.PGs)
	const most = 20 // a status is for people; Ceph itself lists them all
	for _, d := range v.Domains {
		for _, x := range d.Down() {
			if len(s.Down) == most {
				return s
			}
			s.Down = append(s.Down, x.String())
		}
	}
	return s
}

// mostQueued bounds what a status lists of the queue. The API server looks at each entry with every write.
const mostQueued = 20

func leaseStatus(l lease.State) v1alpha1.LeaseStatus {
	s := v1alpha1.LeaseStatus{Token: l.Token}
	for _, c := range l.Holders {
		s.Holders = append(s.Holders, claimStatus(c, c.Granted.Unix()))
	}
	listed := min(len(l.Queue), mostQueued)
	for _, c := range l.Queue[:listed] {
		s.Queue = append(s.Queue, claimStatus(c, c.Requested.Unix()))
	}
	if rest := l.Queue[listed:]; len(rest) > 0 {
		s.Waiting = int32(len(l.Queue))
		s.Packed, _ = lease.Pack(rest) // what cannot be kept asks again by itself
	}
	return s
}

func claimStatus(c lease.Claim, since int64) v1alpha1.LeaseClaim {
	out := v1alpha1.LeaseClaim{
		WorkflowID: c.WorkflowID, RunID: c.RunID,
		FailureDomain: v1alpha1.FailureDomain{Type: c.Domain.Type, Name: c.Domain.Name}, Ask: c.Ask, Node: c.Node,
		Daemons: c.Daemons, Reason: c.Reason, Priority: c.Priority.String(), Token: c.Token, Since: metav1.Unix(since, 0),
		WaitsFor: c.WaitsFor, Observing: c.Observing, Finishing: c.Finishing, NooutHosts: c.FlagHosts,
		DownBefore: c.DownBefore, Stops: string(c.Stops), Ready: c.Ready,
	}
	if c.Reserved() {
		out.Reserve = &metav1.Duration{Duration: c.Reserve}
	}
	if c.Turn > 0 {
		out.Turn = &metav1.Duration{Duration: c.Turn}
	}
	return out
}

// memoryOf is the reverse of what statusOf writes of the lease and of noout.
func memoryOf(s *v1alpha1.MaintenancePolicyStatus) activities.Memory {
	var m activities.Memory
	m.Lease.Token, m.Claim, m.Fencing = s.Lease.Token, claimOf(s), ledgerOf(s.Fencing)
	claims := func(from []v1alpha1.LeaseClaim, granted bool) []lease.Claim {
		var out []lease.Claim
		for _, c := range from {
			p, _ := lease.ParsePriority(c.Priority)
			x := lease.Claim{
				WorkflowID: c.WorkflowID, RunID: c.RunID,
				Domain: storage.FailureDomain{Type: c.FailureDomain.Type, Name: c.FailureDomain.Name}, Ask: c.Ask, Node: c.Node,
				Daemons: c.Daemons, Reason: c.Reason, Priority: p, Token: c.Token, WaitsFor: c.WaitsFor, Requested: c.Since.UTC(),
				Observing: c.Observing, Finishing: c.Finishing, FlagHosts: c.NooutHosts, DownBefore: c.DownBefore,
				Stops: lease.Stops(c.Stops), Ready: c.Ready,
			}
			if c.Reserve != nil {
				x.Reserve = c.Reserve.Duration
			}
			if c.Turn != nil {
				x.Turn = c.Turn.Duration
			}
			if granted {
				x.Granted = c.Since.UTC()
			}
			out = append(out, x)
		}
		return out
	}
	m.Lease.Holders, m.Lease.Queue = claims(s.Lease.Holders, true), claims(s.Lease.Queue, false)
	if len(s.Lease.Packed) > 0 {
		rest, _ := lease.Unpack(s.Lease.Packed) // damaged by somebody: whoever was in it asks again by itself
		m.Lease.Queue = append(m.Lease.Queue, rest...)
	}
	for _, n := range s.Noout {
		record := flags.Record{
			Host: n.Host, Owner: n.Owner, Since: n.Since.UTC(), Expires: n.Expires.UTC(), Confirmed: n.Confirmed,
			Withdrawn: n.Withdrawn, ID: n.HostID, Claimed: n.Claimed, Unsure: n.Unsure,
		}
		if n.Until != nil {
			record.Until = n.Until.UTC()
		}
		m.Flags = append(m.Flags, record)
	}
	return m
}

func eventName(about string, e activities.Event) string {
	h := fnv.New64a()
	for _, s := range []string{e.Node, e.Reason, e.Message} {
		_, _ = h.Write([]byte(s))
	}
	return fmt.Sprintf("%s.%x%08x", about, e.At.UnixMilli(), h.Sum64()&0xffffffff)
}

func nodeEventUID(node string) types.UID { return types.UID(node) }

// sortedNames is for messages: the same objects must always give the same words.
func sortedNames(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}
