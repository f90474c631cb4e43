package monplan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// TestAddresses: with hostNetwork no newcomer gets an address that a mon has, or has left a short while ago.
func TestAddresses(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for _, tt := range []struct {
		what, mons, more string
		left             []monplan.Address
		want             string
		avoid            []string
	}{
		{
			what: "the dead mon's own node is none for its successor", mons: "a b! c", more: "d",
			want: "FailOver: Schedule d", avoid: []string{"node-a", "node-b", "node-c"},
		},
		{
			what: "an address that a mon has just left", mons: "a b", more: "d",
			left: []monplan.Address{{Mon: "x", IP: "ip-d", Left: ago(time.Minute)}},
			want: "Wait: the monmap has 2 mons, and the spec says 3; no node is free: node-a has mon.a, node-b has mon.b, " +
				"node-d has the address that mon.x has left, until 2026-11-01T12:14:00Z",
		},
		{
			what: "another node is free", mons: "a b", more: "d e",
			left: []monplan.Address{{Mon: "x", IP: "ip-d", Left: ago(time.Minute)}},
			want: "Add: Schedule c", avoid: []string{"node-a", "node-b", "node-d"},
		},
		{
			what: "an address that has rested", mons: "a b", more: "d",
			left: []monplan.Address{{Mon: "x", IP: "ip-d", Left: ago(monplan.AddressRests)}},
			want: "Add: Schedule c", avoid: []string{"node-a", "node-b"},
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := seen(tt.mons, tt.more)
			s.Want.HostNetwork, s.Addresses = true, tt.left
			for i := range s.Nodes {
				s.Nodes[i].IP = "ip-" + s.Nodes[i].Name[len("node-"):]
			}
			for _, m := range s.Mons {
				s.Addresses = append(s.Addresses, monplan.Address{Mon: m.Name, IP: "ip-" + m.Name})
			}
			step := monplan.Next(s)
			assert.Contains(t, told(step), tt.want)
			if step.Work != nil {
				assert.Equal(t, tt.avoid, step.Work.Avoid)
			}
			s.Want.HostNetwork = false // each has the address of a Service of its own
			if step = monplan.Next(s); assert.Equal(t, monplan.Move, step.Verdict) {
				assert.Empty(t, step.Work.Avoid)
			}
		})
	}
}

// TestANewcomerHasItsOwnAddress: it is in the monmap while it joins.
func TestANewcomerHasItsOwnAddress(t *testing.T) {
	s := seen("a b", "c")
	s.Want.HostNetwork = true
	s.Nodes[2].IP, s.Addresses = "ip-c", []monplan.Address{{Mon: "c", IP: "ip-c"}}
	s.Work = &monplan.Work{Kind: monplan.Add, Newcomer: "c", Generation: 1, Node: "node-c", Started: noon}
	assert.Empty(t, monplan.Next(s).Work.Avoid)
}

func TestLeft(t *testing.T) {
	was := []monplan.Address{
		{Mon: "x", IP: "1", Left: noon.Add(-monplan.AddressRests)},
		{Mon: "y", IP: "2", Left: noon.Add(-time.Minute)},
		{Mon: "a", IP: "3"},
		{Mon: "b", IP: "4"},
		{Mon: "z"},
	}
	now := []monplan.Address{{Mon: "b", IP: "4"}}
	assert.Equal(t, []monplan.Address{
		{Mon: "y", IP: "2", Left: noon.Add(-time.Minute)}, {Mon: "a", IP: "3", Left: noon},
	}, monplan.Left(was, now, noon))

	was = nil
	for i := range 40 {
		was = append(was, monplan.Address{Mon: monplan.NameOf(i), IP: fmt.Sprint(i), Left: noon.Add(time.Duration(i))})
	}
	left := monplan.Left(was, nil, noon)
	assert.Len(t, left, 15)
	assert.Equal(t, "39", left[14].IP, "the last ones count")
}
