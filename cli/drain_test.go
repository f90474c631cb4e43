package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

func eviction2of3() *activities.EvictionProgress {
	return &activities.EvictionProgress{
		Total: 3, Remaining: 2,
		Blocked: []string{
			"default/web-1: Cannot evict pod as it would violate the pod's disruption budget.",
			"default/web-2 is terminating",
		},
	}
}

// byOSD is a cluster whose failure domain is the OSD, with two of them on node-a. mayStop is Ceph's answer about both.
func byOSD(mayStop *storage.Answer) *world {
	w := newWorld()
	w.keeper.View.FailureDomainType = "osd"
	w.keeper.View.Nodes = []storage.Node{{
		Name: "node-a", Domain: "osd.0", Domains: []string{"osd.0", "osd.1"},
		OKToStop: mayStop,
	}}
	second := w.pods[0]
	second.Name, second.OSD = "rook-ceph-osd-1", 1
	w.pods = append(slices.DeleteFunc(w.pods, func(p storageview.Pod) bool { return p.OSD == 1 }), second)
	return w
}

func TestPlanText(t *testing.T) {
	tests := map[string]func() *world{
		"at-rest":      newWorld,
		"another-zone": drained,
		"same-zone": func() *world {
			w := drained()
			w.nodes["node-d"] = activities.NodeState{Found: true, Ready: true, Cordoned: true}
			w.pods[1].Node, w.pods[1].Labels = "node-d", map[string]string{"topology-location-zone": "zone-x"}
			return w
		},
		"runs-already": drained,
		"keeper-away":  func() *world { w := drained(); w.temporalAway = errAway; return w },
		"in-the-way": func() *world {
			w := newWorld()
			w.outlook.Refused = []string{
				"cannot delete Pods that declare no controller (use --force to override): default/debug",
			}
			w.outlook.Warnings = []string{"ignoring DaemonSet-managed Pods: kube-system/proxy-1"}
			return w
		},
		"osds-one-by-one": func() *world { return byOSD(&storage.Answer{Reason: "3 PGs would become unavailable"}) },
		"osds-together":   func() *world { return byOSD(&storage.Answer{OK: true}) },
		"osds-not-known":  func() *world { return byOSD(nil) },
		"two-clusters":    twoClusters,
		"intolerant": func() *world {
			w := newWorld()
			w.keeper.View.Intolerant = []string{`pool "scratch" has size 1`}
			w.keeper.Decision = budget.Decision{Mode: budget.ModeDefault, Message: "one OSD may be disrupted anywhere"}
			return w
		},
	}
	nodes := map[string]string{"another-zone": "node-b", "same-zone": "node-d"}
	for name, world := range tests {
		t.Run(name, func(t *testing.T) {
			w := world()
			c, out, _ := w.command()
			node := nodes[name]
			if node == "" {
				node = "node-a"
			}
			if name == "another-zone" {
				delete(w.jobs, "drain/node-b")
				w.keeper.Lease.Queue = nil
			}
			p, err := c.Plan(t.Context(), workflows.DrainNodeInput{Node: node, Reason: "new kernel"})
			require.NoError(t, err)
			p.Write(out)
			golden(t, "plan-"+name+".txt", out.String())
			assert.Empty(t, w.started)
			assert.Empty(t, w.signals)
		})
	}
}

func TestDrainRefusesWhatCannotWork(t *testing.T) {
	tests := map[string]struct {
		in   workflows.DrainNodeInput
		want string
		code int
	}{
		"unknown node": {workflows.DrainNodeInput{Node: "node-z"}, "node: \"node-z\": no such node; `kubectl get nodes` " +
			"lists them, and one that is deleted can be drained with --policy", ExitFailed},
		"no storage": {workflows.DrainNodeInput{Node: "node-c"}, "node: \"node-c\": hosts no storage of any of the 1 " +
			"MaintenancePolicies, so nothing has to be guarded; use `kubectl drain`", ExitFailed},
		"unknown policy": {
			workflows.DrainNodeInput{Node: "node-a", Policy: "a/b"},
			"--policy: \"a/b\": no such MaintenancePolicy; `kubectl get maintenancepolicies -A` lists them", ExitFailed,
		},
		"odd policy": {
			workflows.DrainNodeInput{Node: "node-a", Policy: "b"},
			`--policy: "b": must be namespace/name, or a name together with --namespace`, ExitUsage,
		},
		"no policy": {
			workflows.DrainNodeInput{Node: "node-a", Policy: "A/b"},
			`--policy: "A/b": the namespace must be lower-case letters, digits and '-', at most 63 of them`, ExitUsage,
		},
		"no node": {
			workflows.DrainNodeInput{Node: "node/a"},
			`NODE: "node/a": must be the name of a node: lower-case letters, digits, '-' and '.', at most 253 of them`,
			ExitUsage,
		},
		"a novel": {workflows.DrainNodeInput{Node: "node-a", Reason: strings.Repeat("é", 501)}, `--reason: "` +
			strings.Repeat("é", 100) + `…": must be at most 500 characters, not 501`, ExitUsage},
		"odd selector": {workflows.DrainNodeInput{
			Node:     "node-a",
			Eviction: activities.EvictionOptions{PodSelector: "a in ("},
		}, "--pod-selector: \"a in (\": must be a label " +
			"selector such as app=web: unable to parse requirement: found '', expected: ',', ')' or identifier", ExitUsage},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.nodes["node-c"] = activities.NodeState{Found: true}
			w.jobs["drain/node-a"] = []Job{running("node-a", "Resolving", 1, "", 0), running("node-a", "Evicting", 4, "", 0)}
			c, _, _ := w.command()
			err := c.Drain(t.Context(), test.in, StayOptions{})
			assert.Equal(t, test.code, ExitCode(err))
			if test.want != "" {
				require.EqualError(t, err, test.want)
				assert.Empty(t, w.started)
			}
		})
	}
}

func TestDrainStarts(t *testing.T) {
	w := newWorld()
	w.jobs["drain/node-a"] = []Job{
		running("node-a", "Resolving", 1, "", 0),
		running("node-a", "AcquiringLease", 2, "the lease of zone zone-x", 0),
	}
	c, out, errOut := w.command()
	require.NoError(t, c.Drain(t.Context(), workflows.DrainNodeInput{Node: "node-a"}, StayOptions{}))
	assert.Equal(t, []workflows.DrainNodeInput{{Node: "node-a", Policy: "rook-ceph/rook-ceph"}}, w.started)
	golden(t, "drain-started.txt", out.String())
	assert.Empty(t, errOut.String())
}

func TestDrainFailsAtOnce(t *testing.T) {
	w := newWorld()
	failed := ended("node-a", "")
	failed.State, failed.Result, failed.Failure = "Failed", nil, `policy: "a/b": no such MaintenancePolicy`
	w.jobs["drain/node-a"] = []Job{failed}
	c, _, _ := w.command()
	err := c.Drain(t.Context(), workflows.DrainNodeInput{Node: "node-a"}, StayOptions{})
	assert.EqualError(t, err, `drain/node-a ended 02:59:00 (60s): Failed: policy: "a/b": no such MaintenancePolicy`)
}

func TestDrainRunsAlready(t *testing.T) {
	w := drained()
	w.jobs["drain/node-a"][0].(Drain).Status.Observe = true
	c, _, _ := w.command()
	err := c.Drain(t.Context(), workflows.DrainNodeInput{Node: "node-a"}, StayOptions{})
	assert.EqualError(t, err, "drain/node-a runs since 02:57:00 (3m), phase AwaitingNode 5/6, observing, waits for "+
		"node-a to be Ready and uncordoned, to be deleted, or for the signal `done`\n"+
		"it only observes: somebody drains the node from outside, and lockkeeper guards it\nfollow it with `lockkeeper "+
		"status node-a -w`")
}

func TestDrainWithoutKubernetes(t *testing.T) {
	w := newWorld()
	w.kubeAway = errors.New("connection refused")
	w.jobs["drain/node-a"] = []Job{ended("node-a", workflows.OutcomeDone)}
	c, _, errOut := w.command()
	require.NoError(t, c.Drain(t.Context(), workflows.DrainNodeInput{Node: "node-a"}, StayOptions{}))
	assert.Equal(t, "warning: not checked beforehand: node node-a: connection refused\n", errOut.String())
	assert.Len(t, w.started, 1, "the worker may reach what we cannot")
}

func TestFollow(t *testing.T) {
	evicting := running("node-a", "Evicting", 4, "the pods of node-a to be evicted", 0)
	evicting.Step = &Step{Name: "EvictPods", Attempt: 1, Eviction: eviction2of3()}
	failing := evicting
	failing.Step = &Step{Name: "EvictPods", Attempt: 2, LastFailure: "read node node-a: connection refused"}
	mute := running("node-a", "Evicting", 4, "", 0)
	mute.Status, mute.Silent = nil, "no worker answers for drain/node-a: is lockkeeper-worker running?"
	paused := running("node-a", "Evicting", 4, "the signal `resume`: somebody paused this job", 0)
	paused.Status.Paused = true
	w := drained()
	w.jobs["drain/node-a"] = []Job{
		running("node-a", "AcquiringLease", 2, "the lease of zone zone-x", 0),
		running("node-a", "AcquiringLease", 2, "the lease of zone zone-x: zone zone-y is disrupted", 0),
		running("node-a", "Evicting", 4, "the pods of node-a to be evicted", 0),
		evicting, evicting, failing, mute, mute, paused,
		running("node-a", "AwaitingNode", 5, "node-a to be Ready and uncordoned", 0),
		running("node-a", "Healing", 6, "the storage in zone zone-x to be whole again: 12 of 33 PGs are clean", 0),
		ended("node-a", workflows.OutcomeDone),
	}
	c, out, _ := w.command()
	require.NoError(t, c.Follow(t.Context(), "drain/node-a"))
	golden(t, "follow.txt", out.String())
}

// TestFollowBearsOneSilence: that a job did not answer once is nothing to people.
func TestFollowBearsOneSilence(t *testing.T) {
	w := drained()
	mute := running("node-a", "Evicting", 4, "", 0)
	mute.Status, mute.Silent = nil, "no worker answers for drain/node-a: is lockkeeper-worker running?"
	evicting := running("node-a", "Evicting", 4, "the pods of node-a to be evicted", 0)
	w.jobs["drain/node-a"] = []Job{evicting, mute, evicting, mute, evicting, ended("node-a", workflows.OutcomeDone)}
	c, out, _ := w.command()
	require.NoError(t, c.Follow(t.Context(), "drain/node-a"))
	require.NotContains(t, out.String(), "no worker answers")
	require.Equal(t, 1, strings.Count(out.String(), "Evicting"), out.String())
}

func TestHowWaitingEnds(t *testing.T) {
	tests := map[string]struct {
		jobs []Job
		code int
	}{
		"done":    {[]Job{ended("node-a", workflows.OutcomeDone)}, ExitOK},
		"gone":    {[]Job{ended("node-a", workflows.OutcomeGone)}, ExitOK},
		"aborted": {[]Job{ended("node-a", workflows.OutcomeAborted)}, ExitNotDone},
		"revoked": {[]Job{ended("node-a", workflows.OutcomeRevoked)}, ExitNotDone},
		"killed": {[]Job{Drain{Node: "node-a", Execution: Execution{
			WorkflowID: "drain/node-a", State: "Terminated",
			Ended: night, Failure: "terminated",
		}}}, ExitNotDone},
		"late": {[]Job{running("node-a", "Resolving", 1, "", 0)}, ExitStillRuns},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.jobs["drain/node-a"] = test.jobs
			c, _, _ := w.command()
			err := c.Drain(t.Context(), workflows.DrainNodeInput{Node: "node-a"},
				StayOptions{Wait: true, Timeout: 20 * time.Millisecond})
			assert.Equal(t, test.code, ExitCode(err), "%v", err)
		})
	}
}

func TestSignals(t *testing.T) {
	paused := running("node-a", "Evicting", 4, "the signal `resume`: somebody paused this job", 0)
	paused.Status.Paused = true
	aborting := running("node-a", "Evicting", 4, "", 0)
	aborting.Status.Aborted = true
	tests := map[string]struct {
		signal string
		after  Drain
		says   string
	}{
		"pause": {jobs.SignalPause, paused, "drain/node-a runs since 02:59:00 (60s), phase Evicting 4/6, paused, waits " +
			"for the signal `resume`: somebody paused this job\n"},
		"resume": {
			jobs.SignalResume, running("node-a", "Evicting", 4, "", 0),
			"drain/node-a runs since 02:59:00 (60s), phase Evicting 4/6\n",
		},
		"abort": {jobs.SignalAbort, aborting, "drain/node-a runs since 02:59:00 (60s), phase Evicting 4/6\nit is cleaning " +
			"up; `lockkeeper status node-a -w` follows it\n"},
		"aborted": {
			jobs.SignalAbort, ended("node-a", workflows.OutcomeAborted),
			"drain/node-a ended 02:59:00 (60s): Aborted\n",
		},
		"done": {
			jobs.SignalDone, running("node-a", "Healing", 6, "", 0),
			"drain/node-a runs since 02:59:00 (60s), phase Healing 6/6\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := drained()
			w.jobs["drain/node-a"] = append(w.jobs["drain/node-a"], test.after)
			c, out, errOut := w.command()
			require.NoError(t, c.Signal(t.Context(), "node-a", test.signal))
			assert.Equal(t, []string{test.signal + " drain/node-a"}, w.signals)
			assert.Equal(t, test.says, out.String())
			assert.Empty(t, errOut.String())
		})
	}
}

func TestSignalsToNobody(t *testing.T) {
	w := drained()
	c, _, _ := w.command()
	err := c.Signal(t.Context(), "node-q", jobs.SignalAbort)
	require.Error(t, err)
	golden(t, "no-such-job.txt", err.Error()+"\n")

	w = newWorld()
	w.jobs["drain/node-a"] = []Job{ended("node-a", workflows.OutcomeDone)}
	c, _, _ = w.command()
	assert.EqualError(t, c.Signal(t.Context(), "node-a", jobs.SignalPause),
		`no drain of "node-a" runs: drain/node-a ended 02:59:00 (60s): Done, nor any other drain`)
	assert.Empty(t, w.signals)
}

func TestFollowGoesOnWithoutTemporal(t *testing.T) {
	w := drained()
	w.temporalAway = errAway
	c, _, errOut := w.command()
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	err := c.Follow(ctx, "drain/node-a")
	assert.Equal(t, ExitStillRuns, ExitCode(err))
	assert.Equal(t, 1, bytes.Count(errOut.Bytes(), []byte("trying again")), "said once")
}
