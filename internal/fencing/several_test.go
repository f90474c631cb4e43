package fencing_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// TestTwoStorageClustersOnTheSameNodes: each releases one Machine at a time, and both have to release a node's. Two
// nodes that die together never wait for each other, in whatever order keepers and jobs have their turns; nor if people
// release both by hand.
func TestTwoStorageClustersOnTheSameNodes(t *testing.T) {
	dead := []string{"node-d", "node-e"}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		byHand := r.IntN(4) == 0
		keepers := []*fleet{newFleet(), newFleet()}
		for _, k := range keepers {
			k.step(true, true, true)
			for _, node := range dead {
				k.fail(node)
			}
		}
		for range 40 {
			k, node := r.IntN(2), dead[r.IntN(2)]
			if r.IntN(2) == 0 {
				keepers[k].step(true, true, true)
				continue
			}
			keepers[k].request(node, byHand, fencing.InReserve(stagesOf(keepers, node), k))
		}
		released := 0
		for _, node := range dead {
			for k := range keepers { // the job looks again, and the keepers do
				keepers[k].request(node, byHand, fencing.InReserve(stagesOf(keepers, node), k))
				keepers[k].step(true, true, true)
			}
			if !fencing.InReserve(stagesOf(keepers, node), len(keepers)) {
				released++
			}
		}
		require.Equal(t, 1, released, "seed %d: %v", seed, [][]fencing.Stage{
			stagesOf(keepers, dead[0]), stagesOf(keepers, dead[1]),
		})
	}
}

func (f *fleet) request(node string, byHand, inReserve bool) {
	t := target(node)
	t.Since, t.InReserve = f.now, inReserve
	if byHand {
		t.Override = &fencing.Override{By: "ann", Reason: "it burns", At: f.now}
	}
	if f.ledger == nil {
		f.ledger = &fencing.Ledger{}
	}
	f.ledger.Request(f.now, t)
}

// stagesOf are those of a node's cases; "": it has none.
func stagesOf(keepers []*fleet, node string) (all []fencing.Stage) {
	for _, k := range keepers {
		c, _ := k.of(node)
		all = append(all, c.Stage)
	}
	return all
}
