package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the keeper's flags on the storage cluster: what it wants of them, and what it knows. The guard says what
// they are called and who is to have them (ADR 30).

// switchWithin is how long a storage cluster may take to set a flag, which is as long as it takes to agree. One that is
// split takes for ever, and what is open must not stay so meanwhile.
const switchWithin = 2500 * time.Millisecond

// flagged is the part of a mind that is about flags.
type flagged struct {
	carriers []string // the hosts that carry the flag, as of the last look and of what was switched since
	// refused says of hosts why the storage cluster did not switch their flag in this pass.
	refused map[string]string
}

// flagPlan is the part of a plan that is about flags.
type flagPlan struct {
	flag   string // what the storage calls it
	flags  flags.Plan
	before []string // hosts of which it was not known before either whether the flag is on its way to them
}

// FlagStatus is the part of a keeper's status that is about flags.
type FlagStatus struct {
	Flags []flags.Record `json:"noout,omitempty"`
}

func (m *mind) flagStatus() FlagStatus { return FlagStatus{m.state.Memory.Flags} }

// flag is what the storage calls it.
func (m *mind) flag() string { return m.flagKind().Name }

// dropFlags forgets what was unset, when another policy is in charge.
func (m *mind) dropFlags() { m.state.Memory.Flags = nil }

// sawFlags takes note of what the look saw.
func (m *mind) sawFlags() { m.carriers = slices.Clone(m.observed.Seen.View.Flagged) }

// onlyFlags tells whether all that the watch saw is what the keeper did to flags itself.
func (m *mind) onlyFlags(w activities.Watched) bool { return w.OnlyFlags(m.watched(), m.carriers) }

// ourFlags are those of which there is a record.
func (m *mind) ourFlags() []flags.Record { return m.state.Memory.Flags }

// planFlags begins the part of a plan that is about flags.
func (m *mind) planFlags(now time.Time, p *plan) {
	p.flag, p.flags, p.Within = m.flag(), m.decideFlags(now), switchWithin
	m.state.Memory.Flags = p.flags.Records
	for _, n := range p.flags.News {
		m.news = append(m.news, activities.Event{Reason: n.Reason, Message: n.Message, Warning: n.Warning, At: now})
	}
}

// askFlags takes note of what is about to be asked of the storage cluster.
func (m *mind) askFlags(p *plan) {
	m.refused = nil
	p.before = m.askFlag(p.flags)
}

// switchFlags has the plan switch what is still wanted.
func (m *mind) switchFlags(p *plan) {
	p.flags.Set = m.stillHeld(p.flags.Set, p.before)
	p.Set, p.Unset = m.flagInput(p.flags.Set, true), m.flagInput(p.flags.Unset, false)
}

// foretellFlags takes note of what will be known when all goes as it is meant.
func (m *mind) foretellFlags(now time.Time, p *plan) {
	m.answered(p.flags, p.before, false)
	m.withdraw(now, p)
}

// tookFlags takes in what became of the switches. p.mute is what got no answer.
func (m *mind) tookFlags(now time.Time, p *plan, r activities.CarryResult) error {
	if failed := r.Set.Err(); failed != nil {
		// A grant without its flag would let the storage move data about; the holders hear of it when it is set.
		p.mute = p.flag + notSet
		return failed
	}
	m.answered(p.flags, p.before, r.Set.Result.Unsure)
	if failed := r.Unset.Err(); failed != nil {
		p.mute = p.flag + notUnset
		return failed
	}
	m.withdraw(now, p)
	return nil
}

// What gets no answer of the storage cluster, after the flag's name.
const (
	notSet   = " could not be set"
	notUnset = " could not be unset"
)

// lostFlags is what nobody knows of the switches; "": there were none.
func (p *plan) lostFlags() string {
	switch {
	case p.Set != nil:
		return p.flag + notSet
	case p.Unset != nil:
		return p.flag + notUnset
	default:
		return ""
	}
}

// flagsSummary is what Temporal's UI shows of the switches; "": there are none.
func (p *plan) flagsSummary() string {
	switch {
	case p.Set != nil:
		return "set " + p.flag + " on " + strings.Join(p.Set.Hosts, ", ")
	case p.Unset != nil:
		return "unset " + p.flag + " on " + strings.Join(p.Unset.Hosts, ", ")
	default:
		return ""
	}
}

// abandonFlags forgets flags on a storage cluster that can no longer be reached under this policy, and tells
// people. To unset them where the policy points now would be to touch flags of somebody else.
func (m *mind) abandonFlags(now time.Time) {
	if hosts := m.flaggedHosts(); len(hosts) > 0 {
		flag := m.flagKind()
		m.news = append(m.news, activities.Event{
			Reason: ReasonLeftBehind, Warning: true, At: now,
			Message: clipTo(fmt.Sprintf("%s may be left in the %s cluster with the ID %s, which this policy no longer means. "+
				"There: %s %s", flag.Name, flag.Of, m.state.Memory.Claim.ID, flag.Undo, strings.Join(hosts, " ")), mostEvent),
		})
	}
	m.state.Memory.Flags = nil
}

func (m *mind) decideFlags(now time.Time) flags.Plan {
	view := m.observed.Seen.View
	if view.Unavailable != "" {
		return flags.Plan{Records: m.state.Memory.Flags}
	}
	return m.guard().Flags(flags.Input{
		Now: now, Timeout: m.observed.Settings.MaintenanceTimeout, Holders: m.state.Memory.Lease.Holders,
		Records: m.state.Memory.Flags, Present: view.Flagged, Hosts: view.Hosts, Gone: view.Gone, Nodes: view.Nodes,
	})
}

// flagHosts are those of which the keeper has to know what they are called, and whether they are there. Claims far
// behind in the queue have their turn later, as in interest.
func (m *mind) flagHosts() (hosts []storage.Host) {
	add := func(h storage.Host) {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	for _, n := range m.state.Memory.Flags {
		add(storage.Host{Name: n.Host, ID: n.ID})
	}
	claims := slices.Concat(m.state.Memory.Lease.Holders, m.state.Memory.Lease.Queue)
	for _, c := range claims[:min(len(claims), mostClaimsSeen)] {
		for _, host := range c.FlagHosts {
			add(storage.Host{Name: host})
		}
		if c.Next != nil {
			for _, host := range c.Next.FlagHosts {
				add(storage.Host{Name: host})
			}
		}
	}
	return hosts
}

// askedAbout tells whether the last look was asked about all hosts of a claim. Of another host the topology's ID is not
// known, and a flag that is set there would be lost when somebody renames it.
func (m *mind) askedAbout(c lease.Claim) bool {
	return !slices.ContainsFunc(c.FlagHosts, func(host string) bool {
		return !slices.ContainsFunc(m.asked, func(h storage.Host) bool { return h.Name == host })
	})
}

// askFlag writes down what is about to be set, of which nothing is known until there is an answer. before is of what
// that was true already.
func (m *mind) askFlag(plan flags.Plan) (before []string) {
	if len(plan.Set) > 0 {
		m.state.Memory.Flags, before = flags.Asked(m.state.Memory.Flags, plan.Set)
	}
	return before
}

// stillHeld leaves out the hosts of jobs that gave their lease back while the record was being written. The next pass
// forgets their records.
func (m *mind) stillHeld(hosts, before []string) []string {
	held := flags.StillHeld(hosts, m.state.Memory.Flags, m.state.Memory.Lease.Holders)
	left := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return slices.Contains(held, host) })
	m.state.Memory.Flags = flags.NotAsked(m.state.Memory.Flags, left, before)
	return held
}

// answered takes note that there is an answer about what was asked. A refusal is an answer, too, but nothing was set
// then.
func (m *mind) answered(plan flags.Plan, before []string, unsure bool) {
	set := slices.DeleteFunc(slices.Clone(plan.Set), func(host string) bool { return m.refused[host] != "" })
	if len(set) > 0 {
		m.state.Memory.Flags = flags.Answered(m.state.Memory.Flags, set, before, unsure)
	}
}

// flagInput switches the flag on all of these hosts at once: for each by itself the storage cluster would take its
// time. nil: there are none.
func (m *mind) flagInput(hosts []string, on bool) *activities.FlagInput {
	if len(hosts) == 0 {
		return nil
	}
	return &activities.FlagInput{Cluster: m.cluster, Hosts: hosts, On: on, IDs: m.hostIDs(hosts)}
}

// switched takes in what became of a switch. Hosts that the storage cluster refuses are in m.refused.
func (m *mind) switched(in *activities.FlagInput, a activities.Attempt[activities.FlagResult]) {
	if in == nil || !a.Done() {
		return
	}
	what := "unset " + m.flag() + " on "
	if in.On {
		what = "set " + m.flag() + " on "
	}
	for _, x := range a.Result.Refused {
		if m.refused == nil {
			m.refused = map[string]string{}
		}
		m.refused[x.Host] = what + x.Host + ": " + x.Reason
	}
	for _, host := range in.Hosts {
		at, has := slices.BinarySearch(m.carriers, host)
		switch {
		case m.refused[host] != "" || has == in.On:
		case in.On:
			m.carriers = slices.Insert(m.carriers, at, host)
		default:
			m.carriers = slices.Delete(m.carriers, at, at+1)
		}
	}
}

// withdraw takes note that the flag is unset.
func (m *mind) withdraw(now time.Time, p *plan) {
	for _, host := range p.flags.Unset {
		if _, refused := m.refused[host]; !refused {
			m.state.Memory.Flags = flags.Withdraw(now, m.state.Memory.Flags, host, m.state.Memory.Lease.Holders)
		}
	}
}

func (m *mind) hostIDs(hosts []string) map[string]int {
	ids := map[string]int{}
	for _, n := range m.state.Memory.Flags {
		if n.ID != 0 && slices.Contains(hosts, n.Host) {
			ids[n.Host] = n.ID
		}
	}
	return ids
}

// refusal is what the storage cluster refused in this pass; nil: nothing. The next look tells whether the host is there
// at all.
func (m *mind) refusal() error {
	if len(m.refused) == 0 {
		return nil
	}
	hosts := sortedKeys(m.refused)
	return fmt.Errorf("%s%s", m.refused[hosts[0]], andMore(hosts))
}

// refusedOf says why a claim's flag is not in place; "" when it is.
func (m *mind) refusedOf(c lease.Claim) string {
	hosts := c.FlagHosts
	for _, n := range m.state.Memory.Flags {
		if why := m.refused[n.Host]; why != "" && (slices.Contains(hosts, n.Host) || slices.Contains(hosts, n.Claimed)) {
			return why
		}
	}
	return ""
}

// flaggedHosts are those that carry the flag because of us, or may yet.
func (m *mind) flaggedHosts() (hosts []string) {
	for _, n := range m.state.Memory.Flags {
		if !n.Withdrawn || !n.Until.IsZero() {
			hosts = append(hosts, n.Host)
		}
	}
	return hosts
}

// forgetFlags forgets what was unset. What was refused, or may still be set by a command without an answer, stays, and
// is returned.
func (m *mind) forgetFlags(now time.Time) (waits []string) {
	for _, host := range m.flaggedHosts() {
		if why, refused := m.refused[host]; refused {
			waits = append(waits, m.flag()+": "+why)
		} else {
			m.state.Memory.Flags = flags.Withdraw(now, m.state.Memory.Flags, host, nil)
		}
	}
	m.state.Memory.Flags = slices.DeleteFunc(m.state.Memory.Flags, func(n flags.Record) bool {
		return n.Withdrawn && !now.Before(n.Until)
	})
	for _, n := range m.state.Memory.Flags {
		if n.Withdrawn {
			waits = append(waits, fmt.Sprintf(
				"%s: %s on %s is unset, but a command that sets it got no answer and may be carried out until then",
				clock(n.Until), m.flag(), n.Host))
		}
	}
	return waits
}
