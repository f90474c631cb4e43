package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// This file looks for what is worth knowing although it keeps no drain from beginning.

// worthKnowing does not keep a drain from beginning.
var worthKnowing = []look{
	lookTrouble, lookClosed, lookWatcher, lookNoout, lookNotes, lookUnmanaged, lookLeaving, lookScaleDown, lookFencing,
	lookCompromise, lookUnknown,
}

// lookFencing: the node is to be fenced, or was; or nobody can hold its Machine back.
func lookFencing(f Facts) (out []Obstacle) {
	s := f.Reported.Fencing
	if s == nil {
		return nil
	}
	node := f.Input.Node
	for _, n := range s.Nodes {
		if n.Node != node {
			continue
		}
		o := Obstacle{Name: "Fencing", Since: n.Since.Time}
		switch fencing.Stage(n.Stage) {
		case fencing.StageHeld:
			o.What = fmt.Sprintf("it is to be fenced (%s), and its Machine is held back: %s: %s", n.Why, n.Reason, n.Message)
			o.Change = "docs/runbooks/fencing.md tells of each reason"
			if n.Reason != fencing.ReasonAnotherReleased && n.Reason != fencing.ReasonInReserve { // not even by hand
				o.Change += fmt.Sprintf("; whatever is known, `lockkeeper fence release %s --reason …` lets it go", node)
			}
		case fencing.StageReleased:
			o.What = fmt.Sprintf("its Machine %s may be fenced at any moment (%s): %s", n.Machine, n.Why, n.Message)
			o.Change = fmt.Sprintf("nothing has to; `lockkeeper fence hold %s` holds it again if nobody has begun", node)
		default:
			o.What, o.Change = "it was fenced: "+n.Message, "wait until the data is whole again"
		}
		out = append(out, o)
	}
	if s.Problem != "" {
		out = append(out, Obstacle{
			Name: "FencingProblem", What: "Machines cannot be held back or released: " + s.Problem,
			Change: "`lockkeeper doctor` says what is missing; until then nothing new is released",
		})
	}
	return out
}

func lookCompromise(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.Compromise == "" {
		return nil
	}
	return []Obstacle{{
		Name:   obstacleCompromise,
		What:   fmt.Sprintf("the failure domain is the %s because %s", f.Now.View.FailureDomainType, f.Now.View.Compromise),
		Change: "nothing has to: less may go at a time. CRUSH rules that agree on one type would let more go",
	}}
}

func lookTrouble(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Trouble == "" {
		return nil
	}
	return []Obstacle{{
		Name: obstacleTrouble, What: "the keeper could not do all that it wanted: " + f.Now.Trouble,
		Change: "it tries again by itself, at least every 30 s",
	}}
}

// lookClosed: the keeper is closed for a moment although nothing is in the way of a grant. A drain gets the lease, and
// its evictions wait.
func lookClosed(f Facts) []Obstacle {
	if f.Now == nil || !f.Lease.OK || f.Now.Decision.Mode != budget.ModeClosed {
		return nil
	}
	return []Obstacle{{
		Name: obstacleClosed, Since: f.Now.Since, What: "evictions are refused now: " + f.Now.Decision.Message,
		Change: "a drain would get the lease all the same; its domain opens after a look. " +
			"docs/runbooks/why-is-it-closed.md tells of each reason",
	}}
}

func lookWatcher(f Facts) []Obstacle {
	if f.Watcher == nil || f.Watcher.Running(f.At) {
		return nil
	}
	return []Obstacle{{
		Name: obstacleNoWatcher, Since: f.Watcher.Renewed,
		What: "no `lockkeeper watch` is at work: nobody would notice a cordon by `kubectl drain`, and the keeper hears of " +
			"changed pods late",
		Change: "start `lockkeeper watch`; `lockkeeper drain` works without it",
	}}
}

func lookNoout(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	var out []Obstacle
	for _, n := range f.Now.Flags {
		if n.Withdrawn || !f.At.Before(n.Expires) {
			out = append(out, Obstacle{
				Name: obstacleNooutExpired, Since: n.Expires,
				What: fmt.Sprintf("noout on %s, for %s, has ended: its OSDs are marked out, and their data is copied elsewhere",
					n.Host, n.Owner),
				Change: "bring " + n.Host + " back, or wait until the data is whole without it",
			})
		}
	}
	return out
}

func lookNotes(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	notes := slices.Clone(f.Now.View.Notes)
	if f.Now.Unmoved != "" {
		notes = append(notes, f.Now.Unmoved)
	}
	var out []Obstacle
	for _, note := range notes {
		name := obstacleNote
		if strings.HasPrefix(note, storageview.FlagNote) {
			name = obstacleFlag
		}
		out = append(out, Obstacle{Name: name, What: note, Change: remedyOf(f.Now.Kind, note)})
	}
	return out
}

func lookUnmanaged(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Decision.Reason != budget.ReasonUnmanaged {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonUnmanaged,
		What: "spec.ceph.managePodBudgets is false: no budget of lockkeeper " +
			"keeps anybody from draining another node at the same time", Change: "set it to true",
	}}
}

func lookLeaving(f Facts) []Obstacle {
	if f.Running != nil || f.ScaleDown != nil || !f.Node.Cordoned && f.Node.Tainted == "" {
		return nil
	}
	return []Obstacle{{
		Name: "Cordoned", What: f.Input.Node + " is " +
			strings.TrimPrefix(describeNode(f.Node), "Ready, ") + " already; a drain leaves that as it is afterwards",
		Change: "`kubectl uncordon " + f.Input.Node + "` when the work is done",
	}}
}

// keeperNow is what could not be found out when the keeper did not answer.
const keeperNow = "what the keeper says now"

func lookUnknown(f Facts) []Obstacle {
	var out []Obstacle
	for _, u := range f.Unknown {
		if f.Now == nil && strings.HasPrefix(u, keeperNow) {
			continue // that is in the way, and was said
		}
		out = append(out, Obstacle{Name: obstacleUnknown, What: "could not find out " + u, Change: "ask again"})
	}
	return out
}
