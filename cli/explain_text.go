package cli

import (
	"fmt"
	"io"
)

// Write puts an explanation into words: the answer first.
func (e Explanation) Write(w io.Writer) {
	answer := "No."
	if e.MayDrain {
		answer = "Yes."
	}
	fmt.Fprintf(w, "May I drain %s now? %s\n", e.Node, answer)
	for _, on := range append([]Explanation{e}, e.Others...) {
		on.writeStorage(w)
	}
	switch {
	case e.Policy == "":
	case e.MayDrain:
		fmt.Fprintf(w, "\nDo it:  lockkeeper drain %s --follow\n", e.Node)
	case e.WouldWait:
		fmt.Fprintf(w, "\n`lockkeeper drain %[1]s` would wait its turn and begin by itself. `kubectl drain %[1]s` is "+
			"refused by the budgets until then, and goes on trying.\n", e.Node)
	}
}

// writeStorage tells of one storage cluster.
func (e Explanation) writeStorage(w io.Writer) {
	if e.Policy != "" {
		fmt.Fprintf(w, "\n%s: %s; hosts %s in %s of %s.\n", e.Node, describeNode(e.State), orNone(e.Daemons),
			orUnknown(e.Domain), e.Policy)
		if e.Storage != "" {
			fmt.Fprintf(w, "Storage now: %s.\n", e.Storage)
		}
	}
	e.list(w, "In the way:", e.InTheWay)
	e.list(w, "Worth knowing:", e.Beware)
}

func (e Explanation) list(w io.Writer, title string, all []Obstacle) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, o := range all {
		since := ""
		if !o.Since.IsZero() {
			since = ", since " + when(o.Since, e.At)
		}
		fmt.Fprintf(w, "- %s%s: %s\n  → %s\n", o.Name, since, o.What, o.Change)
	}
}
