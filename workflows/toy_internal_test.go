package workflows

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the guard of a second kind of storage, which only the tests have: volumes with copies on nodes. It has
// no failure domains but its nodes, no flags and no marks, and of two nodes it matters whether they share a volume. It
// proves that the keeper knows nothing of Ceph: toy_test.go plays the same keeper and the same jobs over it.

// ToyKind is the kind's name.
const ToyKind storage.Kind = "Toy"

// Only the tests know this kind.
func init() { guards[ToyKind] = toyGuard{} }

// ToySummary is what a look tells of a toy, by node.
type ToySummary map[string]ToyNode

// ToyNode is one node.
type ToyNode struct {
	Volumes []string `json:"volumes"`         // that have a copy there
	Whole   bool     `json:"whole,omitempty"` // its daemon serves, and all of its copies are whole
}

// ToyDomain is what a job claims that empties a node.
func ToyDomain(node string) storage.FailureDomain {
	return storage.FailureDomain{Type: "node", Name: node}
}

func toySees(in guard.Input) (s ToySummary) {
	_ = json.Unmarshal(in.Own, &s)
	return s
}

// share is a volume with copies on both nodes; "": there is none.
func (s ToySummary) share(a, b string) string {
	for _, v := range s[a].Volumes {
		if slices.Contains(s[b].Volumes, v) {
			return v
		}
	}
	return ""
}

// alone is a volume with no copy on any other node; "": there is none.
func (s ToySummary) alone(node string) string {
	for _, v := range s[node].Volumes {
		others := 0
		for other, n := range s {
			if other != node && slices.Contains(n.Volumes, v) {
				others++
			}
		}
		if others == 0 {
			return v
		}
	}
	return ""
}

type toyGuard struct{ guard.Plain }

// Together: two nodes that share no volume.
func (toyGuard) Together(in guard.Input, a, b lease.Claim) bool {
	return a.Node == b.Node || toySees(in).share(a.Node, b.Node) == ""
}

// Gate: every volume of the node is whole on all other nodes that have a copy.
func (toyGuard) Gate(in guard.Input, c lease.Claim) storage.Answer {
	if why := toyShut(in); why != "" {
		return storage.Answer{Reason: why}
	}
	s := toySees(in)
	if v := s.alone(c.Node); v != "" {
		return storage.Answer{Reason: fmt.Sprintf("no other node has a copy of %s", v)}
	}
	for _, other := range slices.Sorted(maps.Keys(s)) {
		if v := s.share(c.Node, other); other != c.Node && v != "" && !s[other].Whole {
			return storage.Answer{Reason: fmt.Sprintf("the copy of %s on %s is not whole", v, other)}
		}
	}
	return storage.Answer{OK: true}
}

// toyShut is why nothing may open at all.
func toyShut(in guard.Input) string {
	switch {
	case in.View.Unavailable != "":
		return in.View.Unavailable
	case toySees(in) == nil:
		return "the look does not tell where the volumes are"
	default:
		return in.View.NotInCharge
	}
}

// Decide opens the nodes of all holders whose gate still lets them through. Nobody may go from any other node.
func (g toyGuard) Decide(in guard.Input) (v guard.Verdict) {
	d := budget.Decision{
		Mode: budget.ModeClosed, Reason: budget.ReasonStorageUnavailable, Message: toyShut(in),
		Budget: budget.Spec{MinAvailable: budget.Everything},
	}
	if d.Message != "" {
		if d.Message == in.View.NotInCharge {
			d.Reason = budget.ReasonNotInCharge
		}
		return guard.Verdict{Decision: d}
	}
	d.Mode, d.Reason, d.Message = budget.ModeDefault, budget.ReasonClean, "nodes open for jobs alone"
	var open []string
	for _, c := range in.Lease.InEffect().Holders {
		if !c.Finishing && g.Gate(in, c).OK {
			open = append(open, c.Node)
		}
	}
	if slices.Sort(open); len(open) > 0 {
		d.Mode, d.Reason, d.Message = budget.ModeOpen, budget.ReasonLeaseHeld, "jobs empty "+strings.Join(open, ", ")
		d.Open, d.With, d.Budget.Key, d.Budget.Except = ToyDomain(open[0]), open[1:], "node", open
	}
	v = guard.Verdict{Decision: d, Clean: true}
	for _, n := range toySees(in) {
		v.Clean = v.Clean && n.Whole
	}
	return v
}

// Healed: the node serves again, and its copies are whole; or it does not exist any more.
func (toyGuard) Healed(in guard.Input, c lease.Claim) storage.Answer {
	if why := toyShut(in); why != "" {
		return storage.Answer{Reason: why}
	}
	n, exists := toySees(in)[c.Node]
	return storage.Answer{OK: !exists || n.Whole, Reason: "the copies on " + c.Node + " are not whole"}
}
