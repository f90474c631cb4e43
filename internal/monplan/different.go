package monplan

import (
	"cmp"
	"fmt"
	"slices"
)

// This file compares the mons with the spec. Where a mon's node stands today is not compared: whether that node is a
// good place only the scheduler knows, and whoever second-guesses it moves mons for ever.

// Difference is why a mon is not as the spec says.
type Difference struct{ Mon, Why string }

func (d Difference) String() string { return "mon." + d.Mon + ": " + d.Why }

// Different are the mons that are not as the spec says, in the order in which they would be moved.
func (s Seen) Different() (out []Difference) {
	mons := slices.Clone(s.Mons)
	slices.SortFunc(mons, func(a, b Mon) int { return compareNames(a.Name, b.Name) })
	holders := map[string]string{} // by zone: the mon that may stay
	for _, pass := range []bool{true, false} {
		for _, m := range mons {
			if _, held := holders[m.zone()]; !held && (s.alone(m) == "") == pass {
				holders[m.zone()] = m.Name
			}
		}
	}
	for _, m := range mons {
		why := s.alone(m)
		if m.RunBy != "" {
			continue
		}
		if holder := holders[m.zone()]; why == "" && len(s.Want.Zones) > 0 && holder != m.Name {
			why = fmt.Sprintf("zone %s has mon.%s already", m.zone(), holder)
		}
		if why != "" {
			out = append(out, Difference{Mon: m.Name, Why: why})
		}
	}
	return out
}

// alone is what is different about a mon whatever the others are; "": nothing.
func (s Seen) alone(m Mon) string {
	if m.RunBy != "" {
		return ""
	}
	zone := ""
	if len(s.Want.Zones) > 0 {
		zone = m.zone()
		if zone == "" {
			return "its zone is not known"
		}
		if !slices.Contains(s.Want.Zones, zone) {
			return "zone " + zone + " is not in the spec"
		}
	}
	if want := s.Want.Storage[zone]; want != m.Storage {
		return fmt.Sprintf("its store is on %s, and the spec says %s", m.Storage, want)
	}
	return s.fixed(m)
}

// fixed is what is different about a mon that only another mon could have.
func (s Seen) fixed(m Mon) string {
	switch f := m.Fixed; {
	case f == nil:
		return ""
	case f.HostNetwork && !s.Want.HostNetwork:
		return "it has the address of its node (hostNetwork), and the spec says one of its own"
	case !f.HostNetwork && s.Want.HostNetwork:
		return "it has an address of its own, and the spec says that of its node (hostNetwork)"
	case f.DataDir != "" && f.DataDir != s.Want.DataDir:
		return fmt.Sprintf("its store is below %s, and the spec says %s", f.DataDir, s.Want.DataDir)
	}
	return ""
}

// superfluous are the mons beyond the spec's count, the one that goes first before the others: those that are
// different, then those without which fewer zones are fatal, then the youngest name. Those that others run come last.
func (s Seen) superfluous() []string {
	if len(s.Mons) <= s.Want.Count {
		return nil
	}
	different := map[string]bool{}
	for _, d := range s.Different() {
		different[d.Mon] = true
	}
	all := s.Monmap()
	mons := slices.Clone(s.Mons)
	slices.SortFunc(mons, func(a, b Mon) int {
		return cmp.Or(
			cmp.Compare(toInt(a.RunBy != ""), toInt(b.RunBy != "")),
			cmp.Compare(toInt(!different[a.Name]), toInt(!different[b.Name])),
			cmp.Compare(len(all.Without(a.Name).Fatal()), len(all.Without(b.Name).Fatal())),
			compareNames(b.Name, a.Name),
		)
	})
	names := make([]string, 0, len(mons)-s.Want.Count)
	for _, m := range mons[:len(mons)-s.Want.Count] {
		names = append(names, m.Name)
	}
	return names
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// compareNames has the order in which names are given: z comes before aa.
func compareNames(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
