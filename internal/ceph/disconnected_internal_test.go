package ceph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConnected: who has a session, if monitors keep some of processes that are gone.
func TestConnected(t *testing.T) {
	at := func(nonces ...uint32) (a Addrs) {
		for _, n := range nonces {
			a.Vec = append(a.Vec, Addr{n})
		}
		return a
	}
	m := &OSDMap{OSDs: []OSD{{ID: 0, Addrs: at(10, 10)}, {ID: 1, Addrs: at(11)}, {ID: 2}}}
	for name, c := range map[string]struct {
		sessions []Session
		want     map[int]bool
	}{
		"each has one": {[]Session{{0, at(10)}, {1, at(11)}}, map[int]bool{0: true, 1: true}},
		"one has another that it left behind": {
			[]Session{{0, at(9)}, {0, at(10)}, {1, at(11)}}, map[int]bool{0: true, 1: true},
		},
		"one has only the one that it left behind": {[]Session{{0, at(9)}, {1, at(11)}}, map[int]bool{1: true}},
		"by addresses nobody can be told":          {[]Session{{0, at(9)}, {1, at(8)}}, map[int]bool{0: true, 1: true}},
		"no addresses":                             {[]Session{{0, at()}, {2, at()}}, map[int]bool{0: true, 2: true}},
		"nobody":                                   {nil, map[int]bool{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, connected(m, c.sessions)) })
	}
}
