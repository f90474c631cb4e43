package cli

import (
	"fmt"
	"io"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// writeFencing says how many Machines each policy holds, and which nodes are to be fenced.
func (s Status) writeFencing(w io.Writer) { s.writeFencingOf(w, "") }

// writeFencingOf says of the nodes that are to be fenced one alone. "": all.
func (s Status) writeFencingOf(w io.Writer, node string) {
	var rows [][]string
	for _, p := range s.Policies {
		f := p.Fencing
		if f == nil {
			continue
		}
		fmt.Fprintf(w, "%s/%s: %s\n", p.Namespace, p.Name, describeFencing(f))
		for _, note := range f.Notes {
			fmt.Fprintf(w, "%s/%s: %s\n", p.Namespace, p.Name, note)
		}
		for _, n := range f.Nodes {
			if node != "" && n.Node != node {
				continue
			}
			since := n.Since
			if n.ReleasedAt != nil {
				since = *n.ReleasedAt
			}
			rows = append(rows, []string{n.Node, n.Why, n.Stage, s.since(&since), n.Reason, n.Message})
		}
	}
	table(w, []string{"TO BE FENCED", "WHY", "MACHINE", "SINCE", "REASON", "MESSAGE"}, rows)
}

func describeFencing(f *v1alpha1.FencingStatus) string {
	out := fmt.Sprintf("%d Machines are held back from fencing (%s", f.Held, f.API)
	if f.MaxUnavailable != nil {
		out += fmt.Sprintf(", maxUnavailable %d", *f.MaxUnavailable)
	}
	if out += ")"; f.Problem != "" {
		out += "; not all can be held or released: " + f.Problem
	}
	return out
}

func (s Status) writeFences(w io.Writer) {
	var rows [][]string
	for _, f := range s.Fences {
		since := f.waitsSince()
		if f.State != Running {
			since = f.Ended
		}
		rows = append(rows, []string{f.WorkflowID, f.Phase(), when(since, s.At), f.WaitsFor()})
	}
	table(w, []string{"FENCE", "PHASE", "SINCE", "WAITS FOR"}, rows)
}
