package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var (
	keyA = storage.ClusterKey{Namespace: "rook-a", Name: "a"}
	keyB = storage.ClusterKey{Namespace: "rook-b", Name: "b"}
)

// hosting is a Kubernetes in which node-a has pods of some storage clusters, in the order in which they are found.
type hosting struct {
	activities.Nodes
	activities.Policies
	activities.StorageClusters
	pods   []storage.ClusterKey
	gone   map[storage.ClusterKey]bool // the policy is
	silent map[storage.ClusterKey]bool // Ceph is
	empty  map[storage.ClusterKey]bool // by Ceph the node has no OSD
	node   bool                        // there is a Node object
	// nowhere: Ceph has the node's OSD in no failure domain.
	nowhere bool
}

func (h hosting) Node(context.Context, string) (activities.NodeState, error) {
	return activities.NodeState{Found: h.node, UID: "uid"}, nil
}

func (h hosting) PoliciesOf(context.Context, string) ([]storage.ClusterKey, storage.Answer, error) {
	return h.pods, storage.Answer{OK: len(h.pods) > 0, Reason: "hosts no storage"}, nil
}

func (h hosting) Policy(_ context.Context, key storage.ClusterKey) (activities.Policy, error) {
	if h.gone[key] {
		return activities.Policy{}, activities.ErrNotFound
	}
	return activities.Policy{Key: key}, nil
}

func (h hosting) StorageClusterOf(_ context.Context, p activities.Policy) (activities.StorageCluster, error) {
	return seen{hosting: h, key: p.Key}, nil
}

type seen struct {
	activities.StorageCluster
	hosting hosting
	key     storage.ClusterKey
}

func (s seen) Observe(context.Context, activities.Look) (activities.Seen, error) {
	v := storage.View{FailureDomainType: "zone"}
	switch {
	case s.hosting.silent[s.key]:
		v.Unavailable = "no quorum"
	case !s.hosting.empty[s.key]:
		v.Nodes = []storage.Node{{Name: "node-a", Domain: "x", Host: "node-a", Daemons: []string{"osd.0"}}}
	}
	if s.hosting.nowhere {
		v.Nodes[0].Domain = ""
	}
	return activities.Seen{View: v}, nil
}

// TestWhichStorageIsOnTheNode: of which clusters, in which order, and when that is an error.
func TestWhichStorageIsOnTheNode(t *testing.T) {
	only := func(keys ...storage.ClusterKey) map[storage.ClusterKey]bool {
		m := map[storage.ClusterKey]bool{}
		for _, k := range keys {
			m[k] = true
		}
		return m
	}
	both := []storage.ClusterKey{keyB, keyA}
	for name, c := range map[string]struct {
		world hosting
		in    activities.ResolveInput
		want  []storage.ClusterKey
		err   string
	}{
		"all that there are, in order": {
			hosting{pods: both, node: true},
			activities.ResolveInput{},
			[]storage.ClusterKey{keyA, keyB},
			"",
		},
		"one that is named": {
			hosting{pods: both, node: true},
			activities.ResolveInput{Cluster: keyB},
			[]storage.ClusterKey{keyB},
			"",
		},
		"two that are named": {
			hosting{node: true},
			activities.ResolveInput{Cluster: keyB, More: []storage.ClusterKey{keyA}},
			[]storage.ClusterKey{keyA, keyB},
			"",
		},
		"one that is named, and all others": {
			hosting{pods: both, node: true},
			activities.ResolveInput{Cluster: keyB, All: true},
			[]storage.ClusterKey{keyA, keyB},
			"",
		},
		"a node that is gone": {
			hosting{pods: []storage.ClusterKey{keyB}},
			activities.ResolveInput{Cluster: keyB, All: true},
			[]storage.ClusterKey{keyB},
			"",
		},
		"no such node": {hosting{}, activities.ResolveInput{}, nil, "no such node"},
		"no storage":   {hosting{node: true}, activities.ResolveInput{}, nil, "hosts no storage"},
		"pods, but no OSD of one": {
			hosting{pods: both, node: true, empty: only(keyA)},
			activities.ResolveInput{},
			[]storage.ClusterKey{keyB},
			"",
		},
		"no OSD of one that is named": {
			hosting{node: true, empty: only(keyA)},
			activities.ResolveInput{Cluster: keyA},
			nil, "hosts no storage of rook-a/a",
		},
		"in no failure domain": {
			hosting{pods: both, node: true, nowhere: true},
			activities.ResolveInput{},
			nil, "observe rook-a/a: node-a hosts osd.0, which is in no zone",
		},
		"one policy is gone": {
			hosting{node: true, gone: only(keyA)},
			activities.ResolveInput{Cluster: keyA, More: []storage.ClusterKey{keyB}},
			nil, "no such MaintenancePolicy",
		},
		"one policy went while the job ran": {
			hosting{node: true, gone: only(keyA)},
			activities.ResolveInput{Cluster: keyA, More: []storage.ClusterKey{keyB}, Again: true},
			[]storage.ClusterKey{keyB},
			"",
		},
		"both went": {
			hosting{node: true, gone: only(keyA, keyB)},
			activities.ResolveInput{Cluster: keyA, More: []storage.ClusterKey{keyB}, Again: true},
			nil,
			"no such MaintenancePolicy",
		},
		"one does not answer": {
			hosting{pods: both, node: true, silent: only(keyA)},
			activities.ResolveInput{},
			nil,
			"observe rook-a/a: no quorum",
		},
		"one that nobody named does not answer yet": {
			hosting{pods: both, node: true, silent: only(keyA)},
			activities.ResolveInput{Cluster: keyB, All: true},
			nil, "observe rook-a/a: no quorum",
		},
	} {
		t.Run(name, func(t *testing.T) {
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			env.RegisterActivity(&activities.Drain{Nodes: c.world, Policies: c.world, Clusters: c.world})
			c.in.Node = "node-a"
			v, err := env.ExecuteActivity((*activities.Drain)(nil).ResolveNode, c.in)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			var target activities.Target
			require.NoError(t, v.Get(&target))
			var got []storage.ClusterKey
			for _, on := range target.Storage() {
				got = append(got, on.Cluster)
				assert.Equal(t, storage.FailureDomain{Type: "zone", Name: "x"}, on.Domain)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// twoLeases are two policies, of which the lease of the second one is held under another token.
type twoLeases struct{ granted }

func (p twoLeases) Policy(ctx context.Context, key storage.ClusterKey) (activities.Policy, error) {
	policy, err := p.granted.Policy(ctx, key)
	if key == keyB {
		policy.Memory.Lease.Holders[0].Token = 2
	}
	return policy, err
}

// TestNothingGoesUnderOneLease: the tokens of all leases are compared.
func TestNothingGoesUnderOneLease(t *testing.T) {
	for token, lost := range map[int64]bool{1: true, 2: false} {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.RegisterActivity(&activities.Drain{Nodes: &slowNode{gone: make(chan struct{})}, Policies: twoLeases{}})
		_, err := env.ExecuteActivity((*activities.Drain)(nil).EvictPods, activities.EvictInput{
			Node: "node-a", UID: "uid", WorkflowID: "drain/node-a", RunID: "run", Cluster: keyA, Token: 1,
			Others: []activities.Grant{{Cluster: keyB, Token: token}},
		})
		if lost {
			require.ErrorContains(t, err, "the lease of rook-b/b with token 1 is gone")
		} else {
			require.NoError(t, err)
		}
	}
}
