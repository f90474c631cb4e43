package quorum_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// parse reads "a b! c@x d!@y": names, ! for a dead mon, @ for its zone.
func parse(text string) (m quorum.Map) {
	for _, word := range strings.Fields(text) {
		name, zone, _ := strings.Cut(word, "@")
		name, dead := strings.CutSuffix(name, "!")
		m = append(m, quorum.Mon{Name: name, Zone: zone, Alive: !dead})
	}
	return m
}

func TestMajority(t *testing.T) {
	for mons, want := range []int{1, 1, 2, 2, 3, 3, 4, 4, 5} {
		assert.Equal(t, want, quorum.Majority(mons), "of %d", mons)
	}
	assert.False(t, quorum.Has(0, 0), "nobody is no majority of nobody")
	assert.Equal(t, -1, quorum.Spare(3, 1))
	assert.Equal(t, 2, quorum.Spare(5, 5))
}

func TestAnswers(t *testing.T) {
	stop, remove, join := quorum.Map.MayStop, quorum.Map.MayRemove, quorum.Map.MayJoin
	replace, oneLess := quorum.Map.MayReplace, quorum.Map.MayOneLess
	for _, c := range []struct {
		what string
		may  func(quorum.Map, string) storage.Answer
		mons string
		mon  string
		no   string // "": yes
	}{
		{"one of three", stop, "a b c", "a", ""},
		{"the last spare", stop, "a b! c", "a", "without mon.a only 1 of 3 mons would live, and a majority is 2"},
		{"a dead one costs nothing", stop, "a b! c", "b", ""},
		{"one of two", stop, "a b", "a", "without mon.a only 1 of 2 mons would live, and a majority is 2"},
		{"one of two is removed", remove, "a b", "a", ""},
		{"the only one", remove, "a", "a", "mon.a is the only mon"},
		{"the dead one of three", remove, "a b! c", "b", ""},
		{
			"a living one, beside a dead one", remove, "a b! c", "a",
			"without mon.a only 1 of 2 mons would live, and a majority is 2",
		},
		{"no quorum left to ask", remove, "a b! c!", "b", "only 1 of 3 mons live, and a majority is 2"},
		{"one that Ceph calls removed", remove, "a b c", "d", "mon.d is not in the monmap"},
		{"a fourth", join, "a b c", "d", ""},
		{
			"beside a dead one: two of four, for ever", join, "a b! c", "d",
			"if mon.d dies while it joins, 2 of 4 mons live, and a majority is 3",
		},
		{"after the dead one left", join, "a c", "d", ""},
		{"beside a single one", join, "a", "b", "if mon.b dies while it joins, 1 of 2 mons live, and a majority is 2"},
		{"twice", join, "a b c", "a", "mon.a is in the monmap already"},
		{"once the newcomer is in quorum", replace, "a b c d", "a", ""},
		{"while the newcomer is not", replace, "a b c d!@x", "a", "out of quorum: mon.d in x"},
		{"three nodes", oneLess, "a b c", "a", ""},
		{"three nodes, one of them dead", oneLess, "a b! c", "a", "out of quorum: mon.b"},
		{"itself dead", oneLess, "a! b c", "a", "out of quorum: mon.a"},
		{"two nodes", oneLess, "a b", "a", "without mon.a only 1 of 2 mons would live, and a majority is 2"},
	} {
		a := c.may(parse(c.mons), c.mon)
		assert.Equal(t, c.no, a.Reason, c.what)
		assert.Equal(t, c.no == "", a.OK, c.what)
	}
}

func TestFatal(t *testing.T) {
	for mons, want := range map[string][]string{
		"a@x b@y c@z":         nil,
		"a@x b@y c@z d@x":     {"x"}, // for as long as a newcomer shares the zone of whom it replaces
		"a@x b@x c@y":         {"x"},
		"a@x b@y c!@z":        {"x", "y"},
		"a@x b@x c@y d@y e@z": nil,
		"a b c":               nil,
		"a!@x":                {"x"},
	} {
		assert.Equal(t, want, parse(mons).Fatal(), mons)
	}
}

// The dumb model: every set of living mons is tried, and is a quorum when those outside of it are fewer.
func agree(m quorum.Map) bool {
	for set := range 1 << len(m) {
		in, out, living := 0, 0, true
		for i, mon := range m {
			if set&(1<<i) != 0 {
				in++
				living = living && mon.Alive
			} else {
				out++
			}
		}
		if living && in > out {
			return true
		}
	}
	return false
}

func draw(t *rapid.T) quorum.Map {
	m := make(quorum.Map, rapid.IntRange(0, 7).Draw(t, "mons"))
	for i := range m {
		m[i] = quorum.Mon{
			Name: string(rune('a' + i)), Zone: rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "zone"),
			Alive: rapid.Bool().Draw(t, "alive"),
		}
	}
	return m
}

// dies is the monmap after one of its mons has died.
func dies(m quorum.Map, name string) quorum.Map {
	mon, _ := m.Find(name)
	mon.Alive = false
	return m.With(mon)
}

func TestAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := draw(t)
		name := rapid.SampledFrom([]string{"a", "b", "c", "h"}).Draw(t, "name")
		_, known := m.Find(name)
		is := func(what string, a storage.Answer, want bool) {
			if a.OK != want || a.OK == (a.Reason != "") {
				t.Fatalf("%s of %s: %+v, want %v; %+v", what, name, a, want, m)
			}
		}
		now, after := agree(m), m.Without(name)
		if m.Quorum() != now {
			t.Fatalf("quorum: %v, want %v; %+v", m.Quorum(), now, m)
		}
		is("stop", m.MayStop(name), known && now && agree(dies(m, name)))
		is("remove", m.MayRemove(name), known && now && agree(after))
		// Whatever becomes of a newcomer, the mons agree.
		is("join", m.MayJoin(name), !known && now && agree(m.With(quorum.Mon{Name: name})) &&
			agree(m.With(quorum.Mon{Name: name, Alive: true})))
		is("replace", m.MayReplace(name), known && now && agree(after) && len(after.Dead()) == 0)
		is("one less", m.MayOneLess(name), known && len(m.Dead()) == 0 && agree(dies(m, name)) && agree(after) &&
			agree(after.With(quorum.Mon{Name: name})))
		for _, zone := range []string{"x", "y", "z"} {
			lost, has := slices.Clone(m), false
			for i := range lost {
				if lost[i].Zone == zone {
					has, lost[i].Alive = true, false
				}
			}
			if got := slices.Contains(m.Fatal(), zone); got != (has && !agree(lost)) {
				t.Fatalf("loss of %s is fatal: %v; %+v", zone, got, m)
			}
		}
	})
}

// Whatever allowed steps are taken, and though any newcomer may die at once: as long as no other mon dies, the mons
// agree.
func TestAllowedStepsKeepTheQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := draw(t)
		if !m.Quorum() {
			return
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
			names := []string{fmt.Sprintf("n%d", i)}
			for _, mon := range m {
				names = append(names, mon.Name)
			}
			name := rapid.SampledFrom(names).Draw(t, "name")
			switch {
			case rapid.Bool().Draw(t, "join") && m.MayJoin(name).OK:
				m = m.With(quorum.Mon{Name: name, Alive: rapid.Bool().Draw(t, "lives")})
			case m.MayRemove(name).OK:
				m = m.Without(name)
			}
			if !agree(m) {
				t.Fatalf("step %d with %s: %+v", i, name, m)
			}
		}
	})
}
