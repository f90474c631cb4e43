package budget_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func osd(id int) storage.FailureDomain {
	return storage.FailureDomain{Type: "osd", Name: fmt.Sprintf("osd.%d", id)}
}

// byOSD is a clean cluster of four nodes with three OSDs each, which are failure domains of their own. Node a, with
// osd.0 to osd.2, is cordoned, and a job that empties it holds the lease.
func byOSD(stops lease.Stops, mayStop bool, down ...int) budget.Input {
	v := storage.View{
		FailureDomainType: "osd", LabelKey: "id", Daemons: 12, Up: 12 - len(down), ChangeEpoch: 7,
		Placement: "p", Shape: "s", Marks: &storage.Marks{Proved: 12},
	}
	node := storage.Node{Name: "a", Domain: "osd.0", Host: "a", Cordoned: true, OKToStop: &storage.Answer{OK: mayStop}}
	for id := range 3 {
		d := storage.Domain{
			Name: osd(id).Name, LabelValues: []string{fmt.Sprint(id)}, Daemons: 1,
			OKToStop: &storage.Answer{OK: true},
		}
		node.Daemons, node.Domains = append(node.Daemons, d.Name), append(node.Domains, d.Name)
		if slices.Contains(down, id) {
			d.Troubled = []storage.Daemon{{Name: d.Name, Node: "a", Pod: storage.PodPending}}
			node.Down = append(node.Down, d.Name)
		}
		v.Domains = append(v.Domains, d)
	}
	v.Nodes = []storage.Node{node}
	claim := lease.Claim{
		WorkflowID: "drain/a", Domain: osd(0), Node: "a", FlagHosts: []string{"a"},
		Granted: now, Stops: stops,
	}
	return budget.Input{
		Now: now, View: v, Health: storage.Health{Fresh: true, Clean: true, ChangeEpoch: 7, Placement: "p"},
		Lease: lease.State{Holders: []lease.Claim{claim}}, Life: &storage.Life{},
		Settings: storage.Settings{ManagePodBudgets: true},
	}
}

func TestHowSeveralDomainsStop(t *testing.T) {
	for name, c := range map[string]struct {
		had     lease.Stops
		mayStop bool
		change  func(*budget.Input)
		want    lease.Stops
	}{
		"Ceph lets all of them stop": {mayStop: true, want: lease.StopTogether},
		"Ceph does not":              {want: lease.StopOneByOne},
		"what Ceph says is old": {
			mayStop: true,
			change:  func(in *budget.Input) { in.Health.Fresh = false }, want: lease.StopOneByOne,
		},
		"Ceph lets all of them stop while their data comes back": {
			mayStop: true,
			change:  func(in *budget.Input) { in.Health.Clean, in.Health.Moving = false, true }, want: lease.StopOneByOne,
		},
		"those that are left may stop together": {
			had: lease.StopOneByOne, mayStop: true,
			want: lease.StopTogether,
		},
		"data has moved, and they may no longer": {had: lease.StopTogether, want: lease.StopOneByOne},
		"some are away, and the rest may stop no longer": {
			had:    lease.StopTogether,
			change: func(in *budget.Input) { in.Health.Clean = false }, want: lease.StopTogether,
		},
		"the manager is silent": {
			had:    lease.StopTogether,
			change: func(in *budget.Input) { in.View.Nodes[0].OKToStop.Silence = true }, want: lease.StopTogether,
		},
		"an older version looked": {
			change: func(in *budget.Input) { in.View.Nodes[0].OKToStop = nil },
		},
		"one of the domains is not named": {
			mayStop: true,
			change:  func(in *budget.Input) { in.View.Domains = in.View.Domains[:2] }, want: lease.StopOneByOne,
		},
		"the claim is about one OSD of the node, and no more": {
			mayStop: true,
			change:  func(in *budget.Input) { in.Lease.Holders[0].Daemons = []string{"osd.0"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := byOSD(c.had, c.mayStop)
			if c.change != nil {
				c.change(&in)
			}
			require.Equal(t, c.want, budget.Stops(in, in.Lease.Holders[0]))
		})
	}
}

func TestWhichDomainsOpen(t *testing.T) {
	for name, c := range map[string]struct {
		stops   lease.Stops
		down    []int
		unclean bool
		change  func(*budget.Input)
		want    []string
	}{
		"together":              {stops: lease.StopTogether, want: []string{"0", "1", "2"}},
		"together, one is away": {stops: lease.StopTogether, down: []int{1}, unclean: true, want: []string{"0", "2"}},
		"together, one is back": {stops: lease.StopTogether, down: []int{1}, unclean: true, change: func(in *budget.Input) {
			in.View.Domains[0].Returned = true
		}},
		"together, one is back, and Ceph lets the rest stop": {
			stops: lease.StopTogether, down: []int{1}, unclean: true,
			change: func(in *budget.Input) {
				in.View.Domains[0].Returned, in.Health.Fresh = true, true
			}, want: []string{"0", "2"},
		},
		"together, and data moves, so that Ceph's yes is of this moment only": {
			stops: lease.StopTogether, unclean: true,
			change: func(in *budget.Input) { in.Health.Fresh, in.Health.Moving = true, true },
		},
		"together, all are away":           {stops: lease.StopTogether, down: []int{0, 1, 2}, unclean: true},
		"one by one, none is away":         {stops: lease.StopOneByOne, want: []string{"0"}},
		"the first is missed":              {stops: lease.StopOneByOne, down: []int{0}, unclean: true, want: []string{"0"}},
		"another one is missed":            {stops: lease.StopOneByOne, down: []int{1}, unclean: true, want: []string{"1"}},
		"the first is no longer missed":    {stops: lease.StopOneByOne, down: []int{0}, want: []string{"1"}},
		"two are missed: nobody else goes": {stops: lease.StopOneByOne, down: []int{0, 1}, unclean: true},
		"all are away and none is missed":  {stops: lease.StopOneByOne, down: []int{0, 1, 2}, want: []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := byOSD(c.stops, true, c.down...)
			in.Proof = &storage.CleanProof{ChangeEpoch: 6, Shape: "s"}
			if c.unclean {
				in.Health = storage.Health{ChangeEpoch: 7, Placement: "p"}
				for _, id := range c.down {
					in.View.Domains[id].Touched = true
				}
			}
			if c.change != nil {
				c.change(&in)
			}
			d := budget.Decide(in)
			require.Equal(t, c.want, d.Budget.Except, d.Message)
			if len(c.want) > 0 {
				require.True(t, budget.Serves(in, d, in.Lease.Holders[0]), d.Open)
				require.Equal(t, c.stops == lease.StopTogether, len(d.With) > 0)
			}
		})
	}
}

// TestWhoeverWaitsForLifeAsks: what does not open for want of a sign of life is what is asked about.
func TestWhoeverWaitsForLifeAsks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var down []int
		for id := range 3 {
			if rapid.Bool().Draw(t, "down") {
				down = append(down, id)
			}
		}
		in := byOSD(rapid.SampledFrom([]lease.Stops{"", lease.StopTogether, lease.StopOneByOne}).Draw(t, "stops"), true,
			down...)
		in.Life = nil
		for _, id := range down {
			if rapid.Bool().Draw(t, "its pod is gone") {
				in.View.Domains[id].LabelValues = nil
			}
		}
		if rapid.Bool().Draw(t, "it was open") {
			in.Opened = osd(rapid.IntRange(0, 2).Draw(t, "which"))
			in.LeftOut = rapid.SampledFrom([][]string{nil, {"0"}, {"1"}}).Draw(t, "left out")
		}
		in.Lease = noteStops(in)
		if d := budget.Decide(in); d.Reason == budget.ReasonNoSignOfLife {
			_, asks := budget.Question(in)
			require.True(t, asks, d.Message)
		}
	})
}

// TestSeveralDomainsAreConfined: whatever is down, and however the node stops, what opens is on the node, and it is one
// failure domain unless Ceph lets all go.
func TestSeveralDomainsAreConfined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var down []int
		for id := range 3 {
			if rapid.Bool().Draw(t, "down") {
				down = append(down, id)
			}
		}
		in := byOSD(rapid.SampledFrom([]lease.Stops{"", lease.StopTogether, lease.StopOneByOne}).Draw(t, "stops"),
			rapid.Bool().Draw(t, "may stop"), down...)
		in.Health.Fresh, in.Health.Clean = rapid.Bool().Draw(t, "fresh"), rapid.Bool().Draw(t, "clean")
		if rapid.Bool().Draw(t, "proof") {
			in.Proof = &storage.CleanProof{ChangeEpoch: 6, Shape: "s"}
		}
		for i := range in.View.Domains {
			in.View.Domains[i].Touched = rapid.Bool().Draw(t, "touched")
		}
		elsewhere := rapid.Bool().Draw(t, "another OSD is down")
		if elsewhere {
			in.View.Domains = append(in.View.Domains, storage.Domain{
				Name: "osd.7", Daemons: 1, Touched: true,
				Troubled: []storage.Daemon{{Name: "osd.7", Pod: storage.PodReady}},
			})
		}
		in.Lease = noteStops(in)
		d := budget.Decide(in)
		for _, id := range d.Budget.Except {
			require.Contains(t, []string{"0", "1", "2"}, id)
		}
		if len(d.Budget.Except) > 1 {
			require.Equal(t, lease.StopTogether, in.Lease.Holders[0].Stops)
		}
		if elsewhere && !budget.Clean(in) {
			require.Empty(t, d.Budget.Except)
		}
	})
}

func noteStops(in budget.Input) lease.State {
	return in.Lease.Note(func(c lease.Claim) lease.Claim { c.Stops = budget.Stops(in, c); return c })
}
