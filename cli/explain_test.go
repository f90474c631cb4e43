package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// unclean is a world in which nobody holds anything, and the data is not whole.
func unclean(h storage.Health) *world {
	w := newWorld()
	w.keeper.Clean, w.keeper.Health, w.keeper.Since = false, h, ago(7*time.Minute)
	w.keeper.Health.ChangeEpoch, w.keeper.Health.PGs = 10, 33
	w.keeper.Decision = budget.Decision{Mode: budget.ModeClosed, Reason: budget.ReasonNotProvenClean, Message: "?"}
	return w
}

func mons(out ...string) []storage.Mon {
	var all []storage.Mon
	for name, node := range map[string]string{"a": "node-a", "b": "node-b", "c": "node-c"} {
		m := storage.Mon{Name: name, Node: node, InQuorum: true, Pod: storage.PodReady}
		for _, o := range out {
			if o == name {
				m.InQuorum, m.Pod = false, storage.PodPending
			}
		}
		all = append(all, m)
	}
	return all
}

// loseMonitors lets an OSD of a zone lose the monitors. All PGs are active and clean meanwhile.
func loseMonitors(w *world, zone string) {
	w.keeper.View.Disconnected = &storage.Disconnected{
		Daemons: 1, Domains: []string{zone}, Examples: []string{"osd.7 in " + zone},
	}
	w.keeper.View.Domains = []storage.Domain{{
		Name: "zone-x", LabelValues: []string{"zone-x"}, OKToStop: &storage.Answer{OK: true},
	}}
	w.keeper.Clean, w.keeper.Since = false, ago(3*time.Minute)
	w.keeper.Health = storage.Health{
		Fresh: true, PGs: 33, PGsClean: 33, ChangeEpoch: 10,
		Reason: "1 of 6 OSDs that are up have no session with a monitor",
	}
	w.keeper.Decision = budget.Decide(budget.Input{View: w.keeper.View, Health: w.keeper.Health})
}

// TestExplain: each thing that can be in the way is found, by its name, and told so that a stranger understands it.
func TestExplain(t *testing.T) {
	edit := func(f func(*world)) func() *world { return func() *world { w := newWorld(); f(w); return w } }
	for name, c := range map[string]struct {
		world    func() *world
		node     string
		inTheWay []string
		beware   []string
	}{
		"at-rest": {newWorld, "node-a", nil, nil},
		"no-storage": {
			edit(func(w *world) { w.nodes["node-c"] = activities.NodeState{Found: true, Ready: true} }),
			"node-c", nil,
			[]string{"NoStorage"},
		},
		"lease-held": {func() *world {
			w := drained()
			delete(w.jobs, "drain/node-b")
			w.keeper.Lease.Queue = nil
			return w
		}, "node-b", []string{"LeaseHeld", "NotProvenClean"}, []string{"Cordoned"}},
		"waits-already":   {drained, "node-b", []string{"LeaseHeld", "NotProvenClean", "AlreadyDrained"}, nil},
		"drained-already": {drained, "node-a", []string{"AlreadyDrained"}, nil},
		"noout-expired": {func() *world {
			w := drained()
			delete(w.jobs, "drain/node-b")
			w.keeper.Lease.Queue = nil
			w.keeper.Lease.Holders[0].Granted = ago(time.Hour)
			w.keeper.Flags[0].Expires, w.keeper.Flags[0].Withdrawn = ago(30*time.Minute), true
			return w
		}, "node-b", []string{"LeaseHeld", "NotProvenClean"}, []string{"NooutExpired", "Cordoned"}},
		"rollout-holds": {func() *world {
			w := drained()
			delete(w.jobs, "drain/node-b")
			w.jobs[updateID] = []Job{notBack(rollingOut(), crashes)}
			w.keeper.Lease.Queue = nil
			h := &w.keeper.Lease.Holders[0]
			h.WorkflowID, h.Node, h.Reason = updateID, "", "rollout of osds: all of node-a in zone zone-x that is out of date"
			w.keeper.Flags[0].Owner = updateID
			return w
		}, "node-b", []string{"LeaseHeld", "NotProvenClean"}, []string{"Cordoned"}},
		"others-before": {edit(func(w *world) {
			w.keeper.Decision.Reason = budget.ReasonClean
			w.keeper.Lease.Queue = []lease.Claim{{
				WorkflowID: "drain/node-z", RunID: "1", Node: "node-z",
				Domain: storage.FailureDomain{Type: "zone", Name: "zone-z"}, Requested: ago(time.Minute),
				Priority: jobs.DrainNode.Priority,
			}}
		}), "node-a", []string{"OthersBefore"}, nil},
		"pgs-unclean": {func() *world {
			return unclean(storage.Health{
				Fresh: true, PGsClean: 12,
				Reason: "21 of 33 PGs are not clean: active+undersized+degraded",
			})
		}, "node-a", []string{"NotProvenClean"}, nil},
		"pgs-not-known": {func() *world {
			return unclean(storage.Health{PGsClean: 33, Reason: "not yet reported since epoch 10: osd.4"})
		}, "node-a", []string{"NotProvenClean"}, nil},
		"pgs-inconsistent": {func() *world {
			return unclean(storage.Health{Fresh: true, PGsClean: 32, Unexplained: []string{"active+clean+inconsistent"}})
		}, "node-a", []string{"NotProvenClean"}, nil},
		"no-manager": {func() *world {
			return unclean(storage.Health{
				NoManager: true,
				Reason:    "no manager is active, so nobody knows the placement groups",
			})
		}, "node-a", []string{"NoManager"}, nil},
		"storage-away": {edit(func(w *world) {
			w.keeper.View = storage.View{Unavailable: "no quorum answers: timed out"}
			w.keeper.Decision = budget.Decision{Mode: budget.ModeClosed, Reason: budget.ReasonStorageUnavailable}
			w.keeper.Clean, w.keeper.Since = false, ago(3*time.Minute)
		}), "node-a", []string{"StorageUnavailable"}, nil},
		"lost-the-monitors-elsewhere": {
			edit(func(w *world) { loseMonitors(w, "zone-y") }), "node-a", []string{"OSDsDisconnected"}, nil,
		},
		"lost-the-monitors-perhaps": {edit(func(w *world) {
			loseMonitors(w, "zone-y")
			w.keeper.View.Disconnected.Presumed = 1
			w.keeper.Decision = budget.Decide(budget.Input{View: w.keeper.View, Health: w.keeper.Health})
		}), "node-a", []string{"OSDsDisconnected"}, nil},
		"lost-the-monitors-there": {
			edit(func(w *world) { loseMonitors(w, "zone-x") }), "node-a", nil, []string{"ClosedForAMoment"},
		},
		"down-elsewhere": {edit(func(w *world) {
			w.keeper.Clean, w.keeper.Health = false, storage.Health{
				Fresh: true, PGs: 33, PGsClean: 20, ChangeEpoch: 10,
				Reason: "13 of 33 PGs are not clean: active+undersized+degraded",
			}
			w.keeper.View.Domains = []storage.Domain{{
				Name: "zone-z", Daemons: 2, Touched: true, LabelValues: []string{"zone-z"},
				Troubled: []storage.Daemon{{Name: "osd.5", Node: "node-z", Pod: storage.PodNotReady}},
			}}
			w.keeper.Decision = budget.Decision{
				Mode: budget.ModeOpen, Reason: budget.ReasonDisrupted,
				Open: storage.FailureDomain{Type: "zone", Name: "zone-z"},
			}
		}), "node-a", []string{"DownElsewhere", "NotProvenClean"}, nil},
		"conflict": {edit(func(w *world) {
			w.keeper.Conflict = "PodDisruptionBudget rook-ceph/rook-ceph-osd, which is not lockkeeper's, also covers pod " +
				"rook-ceph-osd-0"
		}), "node-a", []string{"BudgetConflict"}, nil},
		"mon-needed": {
			edit(func(w *world) { w.keeper.View.Mons, w.keeper.View.MonKey = mons("c"), "mon" }), "node-a",
			[]string{"MonQuorum"},
			nil,
		},
		"mon-of-one": {edit(func(w *world) {
			w.keeper.View.Mons, w.keeper.View.MonKey = []storage.Mon{
				{Name: "a", Node: "node-a", InQuorum: true, Pod: storage.PodReady},
			}, "mon"
		}), "node-a", []string{"MonQuorum"}, nil},
		"mon-to-spare": {
			edit(func(w *world) { w.keeper.View.Mons, w.keeper.View.MonKey = mons(), "mon" }),
			"node-a", nil, nil,
		},
		"intolerant": {
			edit(func(w *world) { w.keeper.View.Intolerant = []string{`pool "scratch" has size 1`} }), "node-a",
			[]string{"PoolIntolerant"},
			nil,
		},
		"inconsistent": {edit(func(w *world) {
			w.keeper.View.Problems = []string{`pod rook-ceph-osd-7 has no label "topology-location-zone"`}
		}), "node-a", []string{"Inconsistent"}, nil},
		"second-policy": {edit(func(w *world) {
			w.keeper.Decision = budget.Decision{
				Mode: budget.ModeClosed, Reason: budget.ReasonSecondPolicy,
				Message: "MaintenancePolicy rook-ceph/older was first",
			}
			w.keeper.View = storage.View{Unavailable: "not looked at: another policy is in charge"}
		}), "node-a", []string{"SecondPolicy"}, nil},
		"pods-refuse": {edit(func(w *world) {
			w.outlook.Refused = []string{
				"cannot delete Pods that declare no controller (use --force to override): default/debug",
			}
		}), "node-a", []string{"PodsRefuse"}, nil},
		"temporal-away": {edit(func(w *world) {
			w.temporalAway = fmt.Errorf("ask keeper/rook-ceph/rook-ceph: %w at 127.0.0.1:7233 (set by TEMPORAL_ADDRESS)",
				ErrAway)
		}), "node-a", []string{"TemporalAway"}, []string{"NotKnown"}},
		"no-worker": {edit(func(w *world) {
			w.keeperAway = fmt.Errorf("%w for keeper/rook-ceph/rook-ceph: is lockkeeper-worker running?", ErrNoWorker)
		}), "node-a", []string{"NoWorker"}, nil},
		"no-keeper": {edit(func(w *world) {
			w.keeperAway = fmt.Errorf("keeper/rook-ceph/rook-ceph %w",
				ErrNotRunning)
		}), "node-a", []string{"KeeperNotRunning"}, nil},
		"watcher-gone": {
			edit(func(w *world) { w.watcher.Renewed = ago(time.Hour) }), "node-a", nil,
			[]string{"WatcherNotRunning"},
		},
		"watcher-never": {
			edit(func(w *world) { w.watcher = kube.Watcher{} }), "node-a", nil,
			[]string{"WatcherNotRunning"},
		},
		"watcher-unknown": {edit(func(w *world) { w.watcherAway = errors.New("leases is forbidden") }), "node-a", nil, nil},
		"trouble": {edit(func(w *world) {
			w.keeper.Trouble = "update the daemons' PodDisruptionBudget: connection refused"
		}), "node-a", nil, []string{"KeeperInTrouble"}},
		"fence-held": {edit(func(w *world) {
			w.policy.Status.Fencing = fencingOf(v1alpha1.FencingNode{
				Node: "node-a", Stage: string(fencing.StageHeld), Why: string(fencing.WhyUnhealthy), Since: agoMeta(time.Minute),
				Reason: fencing.ReasonAnotherReleased, Message: "the Machine of node-b is released, and one goes at a time",
			})
			w.policy.Status.Fencing.Problem = "list Machines: forbidden"
		}), "node-a", nil, []string{"Fencing", "FencingProblem"}},
		"fence-released": {edit(func(w *world) {
			w.policy.Status.Fencing = fencingOf(v1alpha1.FencingNode{
				Node: "node-a", Stage: string(fencing.StageReleased), Why: string(fencing.WhyDeleting), Since: agoMeta(time.Hour),
				Reason: fencing.ReasonTakesNothing, Message: "none of its daemons serves, so nothing is taken",
				Machine: "machine-a",
			}, v1alpha1.FencingNode{Node: "node-b", Stage: string(fencing.StageHeld)})
		}), "node-a", nil, []string{"Fencing"}},
		"scale-down": {edit(func(w *world) {
			w.nodes["node-a"] = activities.NodeState{Found: true, Ready: true, Tainted: "karpenter.sh/disrupted"}
			w.jobs["scale-down/node-a"] = []Job{scalingDown("node-a")}
		}), "node-a", nil, []string{"ScaleDown"}},
		"proved-before": {edit(func(w *world) {
			// an OSD of the node's own zone is down, and nothing else has happened since the data was whole
			*w.keeper = *drained().keeper
			w.keeper.Lease = lease.State{}
		}), "node-a", nil, nil},
		"unclean-for-long": {edit(func(w *world) {
			*w.keeper = *unclean(storage.Health{
				Fresh: true, PGsClean: 12,
				Reason: "21 of 33 PGs are not clean: active+undersized+degraded",
			}).keeper
			w.keeper.Decision = budget.Decision{Mode: budget.ModeDefault, Reason: budget.ReasonPGHealthTimeout}
			w.keeper.Known.Settings.PGHealthCheckTimeout, w.keeper.Known.HealingSince = 5*time.Minute, ago(6*time.Minute)
			w.keeper.View.Domains = []storage.Domain{{
				Name: "zone-x", LabelValues: []string{"zone-x"}, Daemons: 2,
				OKToStop: &storage.Answer{OK: true},
			}}
		}), "node-a", nil, nil},
		"silent": {edit(func(w *world) {
			w.keeper.Decision = budget.Decision{Mode: budget.ModeClosed, Reason: budget.ReasonNoSignOfLife, Message: "?"}
			w.keeper.Known.Life = &storage.Life{
				Outside: storage.FailureDomain{Type: "zone", Name: "zone-x"}, Silent: 1,
				Examples: []string{"osd.4 in zone-y"},
			}
		}), "node-a", []string{"NoSignOfLife"}, nil},
		"closed-for-a-moment": {edit(func(w *world) {
			w.keeper.Decision = budget.CloseFirst(w.keeper.Decision, "the marks that are being written have to be done first")
		}), "node-a", nil, []string{"ClosedForAMoment"}},
		"notes": {edit(func(w *world) {
			w.keeper.View.Notes = []string{
				"the flag norecover may keep data from becoming whole; it is set on all OSDs",
				"no mon that is in quorum is let go, since the mons do not commit anything: denied",
			}
		}), "node-a", nil, []string{"CephFlag", "StorageNote"}},
		"unmoved": {edit(func(w *world) {
			w.keeper.Unmoved = "replicas cannot be moved away: it takes the rights of " + evictRights
		}), "node-a", nil, []string{"StorageNote"}},
		"old-worker": {edit(func(w *world) { w.keeper.Known = nil }), "node-a", []string{"NotKnown"}, nil},
		"temporal-away-for-long": {edit(func(w *world) {
			w.temporalAway = fmt.Errorf("ask keeper/rook-ceph/rook-ceph: %w at 127.0.0.1:7233 (set by TEMPORAL_ADDRESS)",
				ErrAway)
			asOf := agoMeta(12 * time.Minute)
			w.policy.Status.AsOf = &asOf
		}), "node-a", []string{"TemporalAway"}, []string{"NotKnown"}},
		"unmanaged": {
			edit(func(w *world) { w.keeper.Decision.Reason = budget.ReasonUnmanaged }), "node-a", nil,
			[]string{"Unmanaged"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.world()
			command, out, _ := w.command()
			e, err := command.Explain(t.Context(), c.node, "", "lockkeeper-system")
			require.NoError(t, err)
			e.Write(out)
			golden(t, "explain-"+name+".txt", out.String())
			assert.Equal(t, c.inTheWay, named(e.InTheWay))
			assert.Equal(t, c.beware, named(e.Beware))
			assert.Equal(t, len(c.inTheWay) == 0, e.MayDrain)
			assert.Empty(t, w.started)
			assert.Empty(t, w.signals)
			for _, o := range append(e.InTheWay, e.Beware...) {
				assert.NotEmpty(t, o.What)
				assert.NotEmpty(t, o.Change)
			}
		})
	}
}

func named(all []Obstacle) []string {
	var out []string
	for _, o := range all {
		out = append(out, o.Name)
	}
	return out
}

func TestExplainRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		node, policy, want string
		code               int
		away               error
	}{
		"an unknown node": {"node-q", "", "NODE: \"node-q\": no such node; `kubectl get nodes` lists them, and one that " +
			"is deleted can be asked for with --policy", ExitFailed, nil},
		"no name of a node":  {"a/b", "", `NODE: "a/b": must be the name of a node`, ExitUsage, nil},
		"an unknown policy":  {"node-a", "a/b", `--policy: "a/b": no such MaintenancePolicy`, ExitFailed, nil},
		"without Kubernetes": {"node-a", "", "node node-a: connection refused", ExitFailed, errors.New("connection refused")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.kubeAway = c.away
			command, _, _ := w.command()
			_, err := command.Explain(t.Context(), c.node, c.policy, "lockkeeper-system")
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.code, ExitCode(err))
		})
	}
}

// TestExplainTwoClusters: what is in the way in one of the storage clusters is in the way of the node.
func TestExplainTwoClusters(t *testing.T) {
	command, out, _ := twoClusters().command()
	e, err := command.Explain(t.Context(), "node-a", "", "lockkeeper-system")
	require.NoError(t, err)
	e.Write(out)
	golden(t, "explain-two-clusters.txt", out.String())
	assert.False(t, e.MayDrain)
	assert.True(t, e.WouldWait)
	assert.NotEmpty(t, e.InTheWay)
	require.Len(t, e.Others, 1)
	assert.True(t, e.Others[0].MayDrain)
}

// TestExplainReserve: a lease that is held in reserve goes back by itself.
func TestExplainReserve(t *testing.T) {
	w := drained()
	w.keeper.Lease.Holders[0].Reserve = time.Minute
	command, _, _ := w.command()
	e, err := command.Explain(t.Context(), "node-b", "", "lockkeeper-system")
	require.NoError(t, err)
	at := slices.IndexFunc(e.InTheWay, func(o Obstacle) bool { return o.Name == budget.ReasonLeaseHeld })
	require.GreaterOrEqual(t, at, 0)
	assert.Contains(t, e.InTheWay[at].What, "drain/node-a holds the lease of zone zone-x (new kernel); in reserve")
	assert.Contains(t, e.InTheWay[at].Change, "it goes back by itself when it is 60s old")
}

// TestExplainInJSON: scripts find in it what people read.
func TestExplainInJSON(t *testing.T) {
	command, out, _ := drained().command()
	e, err := command.Explain(t.Context(), "node-b", "", "lockkeeper-system")
	require.NoError(t, err)
	require.NoError(t, Encode(out, e, "json"))
	golden(t, "explain.json", out.String())
	var back Explanation
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	assert.Equal(t, e.InTheWay, back.InTheWay)
}

func fencingOf(nodes ...v1alpha1.FencingNode) *v1alpha1.FencingStatus {
	return &v1alpha1.FencingStatus{API: string(v1alpha1.FencingClusterAPI), Nodes: nodes}
}
