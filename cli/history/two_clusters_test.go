package history_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestTwoClusters: of each lease of a drain it is told which storage cluster it is of.
func TestTwoClusters(t *testing.T) {
	a, b := storage.ClusterKey{Namespace: "rook-a", Name: "a"}, storage.ClusterKey{Namespace: "rook-b", Name: "b"}
	on := func(key storage.ClusterKey, zone string) activities.Hosted {
		return activities.Hosted{
			Cluster: key, Domain: storage.FailureDomain{Type: "zone", Name: zone}, Hosts: []string{"node-a"},
			Daemons: []string{"osd.0"},
		}
	}
	claim := func(on activities.Hosted, ask int64, ready bool) activities.LeaseInput {
		return activities.LeaseInput{Cluster: on.Cluster, Claim: lease.Claim{
			Ask: ask, Domain: on.Domain, Reserve: lease.FirstReserve, Ready: ready,
		}}
	}
	says := func(p *tape, ask int64, state workflows.LeaseState, token int64) {
		p.signal(workflows.SignalLease, workflows.LeaseNotice{State: state, Ask: ask, Token: token})
	}
	p := newTape(t, jobs.DrainNode.ID("node-a"))
	p.start(jobs.DrainNode.Type, workflows.DrainNodeInput{Node: "node-a"})
	onA, onB := on(a, "x"), on(b, "y")
	p.activity("ResolveNode", activities.ResolveInput{Node: "node-a"},
		activities.Target{Hosted: onA, Others: []activities.Hosted{onB}, Node: "node-a"})
	p.activity("RequestLease", claim(onA, 1, false), nil)
	says(p, 1, workflows.LeaseReserved, 7)
	p.activity("RequestLease", claim(onB, 2, false), nil)
	says(p, 2, workflows.LeaseReserved, 3)
	p.activity("RequestLease", claim(onA, 1, true), nil)
	says(p, 1, workflows.LeaseGranted, 8)
	p.activity("RequestLease", claim(onB, 2, true), nil)
	says(p, 2, workflows.LeaseGranted, 4)
	p.activity("EvictPods", activities.EvictInput{
		Node: "node-a", Cluster: a, Token: 8, Others: []activities.Grant{{Cluster: b, Token: 4}},
	}, activities.EvictionProgress{Total: 2})
	var told []string
	for _, e := range history.Read(p.run) {
		told = append(told, e.What)
	}
	assert.Equal(t, []string{
		"the drain of node-a was asked for",
		"node-a is in zone x of rook-a/a, and in zone y of rook-b/b",
		"asked for the lease of zone x of rook-a/a, to be held in reserve",
		"holds the lease in reserve: zone x of rook-a/a",
		"asked for the lease of zone y of rook-b/b, to be held in reserve",
		"holds the lease in reserve: zone y of rook-b/b",
		"said that it has all leases, and needs that of zone x of rook-a/a to take effect",
		"has the lease, with token 8: zone x of rook-a/a",
		"said that it has all leases, and needs that of zone y of rook-b/b to take effect",
		"has the lease, with token 4: zone y of rook-b/b",
		"begins to evict the pods of node-a",
		"evicted the pods of node-a: 2",
	}, told)
	assert.Contains(t, words(history.Read(p.run)), "under token 4 of the lease of rook-b/b")
	assert.Equal(t, []storage.ClusterKey{a, b}, history.Clusters(p.run))
}
