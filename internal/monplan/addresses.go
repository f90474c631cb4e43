package monplan

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// This file is about addresses. With hostNetwork a mon has that of its node, and who looks for a mon that has left
// would find another one there. So an address is not used again at once.

// Address is that of a mon, or of one that has left the monmap.
type Address struct {
	Mon string
	IP  string
	// Left is when it was first seen that the mon had left the monmap; zero: it is there.
	Left time.Time
}

// AddressRests is how long an address is not used again when its mon has left. Clients and daemons know of a new monmap
// within seconds; one that was cut off meanwhile gets it when it is back.
const AddressRests = 15 * time.Minute

// mostLeft are the addresses that are remembered. At most as many mons leave while one rests.
const mostLeft = 15

// Left are the addresses that rest: those of before, and those whose mons are in the monmap no more.
func Left(before, now []Address, at time.Time) (left []Address) {
	for _, a := range before {
		used := slices.ContainsFunc(now, func(n Address) bool { return n.Mon == a.Mon })
		switch {
		case used || a.IP == "":
			continue
		case a.Left.IsZero():
			a.Left = at
		case at.Sub(a.Left) >= AddressRests:
			continue
		}
		left = append(left, a)
	}
	slices.SortStableFunc(left, func(a, b Address) int {
		return cmp.Or(a.Left.Compare(b.Left), compareNames(a.Mon, b.Mon))
	})
	return left[max(0, len(left)-mostLeft):]
}

// spent is why no newcomer may have the address of a node; "": it may. Without hostNetwork no mon has that.
func (s Seen) spent(n Node) string {
	if !s.Want.HostNetwork || n.IP == "" {
		return ""
	}
	for _, a := range s.Addresses {
		switch {
		case a.IP != n.IP, s.Work != nil && a.Mon == s.Work.Newcomer: // its own
		case a.Left.IsZero():
			return "has the address of mon." + a.Mon
		case s.Now.Sub(a.Left) < AddressRests:
			return fmt.Sprintf("has the address that mon.%s has left, until %s", a.Mon,
				a.Left.Add(AddressRests).UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// avoid are the nodes whose address no newcomer may have.
func (s Seen) avoid() (names []string) {
	for _, n := range s.Nodes {
		if s.spent(n) != "" {
			names = append(names, n.Name)
		}
	}
	return names
}
