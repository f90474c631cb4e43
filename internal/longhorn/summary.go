package longhorn

import (
	"fmt"
	"slices"
	"strings"
)

// Summary is what a workflow needs to know of a decision: a line for each node, whatever the number of volumes.
type Summary struct {
	Nodes   []NodeSummary `json:"nodes,omitempty"`
	OneMore bool          `json:"oneMore,omitempty"`
	Kept    []string      `json:"kept,omitempty"`
	// Faults is how many objects could not be read, Fault the first of them.
	Faults int    `json:"faults,omitempty"`
	Fault  string `json:"fault,omitempty"`
}

// NodeSummary is what a workflow needs to know of a node.
type NodeSummary struct {
	Node    string  `json:"n"`
	Leaving Leaving `json:"l,omitempty"`
	State   State   `json:"s"`
	Reason  Reason  `json:"r,omitempty"`
	Subject string  `json:"of,omitempty"`
	Stay    bool    `json:"stay,omitempty"`
	// Evict is what Longhorn is to be told about its replicas.
	Evict Eviction `json:"ev,omitempty"`
	// Alone is how many volumes it keeps alone, Conflicts with which nodes it cannot go together: the first few.
	Alone     int      `json:"alone,omitempty"`
	Conflicts []string `json:"with,omitempty"`
}

// The bounds of a line: what is longer is cut, so that 500 nodes take less than 256 KiB.
const (
	maxConflicts = 3
	maxSubject   = 120
	maxFault     = 400
)

// Summary cuts a decision down to what its size allows.
func (d Decision) Summary() Summary {
	s := Summary{OneMore: d.OneMore, Kept: d.Kept, Faults: len(d.Faults)}
	if len(d.Faults) > 0 {
		s.Fault = clip(d.Faults[0].String(), maxFault)
	}
	for _, n := range d.Nodes {
		s.Nodes = append(s.Nodes, NodeSummary{
			Node: n.Node, Leaving: n.Leaving, State: n.State, Reason: n.Reason, Subject: clip(n.Subject, maxSubject),
			Stay: n.Stay, Evict: n.Evict, Alone: len(n.Alone),
			Conflicts: slices.Clone(n.Conflicts[:min(len(n.Conflicts), maxConflicts)]),
		})
	}
	return s
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Explain says in sentences whether a node may leave and why not, for a person. ok is false for a node of which nothing
// is known.
func (d Decision) Explain(name string) (sentences []string, ok bool) {
	i := slices.IndexFunc(d.Nodes, func(n NodeVerdict) bool { return n.Node == name })
	if i < 0 {
		return nil, false
	}
	n := d.Nodes[i]
	sentences = append(sentences, d.headline(n), n.Reason.Sentence(n.Subject))
	if shown := alone(n); shown != "" {
		sentences = append(sentences, shown)
	}
	if len(n.Conflicts) > 0 {
		sentences = append(sentences, "cannot go together with "+strings.Join(n.Conflicts, ", ")+": they share volumes")
	}
	if n.Stay {
		sentences = append(sentences, "autoscalers are to be held back from it")
	}
	if n.Evict == Closed {
		sentences = append(sentences, "it gets no more replicas while it is to be removed")
	}
	return sentences, true
}

func (d Decision) headline(n NodeVerdict) string {
	leaving := ""
	if n.Leaving != NotLeaving {
		leaving = ", which is " + string(n.Leaving)
	}
	switch {
	case n.Leaving == Gone:
		return fmt.Sprintf("node %s does not exist any more, and Longhorn still has replicas there in its books", n.Node)
	case n.State == Open:
		return fmt.Sprintf("node %s%s: may leave now", n.Node, leaving)
	case n.State == Spare && d.OneMore:
		return fmt.Sprintf("node %s: nothing holds it; one such node at a time", n.Node)
	case n.State == Spare:
		return fmt.Sprintf("node %s: nothing holds it, but others are leaving and go first", n.Node)
	default:
		return fmt.Sprintf("node %s%s: must stay", n.Node, leaving)
	}
}

// alone names the volumes that the node alone keeps, unless the reason has named the only one.
func alone(n NodeVerdict) string {
	const shown = 5
	if len(n.Alone) == 0 || len(n.Alone) == 1 && n.Alone[0] == n.Subject {
		return ""
	}
	more := ""
	if len(n.Alone) > shown {
		more = fmt.Sprintf(" and %d more", len(n.Alone)-shown)
	}
	return "no other node that stays has a healthy replica of " + strings.Join(n.Alone[:min(len(n.Alone), shown)], ", ") +
		more
}
