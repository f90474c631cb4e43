package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// nodeOfTwo is a node with a mon and two OSDs, each of which is a failure domain, in a cluster of three mons.
func nodeOfTwo(down ...string) Input {
	in := Input{Now: time.Unix(1, 0), Settings: storage.Settings{AnnouncementTimeout: time.Minute}}
	in.View.FailureDomainType, in.View.MonKey, in.View.Committed = "osd", "mon", true
	in.View.Nodes = []storage.Node{{
		Name: "a", Domain: "osd.0", Domains: []string{"osd.0", "osd.1"}, Daemons: []string{"osd.0", "osd.1"}, Down: down,
		Cordoned: true, OKToStop: &storage.Answer{},
	}}
	for _, name := range []string{"a", "b", "c"} {
		in.View.Mons = append(in.View.Mons, storage.Mon{
			Name: name, Node: name, InQuorum: true, Pod: storage.PodReady, Leaving: name == "a",
		})
	}
	in.View.Mons[0].Domain = "osd.0"
	return in
}

// TestMonOfSeveralDomainsGoesWithTheLast: while an OSD of its node serves that nobody may let go yet, the node cannot
// become empty. Whoever has the lease may need another mon to go, and would wait for this one to be back.
func TestMonOfSeveralDomainsGoesWithTheLast(t *testing.T) {
	for what, test := range map[string]struct {
		down []string
		open string
		with []string
		goes int
	}{
		"the other one serves":     {nil, "osd.0", nil, 0},
		"the other one is down":    {[]string{"osd.1"}, "osd.0", nil, 1},
		"this one is the last":     {[]string{"osd.0"}, "osd.1", nil, 1},
		"both are open":            {nil, "osd.0", []string{"osd.1"}, 1},
		"both are down":            {[]string{"osd.0", "osd.1"}, "osd.0", nil, 1},
		"another node's is open":   {nil, "osd.7", nil, 0},
		"all down, another's open": {[]string{"osd.0", "osd.1"}, "osd.7", nil, 0},
	} {
		d := Decision{Mode: ModeOpen, Open: storage.FailureDomain{Type: "osd", Name: test.open}, With: test.with}
		assert.Len(t, mayGo(nodeOfTwo(test.down...), d), test.goes, what)
	}
}

// TestDeadPodsAreAnnounced: of a node that is leaving, and of which nothing serves any more, a pod that crashes again
// and again is still there, and nobody else lets it go.
func TestDeadPodsAreAnnounced(t *testing.T) {
	for pod, want := range map[storage.PodState]string{
		storage.PodNotReady: "osd.1", storage.PodPending: "", storage.PodTerminating: "", storage.PodNone: "",
	} {
		in := nodeOfTwo("osd.0", "osd.1")
		in.View.Mons = nil
		in.View.Domains = []storage.Domain{
			{Name: "osd.0", Daemons: 1, Troubled: []storage.Daemon{{Name: "osd.0", Node: "a", Pod: storage.PodPending}}},
			{Name: "osd.1", Daemons: 1, Troubled: []storage.Daemon{{Name: "osd.1", Node: "a", Pod: pod}}},
		}
		n, ok := nextAnnounced(in)
		assert.Equal(t, want != "", ok, pod)
		if ok {
			assert.Equal(t, want, announced(in, n))
		}
		in.View.Nodes[0].Cordoned = false
		_, ok = nextAnnounced(in)
		assert.False(t, ok, "it stays")
	}
}

// TestDeadPodsHaveTheirTurn: while the data moves away from the OSD that went, the time of the pod that crashes has not
// begun.
func TestDeadPodsHaveTheirTurn(t *testing.T) {
	for pod, want := range map[storage.PodState]bool{storage.PodNotReady: false, storage.PodPending: true} {
		in := nodeOfTwo("osd.0", "osd.1")
		in.View.Domains = []storage.Domain{
			{Name: "osd.1", Daemons: 1, Troubled: []storage.Daemon{{Name: "osd.1", Node: "a", Pod: pod}}},
		}
		in.Announced = map[string]Announcement{"a": {Node: "a", Opened: in.Now.Add(-time.Second)}}
		assert.Equal(t, want, NextAnnounced(in, Decision{})["a"].Spent, pod)
	}
}
