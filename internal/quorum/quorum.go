// Package quorum is the arithmetic of majorities, in one place: which mons may stop, leave the monmap or join it
// without taking the quorum away. Everything here is a pure function of a monmap and of which of its mons live.
//
// Three changes differ by what becomes of the monmap. A mon that stops comes back, so the monmap keeps it and the
// majority stays as large as it was. A mon that is removed leaves the monmap, which makes the majority smaller or
// leaves it. A mon that joins is in the monmap 50 to 200 ms after its process has started, before it can serve: if it
// dies then, the majority has become larger and nobody is there for it. So a newcomer counts as dead until it is in
// quorum.
package quorum

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Majority is how many mons of a monmap have to live, so that they can agree.
func Majority(mons int) int { return mons/2 + 1 }

// Has tells whether so many living mons are a majority of the monmap. An empty monmap has none.
func Has(mons, living int) bool { return living >= Majority(mons) }

// Spare is how many of the living mons may stop before the rest is no majority. It is negative without a quorum.
func Spare(mons, living int) int { return living - Majority(mons) }

// Mon is one mon of a monmap.
type Mon struct {
	Name string
	// Zone is the failure domain that it shares with other mons; "" for a mon that shares none.
	Zone string
	// Alive: it is in quorum, and nothing is known to take it away. How old that knowledge may be, the caller decides.
	Alive bool
}

// Map is a monmap. Each name is in it once.
type Map []Mon

// Living counts the mons that are alive.
func (m Map) Living() (n int) {
	for _, mon := range m {
		if mon.Alive {
			n++
		}
	}
	return n
}

// Quorum tells whether the living mons are a majority.
func (m Map) Quorum() bool { return Has(len(m), m.Living()) }

// Dead are the names of the mons that are not alive, sorted.
func (m Map) Dead() (names []string) {
	for _, mon := range m {
		if !mon.Alive {
			names = append(names, mon.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Find returns the mon of a name.
func (m Map) Find(name string) (Mon, bool) {
	i := slices.IndexFunc(m, func(mon Mon) bool { return mon.Name == name })
	if i < 0 {
		return Mon{}, false
	}
	return m[i], true
}

// Without is the monmap after a mon has left it.
func (m Map) Without(name string) Map {
	return slices.DeleteFunc(slices.Clone(m), func(mon Mon) bool { return mon.Name == name })
}

// With is the monmap after a mon has joined it, dead or alive.
func (m Map) With(newcomer Mon) Map { return append(m.Without(newcomer.Name), newcomer) }

// MayStop answers whether a mon may stop and come back later: the others have to be a majority of the same monmap.
func (m Map) MayStop(name string) storage.Answer {
	mon, known := m.Find(name)
	switch {
	case !known:
		return no("mon.%s is not in the monmap", name)
	case !m.Quorum():
		return m.noQuorum()
	case mon.Alive && m.Living()-1 < Majority(len(m)):
		return no("without mon.%s only %d of %d mons would live, and a majority is %d", name, m.Living()-1, len(m),
			Majority(len(m)))
	}
	return storage.Answer{OK: true}
}

// MayRemove answers whether a mon may leave the monmap for good: the living ones that stay have to be a majority of the
// monmap without it. A mon that the monmap does not have is refused, although Ceph calls its removal a success: whoever
// asks means another monmap.
func (m Map) MayRemove(name string) storage.Answer {
	if _, known := m.Find(name); !known {
		return no("mon.%s is not in the monmap", name)
	}
	after := m.Without(name)
	switch {
	case !m.Quorum(): // no command is answered
		return m.noQuorum()
	case len(after) == 0:
		return no("mon.%s is the only mon", name)
	case !after.Quorum():
		return no("without mon.%s only %d of %d mons would live, and a majority is %d", name, after.Living(), len(after),
			Majority(len(after)))
	}
	return storage.Answer{OK: true}
}

// MayJoin answers whether a mon may be started that adds itself to the monmap: the living ones have to be a majority
// even if it dies as soon as it is in there. A single mon never is.
func (m Map) MayJoin(name string) storage.Answer {
	after := m.With(Mon{Name: name})
	_, known := m.Find(name)
	switch {
	case known:
		return no("mon.%s is in the monmap already", name)
	case !m.Quorum():
		return m.noQuorum()
	case !after.Quorum():
		return no("if mon.%s dies while it joins, %d of %d mons live, and a majority is %d", name, after.Living(),
			len(after), Majority(len(after)))
	}
	return storage.Answer{OK: true}
}

// MayReplace answers whether a mon that was replaced may leave the monmap. That has no hurry: it waits until every
// other mon is alive, so that the monmap of afterwards can lose as many as its size promises.
func (m Map) MayReplace(name string) storage.Answer {
	if a := m.Without(name).EveryZoneUp(); !a.OK {
		return a
	}
	return m.MayRemove(name)
}

// MayOneLess answers whether a living mon may leave the monmap before its successor has joined, where there is no place
// for both: every mon has to be alive, the rest has to be a majority of both monmaps, and the successor has to be able
// to join then. So it takes three mons, and none of them may die meanwhile.
func (m Map) MayOneLess(name string) storage.Answer {
	if a := m.EveryZoneUp(); !a.OK {
		return a
	}
	if a := m.MayRemove(name); !a.OK {
		return a
	}
	if a := m.MayStop(name); !a.OK {
		return a
	}
	return m.Without(name).MayJoin(name)
}

// EveryZoneUp answers whether all mons are alive, and says in which zones one is not.
func (m Map) EveryZoneUp() storage.Answer {
	var down []string
	for _, mon := range m {
		switch {
		case mon.Alive:
		case mon.Zone == "":
			down = append(down, "mon."+mon.Name)
		default:
			down = append(down, fmt.Sprintf("mon.%s in %s", mon.Name, mon.Zone))
		}
	}
	if len(down) == 0 {
		return storage.Answer{OK: true}
	}
	slices.Sort(down)
	return no("out of quorum: %s", strings.Join(down, ", "))
}

// Fatal are the zones whose loss takes the quorum away, sorted: the living mons elsewhere are no majority.
func (m Map) Fatal() (zones []string) {
	elsewhere := map[string]int{}
	for _, mon := range m {
		if mon.Zone != "" {
			elsewhere[mon.Zone] = m.Living()
		}
	}
	for _, mon := range m {
		if mon.Zone != "" && mon.Alive {
			elsewhere[mon.Zone]--
		}
	}
	for zone, living := range elsewhere {
		if !Has(len(m), living) {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return zones
}

func (m Map) noQuorum() storage.Answer {
	return no("only %d of %d mons live, and a majority is %d", m.Living(), len(m), Majority(len(m)))
}

func no(format string, args ...any) storage.Answer {
	return storage.Answer{Reason: fmt.Sprintf(format, args...)}
}
