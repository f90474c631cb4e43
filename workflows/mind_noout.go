package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the keeper's noout flags: what it wants of the storage cluster, and what it knows of it. The rest of the
// keeper speaks of flags: another kind of storage has none, or others (ADR 30).

// nooutWithin is how long a storage cluster may take to set a flag, which is as long as it proposes and agrees. Without
// a quorum it takes for ever, and what is open must not stay so meanwhile.
const nooutWithin = 2500 * time.Millisecond

// flags are the part of a mind that is about noout.
type flags struct {
	noout []string // the hosts that carry it, as of the last look and of what was switched since
	// refused says of hosts why the storage cluster did not switch their noout in this pass.
	refused map[string]string
}

// flagPlan is the part of a plan that is about noout.
type flagPlan struct {
	noout  budget.NooutPlan
	before []string // hosts of which it was not known before either whether noout is on its way to them
}

// FlagStatus is the part of a keeper's status that is about noout.
type FlagStatus struct {
	Noout []budget.Noout `json:"noout,omitempty"`
}

func (m *mind) flagStatus() FlagStatus { return FlagStatus{m.state.Memory.Noout} }

// dropFlags forgets what was unset, when another policy is in charge.
func (m *mind) dropFlags() { m.state.Memory.Noout = nil }

// sawFlags takes note of what the look saw.
func (m *mind) sawFlags() { m.noout = slices.Clone(m.observed.Seen.View.Noout) }

// onlyFlags tells whether all that the watch saw is what the keeper did to noout itself.
func (m *mind) onlyFlags(w activities.Watched) bool { return w.OnlyNoout(m.watched(), m.noout) }

// ourFlags are those of which there is a record.
func (m *mind) ourFlags() []budget.Flag { return m.state.Memory.Noout }

// planFlags begins the part of a plan that is about noout.
func (m *mind) planFlags(now time.Time, p *plan) {
	p.noout, p.Within = m.planNoout(now), nooutWithin
	m.state.Memory.Noout = p.noout.Records
	for _, n := range p.noout.News {
		m.news = append(m.news, activities.Event{
			Reason: n.Reason, Message: n.Message, Warning: n.Reason != budget.ReasonNooutRenamed, At: now,
		})
	}
}

// askFlags takes note of what is about to be asked of the storage cluster.
func (m *mind) askFlags(p *plan) {
	m.refused = nil
	p.before = m.askNoout(p.noout)
}

// switchFlags has the plan switch what is still wanted.
func (m *mind) switchFlags(p *plan) {
	p.noout.Set = m.stillHeld(p.noout.Set, p.before)
	p.Set, p.Unset = m.nooutInput(p.noout.Set, true), m.nooutInput(p.noout.Unset, false)
}

// foretellFlags takes note of what will be known when all goes as it is meant.
func (m *mind) foretellFlags(now time.Time, p *plan) {
	m.answered(p.noout, p.before, false)
	m.withdraw(now, p)
}

// tookFlags takes in what became of the switches. p.mute is what got no answer.
func (m *mind) tookFlags(now time.Time, p *plan, r activities.CarryResult) error {
	if failed := r.Set.Err(); failed != nil {
		// A grant without its noout would let the storage move data about; the holders hear of it when it is set.
		p.mute = notSet
		return failed
	}
	m.answered(p.noout, p.before, r.Set.Result.Unsure)
	if failed := r.Unset.Err(); failed != nil {
		p.mute = notUnset
		return failed
	}
	m.withdraw(now, p)
	return nil
}

// What gets no answer of the storage cluster.
const (
	notSet   = "noout could not be set"
	notUnset = "noout could not be unset"
)

// lostFlags is what nobody knows of the switches; "": there were none.
func (p *plan) lostFlags() string {
	switch {
	case p.Set != nil:
		return notSet
	case p.Unset != nil:
		return notUnset
	default:
		return ""
	}
}

// flagsSummary is what Temporal's UI shows of the switches; "": there are none.
func (p *plan) flagsSummary() string {
	switch {
	case p.Set != nil:
		return "set noout on " + strings.Join(p.Set.Hosts, ", ")
	case p.Unset != nil:
		return "unset noout on " + strings.Join(p.Unset.Hosts, ", ")
	default:
		return ""
	}
}

// abandonFlags forgets noout flags on a storage cluster that can no longer be reached under this policy, and tells
// people. To unset them where the policy points now would be to touch flags of somebody else.
func (m *mind) abandonFlags(now time.Time) {
	if hosts := m.flagged(); len(hosts) > 0 {
		m.news = append(m.news, activities.Event{
			Reason: ReasonLeftBehind, Warning: true, At: now,
			Message: clipTo(fmt.Sprintf(
				"noout may be left in the Ceph cluster with the ID %s, which this policy no longer means. There: ceph osd "+
					"unset-group noout %s",
				m.state.Memory.Claim.ID, strings.Join(hosts, " ")), mostEvent),
		})
	}
	m.state.Memory.Noout = nil
}

func (m *mind) planNoout(now time.Time) budget.FlagPlan {
	view := m.observed.Seen.View
	if view.Unavailable != "" {
		return budget.FlagPlan{Records: m.state.Memory.Noout}
	}
	return m.guard().Flags(budget.FlagInput{
		Now: now, Timeout: m.observed.Settings.MaintenanceTimeout, Holders: m.state.Memory.Lease.Holders,
		Records: m.state.Memory.Noout, Present: view.Noout, Hosts: view.Hosts, Gone: view.Gone, Nodes: view.Nodes,
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
	for _, n := range m.state.Memory.Noout {
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
// known, and noout that is set there would be lost when somebody renames it.
func (m *mind) askedAbout(c lease.Claim) bool {
	return !slices.ContainsFunc(c.FlagHosts, func(host string) bool {
		return !slices.ContainsFunc(m.asked, func(h storage.Host) bool { return h.Name == host })
	})
}

// askNoout writes down what is about to be set, of which nothing is known until there is an answer. before is of what
// that was true already.
func (m *mind) askNoout(plan budget.NooutPlan) (before []string) {
	if len(plan.Set) > 0 {
		m.state.Memory.Noout, before = budget.Asked(m.state.Memory.Noout, plan.Set)
	}
	return before
}

// stillHeld leaves out the hosts of jobs that gave their lease back while the record was being written. The next pass
// forgets their records.
func (m *mind) stillHeld(hosts, before []string) []string {
	held := budget.StillHeld(hosts, m.state.Memory.Noout, m.state.Memory.Lease.Holders)
	left := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return slices.Contains(held, host) })
	m.state.Memory.Noout = budget.NotAsked(m.state.Memory.Noout, left, before)
	return held
}

// answered takes note that there is an answer about what was asked. A refusal is an answer, too, but nothing was set
// then.
func (m *mind) answered(plan budget.NooutPlan, before []string, unsure bool) {
	set := slices.DeleteFunc(slices.Clone(plan.Set), func(host string) bool { return m.refused[host] != "" })
	if len(set) > 0 {
		m.state.Memory.Noout = budget.Answered(m.state.Memory.Noout, set, before, unsure)
	}
}

// nooutInput switches noout on all of these hosts at once: for each by itself the storage cluster would take its time.
// nil: there are none.
func (m *mind) nooutInput(hosts []string, on bool) *activities.NooutInput {
	if len(hosts) == 0 {
		return nil
	}
	return &activities.NooutInput{Cluster: m.cluster, Hosts: hosts, On: on, IDs: m.hostIDs(hosts)}
}

// switched takes in what became of a switch. Hosts that the storage cluster refuses are in m.refused.
func (m *mind) switched(in *activities.NooutInput, a activities.Attempt[activities.NooutResult]) {
	if in == nil || !a.Done() {
		return
	}
	what := "unset noout on "
	if in.On {
		what = "set noout on "
	}
	for _, x := range a.Result.Refused {
		if m.refused == nil {
			m.refused = map[string]string{}
		}
		m.refused[x.Host] = what + x.Host + ": " + x.Reason
	}
	for _, host := range in.Hosts {
		at, has := slices.BinarySearch(m.noout, host)
		switch {
		case m.refused[host] != "" || has == in.On:
		case in.On:
			m.noout = slices.Insert(m.noout, at, host)
		default:
			m.noout = slices.Delete(m.noout, at, at+1)
		}
	}
}

// withdraw takes note that noout is unset.
func (m *mind) withdraw(now time.Time, p *plan) {
	for _, host := range p.noout.Unset {
		if _, refused := m.refused[host]; !refused {
			m.state.Memory.Noout = budget.Withdraw(now, m.state.Memory.Noout, host, m.state.Memory.Lease.Holders)
		}
	}
}

func (m *mind) hostIDs(hosts []string) map[string]int {
	ids := map[string]int{}
	for _, n := range m.state.Memory.Noout {
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

// refusedOf says why a claim's noout is not in place; "" when it is.
func (m *mind) refusedOf(c lease.Claim) string {
	hosts := c.FlagHosts
	for _, n := range m.state.Memory.Noout {
		if why := m.refused[n.Host]; why != "" && (slices.Contains(hosts, n.Host) || slices.Contains(hosts, n.Claimed)) {
			return why
		}
	}
	return ""
}

// flagged are the hosts that carry noout because of us, or may yet.
func (m *mind) flagged() (hosts []string) {
	for _, n := range m.state.Memory.Noout {
		if !n.Withdrawn || !n.Until.IsZero() {
			hosts = append(hosts, n.Host)
		}
	}
	return hosts
}

// forgetFlags forgets what was unset. What was refused, or may still be set by a command without an answer, stays, and
// is returned.
func (m *mind) forgetFlags(now time.Time) (waits []string) {
	for _, host := range m.flagged() {
		if why, refused := m.refused[host]; refused {
			waits = append(waits, "noout: "+why)
		} else {
			m.state.Memory.Noout = budget.Withdraw(now, m.state.Memory.Noout, host, nil)
		}
	}
	m.state.Memory.Noout = slices.DeleteFunc(m.state.Memory.Noout, func(n budget.Noout) bool {
		return n.Withdrawn && !now.Before(n.Until)
	})
	for _, n := range m.state.Memory.Noout {
		if n.Withdrawn {
			waits = append(waits, fmt.Sprintf(
				"%[2]s: noout on %[1]s is unset, but a command that sets it got no answer and may be carried out until then",
				n.Host, clock(n.Until)))
		}
	}
	return waits
}
