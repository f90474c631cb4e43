// Package flags is the ledger of what is ours on a storage cluster's topology and says not whose it is: flags that a
// person may have set as well. Each is recorded before it is set, and set for the claim that wants it; what was asked
// of the storage cluster and got no answer is remembered until it cannot come any more. What the flag is called, and
// what it does, is for a kind of storage to say.
package flags

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Kind is what a kind of storage calls its flag. The zero Kind: it has none.
type Kind struct {
	Name  string // as people set it
	Title string // the same, as the reasons of its events begin
	Of    string // who carries it, as people call that kind of storage
	Undo  string // the command that takes it from the hosts whose names follow
}

// Record is a flag of ours on one host of the storage cluster's topology. It is recorded before it is set, so that a
// crash in between leaves a record without a flag, which is harmless, and never a flag without a record.
type Record struct {
	Host    string    `json:"host"`  // as it is called now
	Owner   string    `json:"owner"` // workflow ID
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
	// Confirmed: it was seen on the host after it was set. When it is then missing, a person took it away, and we do not
	// set it again.
	Confirmed bool `json:"confirmed,omitempty"`
	// Withdrawn: no longer set, kept only so that it is not set again for the same owner, or because of Until.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// ID is the host's in the topology, which stays when the host is renamed; 0: not known, or it has none.
	ID int `json:"id,omitempty"`
	// Claimed is the name of the host in the owner's claim, if the host was renamed since.
	Claimed string `json:"claimed,omitempty"`
	// Unsure: a command that sets it got no answer. It may still be carried out, even after the flag was unset.
	Unsure bool `json:"unsure,omitempty"`
	// Answered: a command that sets it was answered, so that what is seen on the host is ours.
	Answered bool `json:"answered,omitempty"`
	// Until is when a command without an answer is given up. Until then the host is unset again whenever the flag is seen
	// there.
	Until time.Time `json:"until,omitzero"`
}

// CoveredBy tells whether a keeper that knew only of another record would do for this flag all that has to be done.
func (r Record) CoveredBy(written Record) bool {
	written.Confirmed, written.Answered = r.Confirmed, r.Answered
	written.Unsure = written.Unsure && r.Unsure
	return written == r
}

// lateFor is how long after an unset a set that got no answer may still be carried out. A part of the
// storage cluster that is cut off holds commands back, and hands them on when it is back, which takes seconds.
const lateFor = time.Minute

// Input is what is wanted of flags, what is recorded of them, and what is seen.
type Input struct {
	Kind    Kind
	Now     time.Time
	Timeout time.Duration // of each flag, from the grant on
	Holders []lease.Claim
	Records []Record
	Present []string       // hosts that carry the flag in the storage cluster
	Hosts   []storage.Host // that the topology has, and
	Gone    []storage.Host // that it lacks, of those of the records and the holders
	Nodes   []storage.Node // of the holders
	// HostsOf are the hosts of each of these nodes, as they are called now.
	HostsOf map[string][]string
}

// Plan is which flags are to be set and unset.
type Plan struct {
	Records []Record // to be remembered before anything is done
	Set     []string // hosts
	Unset   []string // hosts
	News    []News
}

// News is something that a person should hear of.
type News struct {
	Reason, Message string
	Warning         bool
}

// What News are about; their reasons begin with the flag's title.
const (
	gone    = "Gone"
	renamed = "HostRenamed"
	claimed = "Claimed"
	late    = "Late"
)

// Decide compares what the holders of the lease want with what is recorded and what is there.
//
// A host that carries the flag without a record of ours was flagged by a person: it is left alone, now and at the end.
// Flags have no owner, so there is one exception. After a set that got no answer, a flag on that host may be that set's
// or a person's, who set it in the same seconds. It is taken for ours: a flag that is left keeps the storage from
// healing after the next failure, for ever; one that is unset too early costs a copy of data. The person is told.
func Decide(in Input) Plan {
	var plan Plan
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
		mayCome := in.Now.Before(r.Until)
		if is && r.Unsure && !r.Answered && !r.Confirmed && !r.Withdrawn {
			plan.tell(in.Kind, claimed, "%s on host %s is taken for lockkeeper's, for %s, and unset when that is over: "+
				"%s gave no answer when lockkeeper set it. If a person set it, too: unset it, wait for 5 s and set it again",
				in.Kind.Name, r.Host, r.Owner, in.Kind.Of)
			r.Confirmed = true
		}
		switch {
		case mayCome && is:
			plan.tell(in.Kind, late,
				"%s is on host %s after it was unset: a command that got no answer, of lockkeeper for %s, "+
					"was carried out late. It is unset again. If a person set it: set it again after %s",
				in.Kind.Name, r.Host, r.Owner, r.Until.UTC().Format(time.RFC3339))
			plan.Unset = append(plan.Unset, r.Host)
		case mayCome:
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
func (in Input) follow(plan *Plan) []Record {
	var out []Record
	for _, r := range in.Records {
		now := in.host(r)
		switch {
		case slices.Contains(in.Gone, storage.Host{Name: r.Host, ID: r.ID}):
			if !r.Withdrawn {
				plan.tell(in.Kind, gone, "host %s is no longer in the storage cluster's topology, and its %s, of %s, is gone "+
					"with it", r.Host, in.Kind.Name, r.Owner)
			}
			continue
		case now.Name != "" && now.Name != r.Host:
			plan.tell(in.Kind, renamed, "host %s is called %s now; its %s is still that of %s", r.Host, now.Name, in.Kind.Name,
				r.Owner)
			if r.Claimed == "" {
				r.Claimed = r.Host
			}
			r.Host = now.Name
		}
		r.ID = now.ID
		if !slices.ContainsFunc(out, func(x Record) bool { return x.Host == r.Host }) {
			out = append(out, r)
		}
	}
	return out
}

// host is that of a record as the topology has it now; the record's own where nothing is known.
func (in Input) host(r Record) storage.Host {
	for _, h := range in.Hosts {
		if r.ID != 0 && h.ID == r.ID || r.ID == 0 && h.Name == r.Host {
			return h
		}
	}
	return storage.Host{Name: r.Host, ID: r.ID}
}

// want is a holder that wants the flag on a host.
type want struct {
	lease.Claim
	claimed string // the name of the host in the claim, if it has another one now
}

// wanted are the hosts that a holder wants the flag on, as they are called now. Of a name that the topology lacks the
// record knows where it went; without a record, the hosts that the claim's node has now stand for it.
func (in Input) wanted(records []Record) map[string]want {
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
			continue // each goes when the data of those before has moved, which the flag would prevent
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
				for _, now := range in.HostsOf[h.Node] {
					add(now, want{h, host})
				}
			}
		}
	}
	return wanted
}

func (in Input) record(host string, w want, unsure bool) Record {
	r := Record{
		Host: host, Owner: w.WorkflowID, Since: in.Now, Expires: w.Granted.Add(in.Timeout), Unsure: unsure,
		Claimed: w.claimed,
	}
	r.ID = in.host(r).ID
	return r
}

func (p *Plan) tell(kind Kind, about, format string, args ...any) {
	p.News = append(p.News, News{kind.Title + about, fmt.Sprintf(format, args...), about != renamed})
}

// isFor tells whether a flag was set under this very grant.
func (r Record) isFor(h lease.Claim) bool {
	return r.Owner == h.WorkflowID && !r.Since.Before(h.Granted)
}

// StillHeld are those of the hosts on which a holder of the lease still wants the flag that is recorded.
func StillHeld(hosts []string, records []Record, holders []lease.Claim) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		return !slices.ContainsFunc(records, func(r Record) bool {
			return r.Host == host && slices.ContainsFunc(holders, r.isFor)
		})
	})
}

// Asked takes note that the flag is about to be set on hosts. From now on, and until an answer comes, nobody knows
// whether it is. before are those of which that was not known before either.
func Asked(records []Record, hosts []string) (out []Record, before []string) {
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
func NotAsked(records []Record, hosts, before []string) []Record {
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
func Answered(records []Record, hosts, before []string, unsure bool) []Record {
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
func Withdraw(now time.Time, records []Record, host string, holders []lease.Claim) []Record {
	var out []Record
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
