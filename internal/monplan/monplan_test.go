package monplan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// seen reads mons and nodes: "a@x b@y! c@z?" are mon.a on node-a in zone x, mon.b out of quorum for 11 minutes, mon.c
// for one. A name in capitals has its store on a volume claim. The nodes are those of the mons, and more: "d@x".
func seen(mons, more string) monplan.Seen {
	s := monplan.Seen{
		Now: noon,
		Want: monplan.Want{
			Generation: 1, Count: 3, Template: "new", HealthTimeout: 10 * time.Minute, JoinTimeout: 5 * time.Minute,
			Storage: map[string]monplan.Storage{"": hostPath},
		},
	}
	for _, word := range strings.Fields(mons) {
		out := noon
		word, dead := strings.CutSuffix(word, "!")
		word, ailing := strings.CutSuffix(word, "?")
		name, zone, _ := strings.Cut(word, "@")
		m := monplan.Mon{
			Name: strings.ToLower(name), Node: "node-" + strings.ToLower(name), Zone: zone, Alive: !dead && !ailing,
			Template: "new",
		}
		if m.Name != name {
			m.Storage = claim
		}
		m.Bound = !m.Storage.Claim
		switch {
		case dead:
			m.OutSince = out.Add(-11 * time.Minute)
		case ailing:
			m.OutSince = out.Add(-time.Minute)
		}
		s.Mons = append(s.Mons, m)
		s.Endpoints = append(s.Endpoints, m.Name)
		s.Nodes = append(s.Nodes, monplan.Node{Name: m.Node, Zone: zone})
	}
	for _, word := range strings.Fields(more) {
		name, zone, _ := strings.Cut(word, "@")
		s.Nodes = append(s.Nodes, monplan.Node{Name: "node-" + name, Zone: zone})
	}
	s.NextID = len(s.Mons)
	return s
}

// zoned asks for a mon in each of the zones, on a claim.
func zoned(s *monplan.Seen, zones ...string) {
	s.Want.Zones = zones
	for _, zone := range zones {
		s.Want.Storage[zone] = claim
	}
}

// told is a step in one line.
func told(s monplan.Step) string {
	if s.Verdict != monplan.Move {
		return fmt.Sprintf("%s: %s", s.Verdict, s.Why)
	}
	var acts []string
	for _, a := range s.Acts {
		acts = append(acts, fmt.Sprintf("%s %s", a.Do, a.Mon))
	}
	return fmt.Sprintf("%s: %s", s.Work.Kind, strings.Join(acts, ", "))
}

type change func(*monplan.Seen)

func TestNext(t *testing.T) {
	const joins = "Schedule d, ClaimVolume d, DropCanary d, Start d, AwaitQuorum d, SaveEndpoints d"
	const onPath = "its store is on HostPath, and the spec says a PVC of class disk"
	const refused = "Refuse: mon.a: " + onPath + "; "
	migrate := func(s *monplan.Seen) { s.Mode.Migrate = true }
	claims := func(s *monplan.Seen) { s.Want.Storage[""] = claim }
	for _, c := range []struct {
		what       string
		mons, more string
		but        []change
		want       string
	}{
		{what: "all is well", mons: "a b c", want: "Done: "},
		{
			what: "a step ended before it said that its newcomer is there", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Endpoints, s.Ending = []string{"a", "b"}, true }},
			want: "TidyUp: SaveEndpoints c",
		},
		{
			what: "a step ended before it said who has left", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Endpoints = []string{"a", "b", "c", "d"} }},
			want: "TidyUp: SaveEndpoints d",
		},
		{
			what: "whose endpoints are wrong on Rook is Rook's", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Endpoints, s.Elsewhere = []string{"a"}, "CephCluster r" }},
			want: "Refuse: CephCluster r looks after these mons",
		},
		{
			what: "endpoints without names are somebody's own", mons: "a b c",
			but: []change{func(s *monplan.Seen) { s.Endpoints = nil }}, want: "Done: ",
		},
		{
			what: "so are those with other names than ours", mons: "a b c",
			but: []change{func(s *monplan.Seen) { s.Endpoints = []string{"node-1", "node-2"} }}, want: "Done: ",
		},
		{
			what: "a canary that nobody waits for", mons: "a b! c", more: "d",
			but:  []change{func(s *monplan.Seen) { s.Strays = []string{"e"} }},
			want: "TidyUp: DropCanary e",
		},
		{
			what: "nobody committed", mons: "a b c", but: []change{func(s *monplan.Seen) { s.Unproved = "no answer for 5s" }},
			want: "Wait: Ceph has not committed anything: no answer for 5s",
		},
		{
			what: "two of three are down", mons: "a b! c!", more: "d",
			want: "Wait: only 1 of 3 mons live (out of quorum: [b c]), and a majority is 2: no mon can be replaced. " +
				"Bring 1 of them back",
		},
		{
			what: "a dead mon of a DaemonSet is its owner's to replace", mons: "a b! c", more: "d",
			but: []change{func(s *monplan.Seen) { s.Mons[1].RunBy = "DaemonSet ceph-mon" }},
			want: "Wait: mon.b is out of quorum, and DaemonSet ceph-mon runs it and would start it again: lockkeeper moves " +
				"and replaces only mons with a Deployment each",
		},
		{
			what: "what a DaemonSet runs is not compared, and the others move", mons: "a b c", more: "d",
			but:  []change{migrate, claims, func(s *monplan.Seen) { s.Mons[0].RunBy = "DaemonSet ceph-mon" }},
			want: "Migrate: Schedule d",
		},
		{
			what: "all are a DaemonSet's", mons: "a b c", more: "d",
			but: []change{migrate, claims, func(s *monplan.Seen) {
				for i := range s.Mons {
					s.Mons[i].RunBy = "DaemonSet ceph-mon"
				}
			}}, want: "Done: ",
		},
		{
			what: "the superfluous one is a Deployment's", mons: "a b c d", more: "e",
			but:  []change{migrate, func(s *monplan.Seen) { s.Mons[3].RunBy = "DaemonSet ceph-mon" }},
			want: "Remove: RemoveMon c",
		},
		{
			what: "all superfluous ones are a DaemonSet's", mons: "a b c d", more: "e",
			but: []change{migrate, func(s *monplan.Seen) {
				for i := range s.Mons {
					s.Mons[i].RunBy = "DaemonSet ceph-mon"
				}
			}},
			want: "Refuse: mon.d is superfluous: the monmap has 4 mons, and the spec says 3; DaemonSet ceph-mon runs it",
		},
		{
			what: "a dead mon leaves when all is ready, then the newcomer joins", mons: "a b! c", more: "d",
			want: "FailOver: Schedule d, ClaimVolume d, RemoveMon b, StopMon b, DropCanary d, Start d, AwaitQuorum d, " +
				"SaveEndpoints d",
		},
		{
			what: "out for a minute", mons: "a b? c", more: "d",
			want: "Wait: mon.b is out of quorum; it is replaced if it stays so",
		},
		{
			what: "out for a minute, and its node is deleted with its store", mons: "a b? c", more: "d",
			but:  []change{func(s *monplan.Seen) { s.Mons[1].NodeGone = true }},
			want: "FailOver: Schedule d, ClaimVolume d, RemoveMon b",
		},
		{
			what: "the node is deleted, and the store can be used elsewhere", mons: "a B? c", more: "d",
			but:  []change{claims, func(s *monplan.Seen) { s.Mons[1].NodeGone = true }},
			want: "Wait: mon.b is out of quorum",
		},
		{
			what: "the node is deleted, and the mon is in quorum all the same", mons: "a b c", more: "d",
			but: []change{func(s *monplan.Seen) { s.Mons[1].NodeGone = true }}, want: "Done: ",
		},
		{
			what: "a drain has it", mons: "a b! c", more: "d",
			but:  []change{func(s *monplan.Seen) { s.Mons[1].Drain = "drain/node-b" }},
			want: "Wait: mon.b is out of quorum, and drain/node-b has its node",
		},
		{
			what: "two of five are dead: the longer dead first", mons: "a b! c d! e", more: "f",
			but: []change{func(s *monplan.Seen) {
				s.Want.Count, s.Mons[3].OutSince = 5, noon.Add(-time.Hour)
			}},
			want: "FailOver: Schedule f, ClaimVolume f, RemoveMon d",
		},
		{
			what: "a dead one beyond the count is not replaced", mons: "a b c d!",
			want: "Remove: RemoveMon d, StopMon d, SaveEndpoints d",
		},
		{
			what: "nor are two", mons: "a b c d! e!", want: "Remove: RemoveMon d, StopMon d, SaveEndpoints d",
		},
		{
			what: "one is missing", mons: "a b", more: "c", want: "Add: Schedule c, ClaimVolume c, DropCanary c, Start c, " +
				"AwaitQuorum c, SaveEndpoints c",
		},
		{
			what: "one is missing, and a single one cannot be joined", mons: "a", more: "b",
			want: "Wait: the monmap has 1 mons, and the spec says 3; if mon.b dies while it joins, 1 of 2 mons live",
		},
		{
			what: "one is missing, and there is no node", mons: "a b",
			want: "Wait: the monmap has 2 mons, and the spec says 3; no node is free: node-a has mon.a, node-b has mon.b",
		},
		{
			what: "another template, and somebody else's pod is being replaced", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Mons[0].Renewing, s.Mons[1].Template = true, "old" }},
			want: "Wait: mon.b has another pod template than the spec; the pod of mon.a is being replaced",
		},
		{
			what: "another template", mons: "a b c", but: []change{func(s *monplan.Seen) { s.Mons[1].Template = "old" }},
			want: "Restart: RestartMon b, AwaitQuorum b",
		},
		{
			what: "another template, of an image that none can start with", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Mons[1].Template, s.Image.Refused = "old", "too old" }},
			want: "Refuse: mon.b has another pod template than the spec; too old",
		},
		{
			what: "another template, of an image that nobody knows", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Mons[1].Template, s.Image.Waits = "old", "not asked" }},
			want: "Wait: mon.b has another pod template than the spec; not asked",
		},
		{
			what: "one is missing, and nobody knows the image", mons: "a b", more: "c",
			but:  []change{func(s *monplan.Seen) { s.Image.Waits = "not asked" }},
			want: "Add: Schedule c, ClaimVolume c, DropCanary c, Start c, AwaitQuorum c, SaveEndpoints c",
		},
		{
			what: "one is missing, and none can start with the image", mons: "a b", more: "d",
			but:  []change{func(s *monplan.Seen) { s.Image.Refused = "too old" }},
			want: "Refuse: the monmap has 2 mons, and the spec says 3; too old",
		},
		{
			what: "another template, and one of the nodes is not ready: the others first", mons: "a b c",
			but: []change{func(s *monplan.Seen) {
				s.Mons[0].Unheard, s.Mons[0].Template, s.Mons[1].Template = "node-a", "old", "old"
			}},
			want: "Restart: RestartMon b, AwaitQuorum b",
		},
		{
			what: "another template, and its node is not ready", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Mons[1].Unheard, s.Mons[1].Template = "node-b", "old" }},
			want: "Wait: mon.b has another pod template than the spec; its node node-b is not ready",
		},
		{
			what: "its pod is to be another one, and its node is not ready", mons: "a b c",
			but:  []change{func(s *monplan.Seen) { s.Mons[1].Unheard, s.Mons[1].Renewing = "node-b", true }},
			want: "Wait: the pod of mon.b is being replaced; its node node-b is not ready",
		},
		{
			what: "a node is not ready, and its mon is as it should be", mons: "a b c",
			but: []change{func(s *monplan.Seen) { s.Mons[1].Unheard = "node-b" }}, want: "Done: ",
		},
		{
			what: "another template, and another mon is out", mons: "a? b c",
			but:  []change{func(s *monplan.Seen) { s.Mons[1].Template = "old" }},
			want: "Wait: mon.a is out of quorum",
		},
		{
			what: "the template may be why it is out", mons: "a? b c",
			but: []change{func(s *monplan.Seen) { s.Mons[0].Template = "old" }}, want: "Restart: RestartMon a, AwaitQuorum a",
		},
		{
			what: "an adopted mon is not restarted", mons: "a b c",
			but: []change{func(s *monplan.Seen) { s.Mons[1].Template = "" }}, want: "Done: ",
		},
		{
			what: "other storage, and nobody asked to migrate", mons: "a b c", more: "d", but: []change{claims},
			want: "Done: mon.a: " + onPath + "; mon.b",
		},
		{
			what: "HostPath to PVC", mons: "a b c", more: "d", but: []change{claims, migrate},
			want: "Migrate: " + joins + ", RemoveMon a, StopMon a, SaveEndpoints a",
		},
		{
			what: "while one is out", mons: "a b c?", more: "d", but: []change{claims, migrate},
			want: "Wait: mon.c is out of quorum",
		},
		{
			what: "three nodes with three mons", mons: "a b c", but: []change{claims, migrate},
			want: refused + "no node is free: node-a has " +
				"mon.a, node-b has mon.b, node-c has mon.c; with --one-less mon.a would leave before its successor joins, and " +
				"for that time none of the other 2 mons could be spared",
		},
		{
			what: "the only free node is not ready", mons: "a b c", more: "d",
			but: []change{claims, migrate, func(s *monplan.Seen) { s.Nodes[3].Why, s.Nodes[3].Passing = "is not ready", true }},
			want: "Wait: mon.a: " + onPath + "; no node is free: node-a has mon.a, node-b has mon.b, node-c has mon.c, " +
				"node-d is not ready",
		},
		{
			what: "the only free node is cordoned", mons: "a b c", more: "d",
			but:  []change{claims, migrate, func(s *monplan.Seen) { s.Nodes[3].Why = "is cordoned" }},
			want: refused + "no node is free: node-a has mon.a, node-b has mon.b, node-c has mon.c, node-d is cordoned",
		},
		{
			what: "three nodes with three mons, one less", mons: "a b c",
			but: []change{claims, migrate, func(s *monplan.Seen) { s.Mode.OneLess = true }},
			want: "OneLess: Schedule d, ClaimVolume d, RemoveMon a, StopMon a, DropCanary d, Start d, AwaitQuorum d, " +
				"SaveEndpoints d",
		},
		{
			what: "one less of two", mons: "a b",
			but: []change{claims, migrate, func(s *monplan.Seen) { s.Mode.OneLess, s.Want.Count = true, 2 }},
			want: refused + "no node is free: node-a has " +
				"mon.a, node-b has mon.b; without mon.a only 1 of 2 mons would live",
		},
		{
			what: "one less with hostNetwork: the address would be the same", mons: "a b c",
			but: []change{claims, migrate, func(s *monplan.Seen) {
				s.Mode.OneLess, s.Want.HostNetwork = true, true
			}},
			want: refused + "no node is free: node-a has",
		},
		{
			what: "a single mon", mons: "a", more: "b",
			but:  []change{claims, migrate, func(s *monplan.Seen) { s.Want.Count = 1 }},
			want: refused + "if mon.b dies while it joins",
		},
		{
			what: "zone to zone, into the zone that is free", mons: "A@x B@x C@y", more: "d@z",
			but:  []change{migrate, func(s *monplan.Seen) { zoned(s, "x", "y", "z") }},
			want: "Migrate: " + joins + ", RemoveMon b, StopMon b, SaveEndpoints b",
		},
		{
			what: "a zone that is not in the spec", mons: "A@x B@y C@w", more: "d@z",
			but:  []change{migrate, func(s *monplan.Seen) { zoned(s, "x", "y", "z") }},
			want: "Migrate: " + joins + ", RemoveMon c",
		},
		{
			what: "the newcomer may share the zone of whom it replaces, and no other", mons: "a@x B@y C@z", more: "d@x e@y",
			but:  []change{migrate, func(s *monplan.Seen) { zoned(s, "x", "y", "z") }},
			want: "Migrate: " + joins + ", RemoveMon a",
		},
		{
			what: "no node in the zone but that of another mon", mons: "a@x B@y C@z", more: "e@y",
			but:  []change{migrate, func(s *monplan.Seen) { zoned(s, "x", "y", "z") }},
			want: refused + "no node is free: node-a has mon.a",
		},
		{
			what: "fewer mons than zones", mons: "A@x B@y C@z", more: "d@u",
			but: []change{migrate, func(s *monplan.Seen) { zoned(s, "x", "y", "z", "u") }}, want: "Done: ",
		},
		{
			what: "five become three: those that are different", mons: "a@x B@y C@z D@y E@x",
			but:  []change{migrate, func(s *monplan.Seen) { zoned(s, "x", "y", "z") }},
			want: "Remove: RemoveMon d, StopMon d, SaveEndpoints d",
		},
		{
			what: "nothing is removed unless somebody asked", mons: "a b c d e",
			want: "Done: mon.e is superfluous; mon.d is superfluous; `lockkeeper migrate-mons` moves and removes mons",
		},
		{
			what: "nobody asked, and whoever asked would be refused", mons: "a b c", but: []change{claims},
			want: "Done: `lockkeeper migrate-mons` is refused: mon.a: " + onPath + "; no node is free: node-a has mon.a",
		},
		{
			what: "nobody asked, and there is a place", mons: "a b c", more: "d", but: []change{claims},
			want: "Done: mon.a: " + onPath + "; mon.b: " + onPath + "; mon.c: " + onPath + "; `lockkeeper migrate-mons` moves",
		},
		{
			what: "Rook looks after them", mons: "a b! c", more: "d",
			but:  []change{func(s *monplan.Seen) { s.Elsewhere = "CephCluster rook-ceph" }},
			want: "Refuse: CephCluster rook-ceph looks after these mons: lockkeeper stands aside, and changes none of them",
		},
		{
			what: "it failed once", mons: "a B C", more: "d",
			but:  []change{claims, migrate, func(s *monplan.Seen) { s.Failed = []string{"a"} }},
			want: refused + "its successor did not come",
		},
	} {
		s := seen(c.mons, c.more)
		for _, but := range c.but {
			but(&s)
		}
		got := told(monplan.Next(s))
		if want := strings.TrimSuffix(c.want, " "); strings.HasSuffix(c.want, ": ") {
			assert.Equal(t, want, strings.TrimSpace(got), c.what)
		} else {
			assert.True(t, strings.HasPrefix(got, c.want), "%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
}

// under is a step that is under way, and of which only what the test says has happened.
func under(s monplan.Seen, w monplan.Work) monplan.Seen {
	w.Generation = 1
	s.Work = &w
	return s
}

func TestGoOn(t *testing.T) {
	ready := monplan.Work{
		Kind: monplan.Migrate, Newcomer: "d", Old: "a", Canary: true, Scheduled: true, Claimed: true, Traces: true,
	}
	started := ready
	started.Canary, started.Started, started.Running = false, noon.Add(-time.Minute), true
	failOver := ready
	failOver.Kind, failOver.Old = monplan.FailOver, "b"
	late := started
	late.Started = noon.Add(-5 * time.Minute)
	for _, c := range []struct {
		what string
		mons string
		work monplan.Work
		but  change
		want string
	}{
		{what: "ready", mons: "a b c", work: ready, want: "Migrate: DropCanary d, Start d"},
		{what: "another mon is out: the canary stays", mons: "a b c?", work: ready, want: "Wait: out of quorum: mon.c"},
		{
			what: "another mon is out, right before the start", mons: "a b c?", work: func() monplan.Work {
				w := ready
				w.Canary = false
				return w
			}(), want: "Wait: out of quorum: mon.c",
		},
		{what: "another mon is dead", mons: "a b c!", work: ready, want: "Migrate: DropCanary d, DropTraces d"},
		{
			what: "the old one is dead: it leaves first", mons: "a! b c", work: ready,
			want: "FailOver: RemoveMon a, StopMon a, DropCanary d",
		},
		{
			what: "the old one is dead, and the canary was dropped: its place is looked for anew", mons: "a! b c",
			work: func() monplan.Work {
				w := ready
				w.Canary = false
				return w
			}(), want: "FailOver: Schedule d, ClaimVolume d, RemoveMon a, StopMon a, DropCanary d, Start d",
		},
		{
			what: "the dead one has left, and the canary was dropped", mons: "a c", work: func() monplan.Work {
				w := failOver
				w.Canary, w.Stopped = false, true
				return w
			}(), want: "FailOver: Start d",
		},
		{
			what: "the dead one has left, and the spec was changed: another one is added", mons: "a c", work: failOver,
			but: func(s *monplan.Seen) { s.Want.Generation = 2 }, want: "FailOver: DropCanary d, DropTraces d, StopMon b",
		},
		{what: "started, and not in the monmap", mons: "a b c", work: started, want: "Migrate: AwaitQuorum d"},
		{what: "started, and in the monmap", mons: "a b c d?", work: started, want: "Migrate: AwaitQuorum d"},
		{
			what: "its Deployment was lost", mons: "a b c d?", work: func() monplan.Work {
				w := started
				w.Running = false
				return w
			}(), want: "Migrate: Start d, AwaitQuorum d",
		},
		{
			what: "endpoints before the old one leaves", mons: "a b c d", work: started,
			but:  func(s *monplan.Seen) { s.Endpoints = []string{"a", "b", "c"} },
			want: "Migrate: SaveEndpoints d, RemoveMon a, StopMon a, SaveEndpoints a",
		},
		{
			what: "a dead one was to be removed, and is back", mons: "a b c d",
			work: monplan.Work{Kind: monplan.Remove, Old: "b"}, but: func(s *monplan.Seen) { s.Mode.Migrate = false },
			want: "Done: mon.d is superfluous",
		},
		{
			what: "the job ends: who reads the endpoints finds the newcomer", mons: "a b c d", work: started,
			but:  func(s *monplan.Seen) { s.Endpoints, s.Ending = []string{"a", "b", "c"}, true },
			want: "Migrate: SaveEndpoints d",
		},
		{
			what: "the job ends, and the old one stays", mons: "a b c d", work: started,
			but:  func(s *monplan.Seen) { s.Ending = true },
			want: "Wait: the job of these mons was ended",
		},
		{
			what: "the job ends, and the old one has left", mons: "b c d", work: started,
			but: func(s *monplan.Seen) { s.Ending = true }, want: "Migrate: StopMon a",
		},
		{
			what: "the canary of another step stands in the way", mons: "a b c", work: ready,
			but: func(s *monplan.Seen) { s.Strays = []string{"e"} }, want: "Migrate: DropCanary e",
		},
		{what: "in quorum", mons: "a b c d", work: started, want: "Migrate: RemoveMon a, StopMon a, SaveEndpoints a"},
		{what: "in quorum, and another one is not", mons: "a b? c d", work: started, want: "Wait: out of quorum: mon.b"},
		{what: "in quorum, and another one is dead", mons: "a b! c d", work: started, want: "Remove: RemoveMon b"},
		{what: "it does not come", mons: "a b c d?", work: late, want: "Migrate: RemoveMon d, StopMon d, DropTraces d"},
		{
			what: "it does not come, and nothing was seen of it", mons: "a b c", work: late,
			want: "Migrate: StopMon d, DropTraces d",
		},
		{
			what: "the spec is another one", mons: "a b c", work: ready, but: func(s *monplan.Seen) { s.Want.Generation = 2 },
			want: "Migrate: DropCanary d, DropTraces d",
		},
		{
			what: "the spec is another one, and it has started", mons: "a b c d?", work: started,
			but: func(s *monplan.Seen) { s.Want.Generation = 2 }, want: "Migrate: AwaitQuorum d",
		},
		{
			what: "Rook took over, and it has started", mons: "a b c d?", work: started,
			but:  func(s *monplan.Seen) { s.Elsewhere = "CephCluster r" },
			want: "Migrate: RemoveMon d, StopMon d, DropTraces d",
		},
		{
			what: "a restart that has not begun, and the image is one that none can start with", mons: "a b c",
			work: monplan.Work{Kind: monplan.Restart, Old: "b"},
			but: func(s *monplan.Seen) {
				s.Mons[1].Template, s.Image.Refused = "old", "too old"
			},
			want: "Refuse: mon.b has another pod template than the spec; too old",
		},
		{
			what: "a restart that has not begun, and the image is one that nobody knows", mons: "a b c",
			work: monplan.Work{Kind: monplan.Restart, Old: "b"},
			but:  func(s *monplan.Seen) { s.Mons[1].Template, s.Image.Waits = "old", "not asked" }, want: "Wait: not asked",
		},
		{
			what: "a restarted mon whose old pod still serves", mons: "a b c",
			work: monplan.Work{Kind: monplan.Restart, Old: "b", Restarted: true}, want: "Restart: AwaitQuorum b",
		},
		{
			what: "restarted, and nobody hears of its node: nobody waits for that under the lease", mons: "a b c",
			work: monplan.Work{Kind: monplan.Restart, Old: "b", Restarted: true},
			but:  func(s *monplan.Seen) { s.Mons[1].Unheard, s.Mons[1].Renewing = "node-b", true },
			want: "Wait: the pod of mon.b is being replaced; its node node-b is not ready",
		},
		{
			what: "the living one is to leave first, and another one's pod may stop at any moment", mons: "a b c",
			work: func() monplan.Work {
				w := ready
				w.Kind = monplan.OneLess
				return w
			}(),
			but:  func(s *monplan.Seen) { s.Mons[1].Unheard, s.Mons[1].Renewing = "node-b", true },
			want: "Wait: the pod of mon.b is being replaced",
		},
		{
			what: "it is taken back, and its pod, which still runs, may join", mons: "a b c", work: func() monplan.Work {
				w := started
				w.Undo, w.Running, w.Ending = "no more", false, true
				return w
			}(), want: "Migrate: StopMon d, DropTraces d",
		},
		{
			what: "it is taken back while another mon is out, and may join at this moment: then two of four would live",
			mons: "a b c?", work: func() monplan.Work {
				w := started
				w.Undo = "no more"
				return w
			}(), want: "Wait: mon.d is not stopped before its time to join is over: if mon.d dies while it joins, 2 of 4",
		},
		{
			what: "when it had its time it does not join any more", mons: "a b c?", work: func() monplan.Work {
				w := late
				w.Undo = "no more"
				return w
			}(), want: "Migrate: StopMon d, DropTraces d",
		},
		{
			what: "it is taken back, and was in quorum while its pod ended", mons: "a b c d", work: func() monplan.Work {
				w := started
				w.Undo, w.Running = "no more", false
				return w
			}(), want: "Migrate: RemoveMon d",
		},
		{
			what: "it has left again: its claim stays like that of any mon that was in quorum", mons: "a b c",
			work: func() monplan.Work {
				w := started
				w.Undo, w.Running, w.Joined = "no more", false, true
				return w
			}(),
			but: func(s *monplan.Seen) { s.Ending = true }, want: "Wait: the job of these mons was ended",
		},
		{
			what: "Rook took over, and it is in quorum", mons: "a b c d", work: started,
			but:  func(s *monplan.Seen) { s.Elsewhere = "CephCluster r" },
			want: "Refuse: CephCluster r looks after these mons",
		},
		{what: "all is ready for the successor of a dead one", mons: "a b! c", work: failOver, want: "FailOver: RemoveMon b"},
		{what: "it is back", mons: "a b c", work: failOver, want: "FailOver: DropCanary d, DropTraces d"},
		{what: "the dead one has left", mons: "a c", work: failOver, want: "FailOver: StopMon b, DropCanary d, Start d"},
		{
			what: "the dead one has left, and Rook took over: one is missed all the same", mons: "a c", work: failOver,
			but: func(s *monplan.Seen) { s.Elsewhere = "CephCluster r" }, want: "FailOver: StopMon b, DropCanary d, Start d",
		},
		{
			what: "the node of the canary is gone before the dead one has left", mons: "a b! c", work: func() monplan.Work {
				w := failOver
				w.Scheduled = false
				return w
			}(), want: "FailOver: Schedule d, RemoveMon b",
		},
	} {
		s := under(seen(c.mons, "e"), c.work)
		s.Mode.Migrate = true
		if c.but != nil {
			c.but(&s)
		}
		got := told(monplan.Next(s))
		assert.True(t, strings.HasPrefix(got, c.want), "%s:\n got %s\nwant %s", c.what, got, c.want)
	}
}

// TestTogether: a newcomer is written down as started before its canary goes, if nothing is looked at between the two.
// Whoever ends drops the canary alone.
func TestTogether(t *testing.T) {
	ready := monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a", Canary: true, Scheduled: true, Claimed: true}
	s := under(seen("a b c", "d"), ready)
	s.Mode.Migrate = true
	step := monplan.Next(s)
	assert.Equal(t, []monplan.Act{{Do: monplan.DropCanary, Mon: "d"}, {Do: monplan.Start, Mon: "d"}}, step.Together())
	assert.True(t, step.TakesOrAdds())
	assert.Equal(t, noon, step.Noted(noon).Started)
	s.Ending = true
	step = monplan.Next(s)
	assert.Equal(t, []monplan.Act{{Do: monplan.DropCanary, Mon: "d"}}, step.Acts)
	assert.False(t, step.TakesOrAdds())
	assert.Zero(t, step.Noted(noon).Started)
}

// A lease is needed by whoever takes a living mon away, from the start of the newcomer on, and by nobody else.
func TestTakes(t *testing.T) {
	s := seen("a b c", "d")
	s.Mode.Migrate, s.Want.Storage[""] = true, claim
	assert.Empty(t, monplan.Next(s).Takes, "who waits for a node keeps nobody waiting")
	assert.True(t, monplan.Next(s).Early, "and waits for nobody")
	ready := monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a", Scheduled: true, Claimed: true}
	assert.Equal(t, "a", monplan.Next(under(s, ready)).Takes)
	assert.False(t, monplan.Next(under(s, ready)).Early)
	assert.Empty(t, monplan.Next(seen("a b! c", "d")).Takes)
	ready.Kind, ready.Old = monplan.FailOver, "b"
	assert.Empty(t, monplan.Next(under(seen("a b! c", "d"), ready)).Takes)
	five := seen("a b c d e", "")
	five.Mode.Migrate = true
	assert.Equal(t, "e", monplan.Next(five).Takes)
}

func TestRisk(t *testing.T) {
	s := seen("A@x B@y c@z", "d@z")
	s.Mode.Migrate = true
	zoned(&s, "x", "y", "z")
	s = under(s, monplan.Work{
		Kind: monplan.Migrate, Newcomer: "d", Old: "c", Scheduled: true, Claimed: true, Zone: "z", Node: "node-d",
	})
	assert.Equal(t, "until mon.c has left, the loss of zone z costs the quorum", monplan.Next(s).Risk)
	s.Work.Zone = "u"
	assert.Empty(t, monplan.Next(s).Risk)
}

func TestTimers(t *testing.T) {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	mons := func(text string) []monplan.Mon { return seen(text, "").Mons }
	timers := monplan.Timers(nil, mons("a b? c"), at(0))
	assert.Equal(t, map[string]time.Time{"b": at(0)}, timers)
	timers = monplan.Timers(timers, mons("a b? c?"), at(5))
	assert.Equal(t, map[string]time.Time{"b": at(0), "c": at(5)}, timers, "the first look counts")
	timers = monplan.Timers(timers, mons("a b c?"), at(6))
	assert.Equal(t, map[string]time.Time{"c": at(5)}, timers, "a break ends it")
	timers = monplan.Timers(timers, mons("a b?"), at(7))
	assert.Equal(t, map[string]time.Time{"b": at(7)}, timers, "who has left the monmap has none")
}

func TestCourse(t *testing.T) {
	tell := func(s monplan.Seen) (out []string) {
		for _, step := range monplan.Course(s) {
			line := string(step.Verdict)
			if step.Verdict == monplan.Move {
				line = fmt.Sprintf("%s %s for %s", step.Work.Kind, step.Work.Newcomer, step.Work.Old)
			}
			out = append(out, line)
		}
		return out
	}
	s := seen("a@x b@y c@z", "d@x e@y f@z")
	s.Mode.Migrate = true
	zoned(&s, "x", "y", "z")
	assert.Equal(t, []string{"Migrate d for a", "Migrate e for b", "Migrate f for c", "Done"}, tell(s))
	s.Want.Count = 5
	zoned(&s, "x", "y", "z", "u", "v")
	s.Nodes = append(s.Nodes, monplan.Node{Name: "node-g", Zone: "u"}, monplan.Node{Name: "node-h", Zone: "v"})
	assert.Equal(t, []string{
		"Add d for ", "Add e for ", "Migrate f for a", "Migrate g for b", "Migrate h for c", "Done",
	}, tell(s))
	s.Want.Count = 2
	assert.Equal(t, "Remove  for c", tell(s)[0])
	three := seen("a b c", "")
	three.Mode, three.Want.Storage[""] = monplan.Mode{Migrate: true, OneLess: true}, claim
	assert.Equal(t, []string{"OneLess d for a", "OneLess e for b", "OneLess f for c", "Done"}, tell(three))
	three.Mode.OneLess = false
	assert.Equal(t, []string{"Refuse"}, tell(three))
}

// What a person is told before is the whole course, also where something is to be tidied up first.
func TestCourseTidiesUp(t *testing.T) {
	s := seen("a b c", "d")
	s.Strays = []string{"e", "f"}
	var course []string
	for _, step := range monplan.Course(s) {
		course = append(course, told(step))
	}
	assert.Equal(t, []string{"TidyUp: DropCanary e", "TidyUp: DropCanary f", "Done: "}, course)
}

// A newcomer that was in quorum is never taken back, also if it was seen there while something was to be tidied up.
func TestJoinsBesideAStray(t *testing.T) {
	s := under(seen("a b c d", "e"), monplan.Work{
		Kind: monplan.Add, Newcomer: "d", Started: noon.Add(-time.Minute), Running: true, Traces: true,
	})
	s.Want.Count, s.Strays = 4, []string{"e"}
	step := monplan.Next(s)
	assert.Equal(t, "Add: DropCanary e", told(step))
	assert.False(t, s.Work.Joined, "what was seen stays as it was")

	s = under(seen("a b c d?", "e"), *step.Work)
	s.Want.Count, s.Now, s.Endpoints = 4, noon.Add(s.Want.JoinTimeout), []string{"a", "b", "c"}
	assert.Equal(t, "Add: SaveEndpoints d", told(monplan.Next(s)))
}
