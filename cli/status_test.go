package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/wish"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var errAway = errors.New("list the running drains: Temporal does not answer at 127.0.0.1:7233 " +
	"(set by TEMPORAL_ADDRESS)")

func TestStatusText(t *testing.T) {
	tests := map[string]func() *world{
		"at-rest":        newWorld,
		"in-a-drain":     drained,
		"temporal-away":  func() *world { w := drained(); w.temporalAway = errAway; return w },
		"no-policy":      func() *world { w := newWorld(); w.policy = nil; return w },
		"no-report":      func() *world { w := newWorld(); w.policy.Status = v1alpha1.MaintenancePolicyStatus{}; return w },
		"storage-silent": silent,
		"evicting":       evicting,
		"wishes":         wished,
		"wishes-later": func() *world {
			w := wished()
			w.restartWindow("0 2 1 1 *")
			return w
		},
		"wishes-never": func() *world {
			w := wished()
			w.restartWindow("0 25 * * *")
			return w
		},
		"kept":          func() *world { return asOf(time.Minute) },
		"not-kept":      func() *world { return asOf(12 * time.Minute) },
		"no-worker":     func() *world { w := asOf(time.Minute); w.keeperAway = ErrNoWorker; return w },
		"away-for-long": func() *world { w := asOf(12 * time.Minute); w.temporalAway = errAway; return w },
		"away-just-now": func() *world { w := asOf(time.Minute); w.temporalAway = errAway; return w },
		"disowned": func() *world {
			w := asOf(12 * time.Minute)
			w.temporalAway = errAway
			w.policy.Status.MayDrain, w.policy.Status.Reason = kube.NotKept, kube.ReasonNotKept
			w.policy.Status.Message = `nobody has kept this up to date since 2026-03-01T02:50:00Z: Temporal does not answer; the last word was "any node", and the budgets stay as they were left or closed by an alarm`
			return w
		},
	}
	for name, world := range tests {
		t.Run(name, func(t *testing.T) {
			c, out, _ := world().command()
			s, err := c.Status(t.Context(), "")
			require.NoError(t, err)
			s.Write(out)
			golden(t, "status-"+name+".txt", out.String())
		})
	}
}

// wished is a storage cluster of which somebody wants a mon and an OSD restarted, and an OSD removed.
func wished() *world {
	w := newWorld()
	w.wishes = []kube.StorageWish{
		{Daemon: "mon.a", Wish: wish.Wish{
			Pod: "mon-a-x", Owner: "Deployment/rook-ceph-mon-a", Newer: true,
			Since: ago(time.Minute),
		}},
		{Daemon: "osd.1", Wish: wish.Wish{Pod: "osd-1-x", Owner: "ReplicaSet/rook-ceph-osd-1", Orphan: true}},
		{Daemon: "osd.3", Wish: wish.Wish{Pod: "osd-3-x", Owner: "StatefulSet/osd", Newer: true}},
	}
	w.driven = []kube.DrivenDaemon{
		{Daemon: "osd.5", Driven: wish.Driven{Pod: "osd-5-x", Node: "node-c", Taint: "example.com/repair"}},
	}
	return w
}

// asOf is a world whose keeper confirmed its status a while ago.
func asOf(d time.Duration) *world {
	w := newWorld()
	at := agoMeta(d)
	w.policy.Status.AsOf = &at
	return w
}

// silent is a Ceph cluster without a quorum, and a foreign budget in the way.
func silent() *world {
	w := newWorld()
	s := &w.policy.Status
	s.MayDrain, s.Message, s.Storage = "no", "no quorum: 1 of 3 mons", v1alpha1.StorageStatus{}
	s.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionStorageReachable, Status: metav1.ConditionFalse, Message: "no quorum: 1 of 3 mons"},
		{
			Type: v1alpha1.ConditionProtected, Status: metav1.ConditionFalse,
			Message: "PodDisruptionBudget rook-ceph/rook-ceph-osd, which is not lockkeeper's, also covers pod rook-ceph-osd-0-x",
		},
		{Type: v1alpha1.ConditionDataClean, Status: metav1.ConditionFalse, Message: "not known"},
	}
	w.policy.Generation = 2
	w.keeper.Trouble = "update the daemons' PodDisruptionBudget: the API server does not answer"
	return w
}

// evicting is a paused drain that a budget holds up, and another whose activity fails.
func evicting() *world {
	w := drained()
	a := running("node-a", "Evicting", 4, "the pods of node-a to be evicted", time.Minute)
	a.Step = &Step{Name: "EvictPods", Attempt: 1, Eviction: eviction2of3()}
	b := running("node-b", "AcquiringLease", 2, "the lease of zone zone-y", time.Minute)
	b.Status.Paused, b.Status.NextTimer, b.Status.NextTimerDoes = true, ago(-5*time.Minute), "noout expires"
	b.Step = &Step{Name: "RequestLease", Attempt: 4, LastFailure: "ask the keeper for the lease: connection refused"}
	w.jobs = map[string][]Job{"drain/node-a": {a}, "drain/node-b": {b}}
	return w
}

// fenced is a fence that waits for the node to be back.
func fenced(node string) Fence {
	return Fence{
		Node:      node,
		Execution: Execution{WorkflowID: "fence/" + node, State: Running, Started: ago(time.Minute)},
		Status: &workflows.FenceStatus{JobStatus: workflows.JobStatus{
			Phase: workflows.PhaseRemediate, Step: 4, Steps: 5, Since: ago(time.Minute),
			WaitsFor: node + " to be Ready again, or to go",
		}},
	}
}

func TestNodeStatusText(t *testing.T) {
	tests := map[string]struct {
		world *world
		node  string
	}{
		"drained": {drained(), "node-a"},
		"was": {func() *world {
			w := newWorld()
			w.jobs["drain/node-a"] = []Job{ended("node-a", workflows.OutcomeDone)}
			return w
		}(), "node-a"},
		"fenced": {func() *world {
			w := newWorld()
			w.jobs["fence/node-a"] = []Job{fenced("node-a")}
			return w
		}(), "node-a"},
		"unguarded": {func() *world { w := newWorld(); w.pods = nil; return w }(), "node-b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, out, _ := test.world.command()
			s, err := c.NodeStatus(t.Context(), test.node)
			require.NoError(t, err)
			s.Write(out)
			golden(t, "status-node-"+name+".txt", out.String())
		})
	}
	c, _, _ := newWorld().command()
	_, err := c.NodeStatus(t.Context(), "node-z")
	assert.EqualError(t, err, "node: \"node-z\": no such node, and no job of it; `kubectl get nodes` lists them")
}

// Scripts rely on these names.
func TestStatusJSON(t *testing.T) {
	c, out, _ := drained().command()
	s, err := c.NodeStatus(t.Context(), "node-a")
	require.NoError(t, err)
	require.NoError(t, Encode(out, s, "json"))
	golden(t, "status-node.json", out.String())
	out.Reset()
	require.NoError(t, Encode(out, s, "yaml"))
	assert.Contains(t, out.String(), "mayDrain: zone zone-x\n")
}

func TestWatchPrintsWhatIsNewOnly(t *testing.T) {
	w := newWorld()
	c, out, _ := w.command()
	looks := 0
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan struct{}, 3)
	err := c.Watch(ctx, changes, func(ctx context.Context) (Status, error) {
		looks++
		switch looks {
		case 1: // the first look needs no event
			changes <- struct{}{}
		case 2: // nothing is new but the time
			c.Now = func() time.Time { return night.Add(time.Minute) }
			changes <- struct{}{}
		case 3:
			w.policy.Status = drained().policy.Status
			changes <- struct{}{}
		default:
			cancel()
		}
		return c.Status(ctx, "")
	})
	require.NoError(t, err)
	assert.Equal(t, 2, bytes.Count(out.Bytes(), []byte("MAY DRAIN")))
}
