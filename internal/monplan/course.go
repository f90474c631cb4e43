package monplan

import "slices"

// This file foresees the whole course of a migration, for people who ask before they start it.

// mostSteps is more than any spec can ask for: as many mons as there may be are moved, and as many are removed.
const mostSteps = 64

// Course are all steps from here on if each of them succeeds and nothing else happens. The last one is no Move: it says
// how the course ends.
func Course(s Seen) (steps []Step) {
	for range mostSteps {
		step := Next(s)
		steps = append(steps, step)
		if step.Verdict != Move {
			return steps
		}
		s = s.after(step)
	}
	return append(steps, Step{Verdict: Refuse, Why: "no end is in sight: this is an error of lockkeeper"})
}

// after is what would be seen after all acts of a step.
func (s Seen) after(step Step) Seen {
	w := *step.Work
	node, _ := s.fits(w.Old, w.Kind != Migrate)
	s.Mons, s.Addresses = slices.Clone(s.Mons), slices.Clone(s.Addresses)
	for _, act := range step.Acts {
		i := slices.IndexFunc(s.Mons, func(m Mon) bool { return m.Name == act.Mon })
		switch act.Do {
		case AwaitQuorum:
			if i >= 0 {
				s.Mons[i].Alive = true
				continue
			}
			newcomer := Mon{Name: act.Mon, Alive: true, Node: node.Name, Zone: node.Zone, Template: s.Want.Template}
			if len(s.Want.Zones) > 0 {
				newcomer.MadeFor = node.Zone
			}
			newcomer.Storage = s.Want.Storage[newcomer.MadeFor]
			s.Mons = append(s.Mons, newcomer)
			s.Addresses = append(s.Addresses, Address{Mon: act.Mon, IP: node.IP})
		case RemoveMon:
			s.Mons = slices.DeleteFunc(s.Mons, func(m Mon) bool { return m.Name == act.Mon })
			for i := range s.Addresses {
				if s.Addresses[i].Mon == act.Mon {
					s.Addresses[i].Left = s.Now
				}
			}
		case DropCanary:
			s.Strays = slices.DeleteFunc(slices.Clone(s.Strays), func(mon string) bool { return mon == act.Mon })
		case RestartMon:
			s.Mons[i].Template = s.Want.Template
		default:
		}
	}
	if w.Newcomer != "" {
		s.NextID++
	}
	s.Work, s.Endpoints = nil, nil
	for _, m := range s.Mons {
		s.Endpoints = append(s.Endpoints, m.Name)
	}
	return s
}
