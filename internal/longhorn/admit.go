package longhorn

import "slices"

// Admission is the answer whether a job may empty a node: whether it could leave once no volume is attached to it any
// more, beside those that jobs empty already.
type Admission struct {
	Node    string `json:"n"`
	OK      bool   `json:"ok,omitempty"`
	Reason  Reason `json:"r,omitempty"`
	Subject string `json:"of,omitempty"`
}

// mostAsked bounds how many nodes of the queue are judged at once: each takes a decision of its own. The others have
// their turn later.
const mostAsked = 16

// Admit answers for the nodes that jobs empty, and then for those that wait, in the order of their queue: whoever is
// admitted counts as one that leaves when the next is judged.
func Admit(w World, held, asked []string) []Admission {
	going := slices.Clone(held)
	var out []Admission
	judge := func(of []string) []Admission {
		w.Going = of
		d := Decide(w.leavingToo(of))
		admissions := make([]Admission, 0, len(of))
		for _, name := range of {
			admissions = append(admissions, d.admission(name))
		}
		return admissions
	}
	if len(held) > 0 {
		out = judge(held)
	}
	for _, name := range asked[:min(len(asked), mostAsked)] {
		if slices.Contains(going, name) {
			continue
		}
		all := judge(append(slices.Clone(going), name))
		a := all[len(all)-1]
		out = append(out, a)
		if a.OK {
			going = append(going, name)
		}
	}
	return out
}

// admission is what a decision says of a node.
func (d Decision) admission(name string) Admission {
	i := slices.IndexFunc(d.Nodes, func(n NodeVerdict) bool { return n.Node == name })
	if i < 0 {
		return Admission{Node: name, OK: true, Reason: NothingToLose}
	}
	n := d.Nodes[i]
	return Admission{Node: name, OK: n.State == Open || n.Leaving == Gone, Reason: n.Reason, Subject: n.Subject}
}

// leavingToo is the world in which some nodes are about to be emptied: cordoned, and without engines.
func (w World) leavingToo(nodes []string) World {
	w = w.cordoned(nodes)
	w.Managers = slices.Clone(w.Managers)
	for i := range w.Managers {
		if slices.Contains(nodes, w.Managers[i].Node) {
			w.Managers[i].Engines = nil
		}
	}
	return w
}

// cordoned is the world in which some nodes are about to be: a job that empties them has the right to. A node that is
// leaving in another way is so still.
func (w World) cordoned(nodes []string) World {
	w.Nodes = slices.Clone(w.Nodes)
	for i := range w.Nodes {
		if slices.Contains(nodes, w.Nodes[i].Name) {
			w.Nodes[i].Cordoned = true
		}
	}
	return w
}

// Turns says in which order nodes may go: those that jobs empty, which count as leaving already, then those whose turn
// it is, then those that wait, and last those that had their turn. Nobody goes beside one that went and is not back,
// unless it is over: it has been away for a whole turn. Of those that are held such a one comes last of all.
type Turns struct {
	Held, First, Asked, Last, Went, Over []string
}

// DecideInTurn decides for a world in which jobs empty nodes and others wait.
func DecideInTurn(w World, t Turns) (Decision, []Admission) {
	w.Away, w.Went = w.notBack(t), t.Went
	admissions := Admit(w, t.Held, t.Asked)
	w = w.cordoned(t.Held)
	late := func(name string) bool { return slices.Contains(t.Over, name) }
	last := slices.Concat(t.Last, slices.DeleteFunc(slices.Clone(t.Held), func(n string) bool { return !late(n) }))
	named := slices.Concat(slices.DeleteFunc(slices.Clone(t.Held), late), t.First, t.Asked)
	w.Going = slices.Concat(named, w.leavingNodes(slices.Concat(named, last)), last)
	return Decide(w), admissions
}

// notBack are the nodes whose instance managers do not run: those that went in their turn, and others that are Ready
// or leaving, from which one was evicted at rest, or before this keeper began. A machine that died holds up nobody; nor
// does a node that is leaving still, once its turn is over.
func (w World) notBack(t Turns) (names []string) {
	runs := map[string]bool{}
	for _, m := range w.Managers {
		runs[m.Node] = runs[m.Node] || m.Kind != Engine && m.State == Running
	}
	for _, n := range w.Nodes {
		running, has := runs[n.Name]
		away := n.Ready && has || slices.Contains(t.Went, n.Name)
		if w.leaving(n) != NotLeaving { // it may have been emptied, and reboot
			away = has && !slices.Contains(t.Over, n.Name)
		}
		if away && !running {
			names = append(names, n.Name)
		}
	}
	return names
}

// leavingNodes are the nodes that are leaving, by name, but for some.
func (w World) leavingNodes(but []string) (names []string) {
	for _, n := range w.Nodes {
		if w.leaving(n) != NotLeaving && !slices.Contains(but, n.Name) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}
