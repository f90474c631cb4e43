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

// This file is the keeper's noout flags: what it wants of the storage cluster, and what it knows of it.

// abandonNoout forgets noout flags on a storage cluster that can no longer be reached under this policy, and tells
// people. To unset them where the policy points now would be to touch flags of somebody else.
func (m *mind) abandonNoout(now time.Time) {
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

func (m *mind) planNoout(now time.Time) budget.NooutPlan {
	view := m.observed.Seen.View
	if view.Unavailable != "" {
		return budget.NooutPlan{Records: m.state.Memory.Noout}
	}
	return budget.PlanNoout(budget.NooutInput{
		Now: now, Timeout: m.observed.Settings.MaintenanceTimeout, Holders: m.state.Memory.Lease.Holders,
		Records: m.state.Memory.Noout, Present: view.Noout, Hosts: view.Hosts, Gone: view.Gone, Nodes: view.Nodes,
	})
}

// nooutHosts are those of which the keeper has to know what they are called, and whether they are there.
func (m *mind) nooutHosts() (hosts []storage.Host) {
	add := func(h storage.Host) {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	for _, n := range m.state.Memory.Noout {
		add(storage.Host{Name: n.Host, ID: n.ID})
	}
	for _, c := range slices.Concat(m.state.Memory.Lease.Holders, m.state.Memory.Lease.Queue) {
		for _, host := range c.NooutHosts {
			add(storage.Host{Name: host})
		}
		if c.Next != nil {
			for _, host := range c.Next.NooutHosts {
				add(storage.Host{Name: host})
			}
		}
	}
	return hosts
}

// askedAbout tells whether the last look was asked about all hosts of a claim. Of another host the topology's ID is not
// known, and noout that is set there would be lost when somebody renames it.
func (m *mind) askedAbout(c lease.Claim) bool {
	return !slices.ContainsFunc(c.NooutHosts, func(host string) bool {
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

// refusedFor says why a claim's noout is not in place; "" when it is.
func (m *mind) refusedFor(hosts []string) string {
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

// forgetNoout forgets what was unset. What was refused, or may still be set by a command without an answer, stays, and
// is returned.
func (m *mind) forgetNoout(now time.Time) (waits []string) {
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
