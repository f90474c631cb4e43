package monplan

import "slices"

// This file tidies up what a step left behind that was ended in the middle, or of which an act was carried out late: by
// a worker that nobody heard of any more. The next step would trip over it, and clients would not find their mons.

// dropStray deletes a canary that belongs to no step. It keeps the newcomer's from the only free node.
func (s Seen) dropStray() Step {
	mon := s.Strays[0]
	work := &Work{Kind: TidyUp, Old: mon}
	if s.Work != nil {
		noted := s.noted(*s.Work)
		work = &noted
	}
	return Step{
		Verdict: Move, Why: "mon." + mon + " has a canary, and no step is under way that makes this mon", Work: work,
		Acts: []Act{{DropCanary, mon}},
	}
}

// tidyUp tells everybody where the mons are if a step was ended before it did.
func (s Seen) tidyUp() (Step, bool) {
	mon := s.misnamed()
	if mon == "" || s.Elsewhere != "" {
		return Step{}, false
	}
	s.Work = &Work{Kind: TidyUp, Old: mon}
	why := "the endpoints do not name mon." + mon
	if slices.Contains(s.Endpoints, mon) {
		why = "the endpoints name mon." + mon + ", which the monmap has not"
	}
	return Step{Verdict: Move, Why: why, Work: s.Work, Acts: s.acts(*s.Work)}, true
}

// misnamed is a mon that the endpoints name and the monmap has not, or one in quorum that they do not name; "": there
// is none. Endpoints with other names than lockkeeper gives, or with none, are somebody's own, and stay as they are.
func (s Seen) misnamed() string {
	foreign := func(name string) bool { _, ours := NumberOf(name); return !ours }
	if len(s.Endpoints) == 0 || slices.ContainsFunc(s.Endpoints, foreign) {
		return ""
	}
	for _, name := range s.Endpoints {
		if _, there := s.mon(name); !there {
			return name
		}
	}
	for _, m := range s.Mons {
		if m.Alive && !foreign(m.Name) && !slices.Contains(s.Endpoints, m.Name) {
			return m.Name
		}
	}
	return ""
}
