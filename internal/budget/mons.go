package budget

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file decides which mons may go. Mons are under the same lock as the storage daemons: one goes only in the
// failure domain that is open, and only while a majority of the monmap stays in quorum without it. With a lock of their
// own, two drains could each hold what the other needs: one the last mon that may go, the other the open domain.
//
// A mon on a node without storage daemons is under no such lock, since its node needs nothing else of us; it may go as
// soon as its node is leaving. So may one on a leaving node whose storage daemons are all down, as long as nothing is
// missed anywhere and no failure domain is open: nobody will ever evict anything there that would open its domain.

// monBudget is what the budget of the mons must say; nil for none.
func monBudget(in Input, d Decision) *Spec {
	mons := len(in.View.Mons)
	switch {
	case mons == 0: // nobody answered, so nobody knows how many a majority is
		return &Spec{MinAvailable: Everything}
	case lossAllowed(in):
		return nil
	case in.View.MonKey == "":
		// Their pods cannot be told apart: all that a budget can do is to keep a majority.
		return &Spec{MinAvailable: min(quorum.Majority(mons)+in.View.IdleMons, mons)}
	}
	spec := Spec{MinAvailable: Everything, Key: in.View.MonKey}
	for _, m := range mayGo(in, d) {
		spec.Except = append(spec.Except, m.Name)
	}
	spec.Except = append(spec.Except, in.View.StrayMons...) // the quorum does without them
	if len(spec.Except) == 0 {
		spec.Key = ""
		if d.Mode == ModeDefault && d.Unproved != nil {
			spec = nobody(in.View.MonsMixed)
		}
	}
	slices.Sort(spec.Except)
	return &spec
}

// lossAllowed: one or two mons can never go without loss of quorum, and the administrator said that this is all right.
func lossAllowed(in Input) bool {
	return in.Settings.AllowMonQuorumLoss && len(in.View.Mons) > 0 && len(in.View.Mons) <= 2
}

// mayGo lists the mons that may be evicted: in the open domain, or on a leaving node without storage. Those that are
// out of quorum cost nothing. Of the others as many as quorum can spare, and the most wanted first, always in the same
// order, so that it is not one mon now and another one at the next look.
func mayGo(in Input, d Decision) []storage.Mon {
	var out, wanted []storage.Mon
	if held := in.Lease.MonHeld(); held != "" {
		return monsOfClaim(in, held)
	}
	can := spare(in)
	if can < 0 {
		return nil // quorum waits for one that is out: it must not be let go just when it comes back
	}
	for _, m := range in.View.Mons {
		node, _ := in.View.Node(m.Node)
		inOpen := d.Mode == ModeOpen && (m.Domain == d.Open.Name || m.Node != "" && node.In(d.Open.Name)) &&
			empties(d, node)
		alone := m.Domain == "" && m.Node != "" && m.Leaving
		daemons, down := node.Counts()
		idle := d.Mode == ModeDefault && m.Leaving && daemons > 0 && down == daemons
		switch {
		case !inOpen && !alone && !idle:
		case !in.standing(m):
			out = append(out, m)
		default:
			wanted = append(wanted, m)
		}
	}
	slices.SortStableFunc(wanted, func(a, b storage.Mon) int {
		return slices.Compare(urgency(in, a), urgency(in, b))
	})
	return append(out, proved(in, wanted[:min(can, len(wanted))])...)
}

// proved are those of some mons of whom a commit has shown that the others live without them: in this look, or in the
// one that let them go. A dead mon is called one of the quorum for some seconds more, and a mon that goes meanwhile is
// the second.
func proved(in Input, mons []storage.Mon) (out []storage.Mon) {
	for _, m := range mons {
		if in.View.Committed || slices.Contains(in.Going, m.Name) {
			out = append(out, m)
		}
	}
	return out
}

// AwaitsCommit tells whether a mon could go after a decision that may not go yet, if the look begins with a commit.
func AwaitsCommit(in Input, d Decision) bool {
	if len(in.View.Mons) == 0 || in.View.MonKey == "" || lossAllowed(in) {
		return false
	}
	in.Lease = in.Lease.InEffect()
	in = in.asHeld()
	in.View.Committed = false
	now := len(mayGo(in, d))
	in.View.Committed = true
	return len(mayGo(in, d)) > now
}

// empties tells whether nothing of a node in several failure domains serves but what is open. Its mon goes with the
// last of them: until then the node may have to wait for somebody who needs another mon to go. Each of its failure
// domains has the name of its only daemon.
func empties(d Decision, n storage.Node) bool {
	if daemons, down := n.Counts(); down == daemons { // of very many not all are named
		return true
	}
	return !slices.ContainsFunc(n.Domains, func(domain string) bool {
		return !slices.Contains(n.Down, domain) && domain != d.Open.Name && !slices.Contains(d.With, domain)
	})
}

// urgency is smaller for a mon that somebody waits for: the lease's holder, in its order; then who is in the open
// domain at all, since that domain holds up all others; then who is on a leaving node.
func urgency(in Input, m storage.Mon) []int {
	holder := slices.IndexFunc(in.Lease.Holders, func(c lease.Claim) bool { return c.Node != "" && c.Node == m.Node })
	if holder < 0 {
		holder = len(in.Lease.Holders)
	}
	return []int{holder, toInt(m.Domain == ""), toInt(!m.Leaving)}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// spare is how many mons may go before only less than a majority stands.
func spare(in Input) int {
	standing := 0
	for _, m := range in.View.Mons {
		if in.standing(m) {
			standing++
		}
	}
	return quorum.Spare(len(in.View.Mons), standing)
}

// standing tells whether a mon counts in quorum and nothing is known to take it away.
func (in Input) standing(m storage.Mon) bool { return m.Standing() && !in.letGo(m.Node) }

// describeMon says why a mon does not count.
func describeMon(m storage.Mon) string {
	if m.Standing() {
		return MayBeFenced(m)
	}
	return m.String()
}

// MayBeFenced says of a mon that nothing holds its node, which is to be fenced.
func MayBeFenced(m storage.Mon) string {
	return fmt.Sprintf("mon.%s on %s may be fenced at any moment", m.Name, m.Node)
}

// letGo tells whether a node is to be fenced and nothing holds it.
func (in Input) letGo(node string) bool { return node != "" && slices.Contains(in.Released, node) }

// monsShort: a mon is out, and all that stand are needed. Until it is back, no node with a mon can become empty, so
// none should begin to. The reason is "" when mons are no obstacle; clusters of one or two are always short, and always
// so.
func monsShort(in Input) string {
	if in.View.MonKey == "" || lossAllowed(in) || spare(in) > 0 {
		return ""
	}
	var out []string
	for _, m := range in.View.Mons {
		if !in.standing(m) {
			out = append(out, describeMon(m))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, and the other mons are needed for a majority of %d", strings.Join(out, ", "),
		len(in.View.Mons))
}

// hostsStandingMon tells whether a node has a mon that is in quorum, so that it cannot become empty without one less.
func hostsStandingMon(in Input, node string) bool {
	return slices.ContainsFunc(in.View.Mons, func(m storage.Mon) bool { return m.Node == node && in.standing(m) })
}

// monLeft tells whether a mon of this node has gone already: somebody has begun to empty the node, and the mon comes
// back only after that has ended.
func monLeft(in Input, node string) bool {
	return slices.ContainsFunc(in.View.Mons,
		func(m storage.Mon) bool { return m.Node == node && m.Leaving && !m.Standing() })
}
