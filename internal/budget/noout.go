package budget

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Noout is a noout flag of ours on one host of the storage cluster's topology. It is recorded before it is set, so that
// a crash in between leaves a record without a flag, which is harmless, and never a flag without a record.
type Noout struct {
	Host    string    `json:"host"`  // as it is called now
	Owner   string    `json:"owner"` // workflow ID
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
	// Confirmed: it was seen on the host after it was set. When it is then missing, a person took it away, and we do not
	// set it again.
	Confirmed bool `json:"confirmed,omitempty"`
	// Withdrawn: no longer set, kept only so that it is not set again for the same owner, or because of Until.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// ID is the host's in the topology, which stays when the host is renamed; 0: not known, or an OSD.
	ID int `json:"id,omitempty"`
	// Claimed is the name of the host in the owner's claim, if the host was renamed since.
	Claimed string `json:"claimed,omitempty"`
	// Unsure: a command that sets it got no answer. It may still be carried out, even after the flag was unset.
	Unsure bool `json:"unsure,omitempty"`
	// Answered: a command that sets it was answered, so that what is seen on the host is ours.
	Answered bool `json:"answered,omitempty"`
	// Until is when a command without an answer is given up. Until then the host is unset again whenever noout is seen
	// there.
	Until time.Time `json:"until,omitzero"`
}

// CoveredBy tells whether a keeper that knew only of another record would do for this flag all that has to be done.
func (n Noout) CoveredBy(written Noout) bool {
	written.Confirmed, written.Answered = n.Confirmed, n.Answered
	written.Unsure = written.Unsure && n.Unsure
	return written == n
}

// lateFor is how long after an unset a set that got no answer may still be carried out. A mon outside of quorum holds
// commands back, and hands them on when it is back; elections take seconds.
const lateFor = time.Minute

// NooutInput is what PlanNoout decides from.
type NooutInput struct {
	Now     time.Time
	Timeout time.Duration // of each flag, from the grant on
	Holders []lease.Claim
	Records []Noout
	Present []string       // hosts that carry noout in the storage cluster
	Hosts   []storage.Host // that the topology has, and
	Gone    []storage.Host // that it lacks, of those of the records and the holders
	Nodes   []storage.Node // of the holders
}

// NooutPlan is what to do about noout.
type NooutPlan struct {
	Records []Noout  // to be remembered before anything is done
	Set     []string // hosts
	Unset   []string // hosts
	News    []News
}

// News is something that a person should hear of.
type News struct{ Reason, Message string }

// The reasons of News about noout.
const (
	ReasonNooutGone    = "NooutGone"
	ReasonNooutRenamed = "NooutHostRenamed"
	ReasonNooutClaimed = "NooutClaimed"
	ReasonNooutLate    = "NooutLate"
)

// PlanNoout compares what the holders of the lease want with what is recorded and what is there.
//
// A host that carries noout without a record of ours was flagged by a person: it is left alone, now and at the end.
// Flags have no owner, so there is one exception. After a set that got no answer, a flag on that host may be that set's
// or a person's, who set it in the same seconds. It is taken for ours: a flag that is left keeps Ceph from healing
// after the next failure, for ever; one that is unset too early costs a copy of data. The person is told.
func PlanNoout(in NooutInput) NooutPlan {
	var plan NooutPlan
	records := in.follow(&plan)
	wanted := in.wanted(records)
	for _, r := range records {
		is := slices.Contains(in.Present, r.Host)
		h, want := wanted[r.Host]
		if want && !r.isFor(h.Claim) {
			// The host changed hands. What an earlier holder's flag went through says nothing about the new one's.
			if r.Withdrawn && r.Until.IsZero() {
				continue
			}
			r = in.record(r.Host, h, r.Unsure)
			r.Confirmed = is
		}
		if want {
			r.Expires = h.Granted.Add(in.Timeout) // the policy may have changed
		}
		late := in.Now.Before(r.Until)
		if is && r.Unsure && !r.Answered && !r.Confirmed && !r.Withdrawn {
			plan.tell(ReasonNooutClaimed, "noout on host %s is taken for lockkeeper's, for %s, and unset when that is over: "+
				"Ceph gave no answer when lockkeeper set it. If a person set it, too: unset it, wait for 5 s and set it again",
				r.Host, r.Owner)
			r.Confirmed = true
		}
		switch {
		case late && is:
			plan.tell(ReasonNooutLate,
				"noout is on host %s after it was unset: a command that got no answer, of lockkeeper for %s, "+
					"was carried out late. It is unset again. If a person set it: set it again after %s",
				r.Host, r.Owner, r.Until.UTC().Format(time.RFC3339))
			plan.Unset = append(plan.Unset, r.Host)
		case late:
		case r.Withdrawn && !want:
			continue
		case r.Withdrawn:
			r.Until = time.Time{}
		case !want || !in.Now.Before(r.Expires):
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
	left := slices.Sorted(maps.Keys(wanted)) //workflowcheck:ignore sorted before anybody sees the order
	for _, host := range left {
		r := in.record(host, wanted[host], false)
		if !in.Now.Before(r.Expires) || slices.Contains(in.Present, host) {
			continue
		}
		plan.Records = append(plan.Records, r)
		plan.Set = append(plan.Set, host)
	}
	return plan
}

// follow returns the records under the names that their hosts have now, without those whose hosts the topology no
// longer has. Gone is what the topology lacks: that a command is refused proves nothing.
func (in NooutInput) follow(plan *NooutPlan) []Noout {
	var out []Noout
	for _, r := range in.Records {
		now := in.host(r)
		switch {
		case slices.Contains(in.Gone, storage.Host{Name: r.Host, ID: r.ID}):
			if !r.Withdrawn {
				plan.tell(ReasonNooutGone, "host %s is no longer in the storage cluster's topology, and its noout, of %s, is gone "+
					"with it", r.Host, r.Owner)
			}
			continue
		case now.Name != "" && now.Name != r.Host:
			plan.tell(ReasonNooutRenamed, "host %s is called %s now; its noout is still that of %s", r.Host, now.Name, r.Owner)
			if r.Claimed == "" {
				r.Claimed = r.Host
			}
			r.Host = now.Name
		}
		r.ID = now.ID
		if !slices.ContainsFunc(out, func(x Noout) bool { return x.Host == r.Host }) {
			out = append(out, r)
		}
	}
	return out
}

// host is that of a record as the topology has it now; the record's own where nothing is known.
func (in NooutInput) host(r Noout) storage.Host {
	for _, h := range in.Hosts {
		if r.ID != 0 && h.ID == r.ID || r.ID == 0 && h.Name == r.Host {
			return h
		}
	}
	return storage.Host{Name: r.Host, ID: r.ID}
}

// want is a holder that wants noout on a host.
type want struct {
	lease.Claim
	claimed string // the name of the host in the claim, if it has another one now
}

// wanted are the hosts that a holder wants noout on, as they are called now. Of a name that the topology lacks the
// record knows where it went; without a record, the hosts that the claim's node has now stand for it.
func (in NooutInput) wanted(records []Noout) map[string]want {
	wanted := map[string]want{}
	add := func(host string, w want) {
		if _, dup := wanted[host]; !dup {
			wanted[host] = w
		}
	}
	for _, h := range in.Holders {
		if h.Reserved() {
			continue // nothing goes yet
		}
		if h.Stops == lease.StopOneByOne {
			continue // each goes when the data of those before has moved, which noout would prevent
		}
		for _, host := range h.FlagHosts {
			gone := slices.Contains(in.Gone, storage.Host{Name: host})
			if !gone {
				add(host, want{Claim: h})
			}
			for _, r := range records {
				if r.Claimed == host {
					add(r.Host, want{h, host})
					gone = false
				}
			}
			if gone {
				for _, now := range in.hostsOf(h.Node) {
					add(now, want{h, host})
				}
			}
		}
	}
	return wanted
}

func (in NooutInput) hostsOf(node string) []string {
	for _, n := range in.Nodes {
		if node != "" && n.Name == node {
			return n.CrushHosts()
		}
	}
	return nil
}

func (in NooutInput) record(host string, w want, unsure bool) Noout {
	r := Noout{
		Host: host, Owner: w.WorkflowID, Since: in.Now, Expires: w.Granted.Add(in.Timeout), Unsure: unsure,
		Claimed: w.claimed,
	}
	r.ID = in.host(r).ID
	return r
}

func (p *NooutPlan) tell(reason, format string, args ...any) {
	p.News = append(p.News, News{reason, fmt.Sprintf(format, args...)})
}

// isFor tells whether a flag was set under this very grant.
func (n Noout) isFor(h lease.Claim) bool {
	return n.Owner == h.WorkflowID && !n.Since.Before(h.Granted)
}

// StillHeld are those of the hosts on which a holder of the lease still wants the flag that is recorded.
func StillHeld(hosts []string, records []Noout, holders []lease.Claim) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		return !slices.ContainsFunc(records, func(r Noout) bool {
			return r.Host == host && slices.ContainsFunc(holders, r.isFor)
		})
	})
}

// Asked takes note that noout is about to be set on hosts. From now on, and until an answer comes, nobody knows whether
// it is. before are those of which that was not known before either.
func Asked(records []Noout, hosts []string) (out []Noout, before []string) {
	out = slices.Clone(records)
	for i := range out {
		if slices.Contains(hosts, out[i].Host) {
			if out[i].Unsure {
				before = append(before, out[i].Host)
			}
			out[i].Unsure = true
		}
	}
	return out, before
}

// NotAsked takes back what Asked noted, for hosts that nothing was asked about in the end.
func NotAsked(records []Noout, hosts, before []string) []Noout {
	out := slices.Clone(records)
	for i := range out {
		if slices.Contains(hosts, out[i].Host) {
			out[i].Unsure = slices.Contains(before, out[i].Host)
		}
	}
	return out
}

// Answered takes note that what was Asked got an answer. An answer to a later attempt, which leaves it unsure, says
// nothing about the first one, which may still be carried out.
func Answered(records []Noout, hosts, before []string, unsure bool) []Noout {
	out := slices.Clone(records)
	for i := range out {
		if slices.Contains(hosts, out[i].Host) {
			out[i].Answered = true
			out[i].Unsure = unsure || slices.Contains(before, out[i].Host)
		}
	}
	return out
}

// Withdraw takes note that the flag of a host is unset. Only then may its record be forgotten, and it is, unless a
// holder still wants the flag: then the record says that it had its time. While a set without an answer may still be
// carried out the record stays as well.
func Withdraw(now time.Time, records []Noout, host string, holders []lease.Claim) []Noout {
	var out []Noout
	for _, r := range records {
		if r.Host == host {
			wanted := slices.ContainsFunc(holders, func(c lease.Claim) bool {
				return slices.Contains(c.FlagHosts, host) || r.Claimed != "" && slices.Contains(c.FlagHosts, r.Claimed)
			})
			if !wanted && !r.Unsure {
				continue
			}
			if r.Unsure && r.Until.IsZero() {
				r.Until = now.Add(lateFor)
			}
			r.Withdrawn = true
		}
		out = append(out, r)
	}
	return out
}
