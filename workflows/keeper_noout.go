package workflows

import (
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the keeper's noout flags: what it asks of the storage cluster, and what it does when there is no answer.

func (k *keeper) planNoout(ctx workflow.Context) budget.NooutPlan {
	view := k.observed.Seen.View
	if view.Unavailable != "" {
		return budget.NooutPlan{Records: k.state.Memory.Noout}
	}
	return budget.PlanNoout(budget.NooutInput{
		Now: workflow.Now(ctx), Timeout: k.observed.Settings.MaintenanceTimeout, Holders: k.state.Memory.Lease.Holders,
		Records: k.state.Memory.Noout, Present: view.Noout, Hosts: view.Hosts, Gone: view.Gone, Nodes: view.Nodes,
	})
}

// nooutHosts are those of which the keeper has to know what they are called, and whether they are there.
func (k *keeper) nooutHosts() (hosts []storage.Host) {
	add := func(h storage.Host) {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	for _, n := range k.state.Memory.Noout {
		add(storage.Host{Name: n.Host, ID: n.ID})
	}
	for _, c := range slices.Concat(k.state.Memory.Lease.Holders, k.state.Memory.Lease.Queue) {
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
func (k *keeper) askedAbout(c lease.Claim) bool {
	return !slices.ContainsFunc(c.NooutHosts, func(host string) bool {
		return !slices.ContainsFunc(k.asked, func(h storage.Host) bool { return h.Name == host })
	})
}

// askNoout writes down what is about to be set, of which nothing is known until there is an answer. before is of what
// that was true already.
func (k *keeper) askNoout(plan budget.NooutPlan) (before []string) {
	if len(plan.Set) > 0 {
		k.state.Memory.Noout, before = budget.Asked(k.state.Memory.Noout, plan.Set)
	}
	return before
}

// stillHeld leaves out the hosts of jobs that gave their lease back while the record was being written. The next pass
// forgets their records.
func (k *keeper) stillHeld(hosts, before []string) []string {
	held := budget.StillHeld(hosts, k.state.Memory.Noout, k.state.Memory.Lease.Holders)
	left := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return slices.Contains(held, host) })
	k.state.Memory.Noout = budget.NotAsked(k.state.Memory.Noout, left, before)
	return held
}

// answered takes note that there is an answer about what was asked. A refusal is an answer, too, but nothing was set
// then.
func (k *keeper) answered(plan budget.NooutPlan, before []string, unsure bool) {
	set := slices.DeleteFunc(slices.Clone(plan.Set), func(host string) bool { return k.refused[host] != "" })
	if len(set) > 0 {
		k.state.Memory.Noout = budget.Answered(k.state.Memory.Noout, set, before, unsure)
	}
}

// nooutInput switches noout on all of these hosts at once: for each by itself the storage cluster would take its time.
// nil: there are none.
func (k *keeper) nooutInput(hosts []string, on bool) *activities.NooutInput {
	if len(hosts) == 0 {
		return nil
	}
	return &activities.NooutInput{Cluster: k.cluster, Hosts: hosts, On: on, IDs: k.hostIDs(hosts)}
}

// unsetNoout is for the end, where nothing depends on it.
func (k *keeper) unsetNoout(ctx workflow.Context, hosts []string) error {
	in := k.nooutInput(hosts, false)
	if in == nil {
		return nil
	}
	r, err := call(prompt(ctx, nooutWithin, clip("unset noout on "+strings.Join(hosts, ", "))), keeping.SwitchNoout, *in)
	if err == nil {
		k.switched(in, activities.Attempt[activities.NooutResult]{Begun: true, Result: r})
	}
	return err
}

// switched takes in what became of a switch. Hosts that the storage cluster refuses are in k.refused.
func (k *keeper) switched(in *activities.NooutInput, a activities.Attempt[activities.NooutResult]) {
	if in == nil || !a.Done() {
		return
	}
	what := "unset noout on "
	if in.On {
		what = "set noout on "
	}
	for _, x := range a.Result.Refused {
		if k.refused == nil {
			k.refused = map[string]string{}
		}
		k.refused[x.Host] = what + x.Host + ": " + x.Reason
	}
	for _, host := range in.Hosts {
		at, has := slices.BinarySearch(k.noout, host)
		switch {
		case k.refused[host] != "" || has == in.On:
		case in.On:
			k.noout = slices.Insert(k.noout, at, host)
		default:
			k.noout = slices.Delete(k.noout, at, at+1)
		}
	}
}

// withdraw takes note that noout is unset.
func (k *keeper) withdraw(ctx workflow.Context, p *plan) {
	for _, host := range p.noout.Unset {
		if _, refused := k.refused[host]; !refused {
			k.state.Memory.Noout = budget.Withdraw(workflow.Now(ctx), k.state.Memory.Noout, host, k.state.Memory.Lease.Holders)
		}
	}
}

func (k *keeper) hostIDs(hosts []string) map[string]int {
	ids := map[string]int{}
	for _, n := range k.state.Memory.Noout {
		if n.ID != 0 && slices.Contains(hosts, n.Host) {
			ids[n.Host] = n.ID
		}
	}
	return ids
}

// refusal is what the storage cluster refused in this pass; nil: nothing. The next look tells whether the host is there
// at all.
func (k *keeper) refusal() error {
	if len(k.refused) == 0 {
		return nil
	}
	hosts := sortedKeys(k.refused)
	return fmt.Errorf("%s%s", k.refused[hosts[0]], andMore(hosts))
}

// refusedFor says why a claim's noout is not in place; "" when it is.
func (k *keeper) refusedFor(hosts []string) string {
	for _, n := range k.state.Memory.Noout {
		if why := k.refused[n.Host]; why != "" && (slices.Contains(hosts, n.Host) || slices.Contains(hosts, n.Claimed)) {
			return why
		}
	}
	return ""
}

// silent closes, since the storage cluster does not answer. Everybody hears of that all the same: the report, and the
// jobs, which must not take what was decided for what is.
func (k *keeper) silent(ctx workflow.Context, what string, err error) error {
	k.closeFirst(ctx, what)
	closed := budget.CloseFirst(k.state.Decision, what+": "+message(err))
	k.closed = &closed
	k.reportLater(ctx)
	k.followJobs(ctx)
	k.notify(ctx)
	return err
}

// said is the decision as it is in force: nothing that was decided is, once the keeper has closed after it.
func (k *keeper) said() budget.Decision {
	if k.closed != nil {
		return *k.closed
	}
	return k.state.Decision
}

// tellPeople has the next report tell something.
func (k *keeper) tellPeople(ctx workflow.Context, news []budget.News) {
	for _, n := range news {
		k.news = append(k.news, activities.Event{
			Reason: n.Reason, Message: n.Message,
			Warning: n.Reason != budget.ReasonNooutRenamed, At: workflow.Now(ctx),
		})
	}
}

// flagged are the hosts that carry noout because of us, or may yet.
func (k *keeper) flagged() (hosts []string) {
	for _, n := range k.state.Memory.Noout {
		if !n.Withdrawn || !n.Until.IsZero() {
			hosts = append(hosts, n.Host)
		}
	}
	return hosts
}
