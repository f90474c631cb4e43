package cli

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// lost is a world whose MachineDisruptionBudget holds node-a, which is to be fenced and waits, while node-b was
// released; storage daemons run on both.
func lost() *world {
	w := newWorld()
	w.policy.Spec.Fencing = v1alpha1.FencingSpec{API: v1alpha1.FencingMachineDisruptionBudget, Namespace: "machines"}
	none, released := int32(0), agoMeta(30*time.Second)
	w.policy.Status.Fencing = &v1alpha1.FencingStatus{
		API: string(v1alpha1.FencingMachineDisruptionBudget), Namespace: "machines", Held: 5, MaxUnavailable: &none,
		Notes: []string{"Machine machine-9 carries a hold that nobody noted"},
		Nodes: []v1alpha1.FencingNode{
			{
				Node: "node-a", Stage: "Held", Why: "Unhealthy", Since: agoMeta(time.Minute), Reason: "AnotherReleased",
				Message: "the Machine of node-b is released", WorkflowID: "fence/node-a",
			},
			{
				Node: "node-b", Stage: "Released", Why: "Deleting", Since: agoMeta(2 * time.Minute), ReleasedAt: &released,
				Reason: "TakesNothing", Message: "osd.1 is down already", WorkflowID: "fence/node-b",
				Override: &v1alpha1.FencingOverride{
					By: "ann", Reason: "it burns", Against: "no quorum", At: agoMeta(40 * time.Second),
				},
			},
		},
	}
	w.jobs["fence/node-b"] = []Job{fenced("node-b")}
	return w
}

func TestFenceStatus(t *testing.T) {
	disowned, idle := lost(), newWorld()
	disowned.policy.Spec.Fencing, disowned.policy.Status.Fencing = v1alpha1.FencingSpec{}, nil
	unlooked := lost()
	unlooked.policy.Status.Fencing = nil
	broken := lost()
	broken.policy.Status.Fencing.Problem = "machines: forbidden"
	tests := map[string]struct {
		world        *world
		node, output string
	}{
		"all":        {world: lost()},
		"of-one":     {world: lost(), node: "node-a"},
		"nothing":    {world: idle},
		"disowned":   {world: disowned},
		"not-looked": {world: unlooked},
		"a-problem":  {world: broken},
		"as-json":    {world: lost(), node: "node-b", output: "json"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, out, _ := test.world.command()
			c.Output = test.output
			require.NoError(t, c.FenceStatus(t.Context(), "", test.node))
			golden(t, "fence-status-"+name+".txt", out.String())
		})
	}
}

// TestFenceReleasePlan: what a person passes over is said before anything is changed.
func TestFenceReleasePlan(t *testing.T) {
	unasked := lost()
	unasked.policy.Status.Fencing.Nodes = nil
	monAlone := lost()
	monAlone.pods = nil
	tests := map[string]struct {
		world  *world
		output string
	}{
		"waits":      {world: lost()},
		"unasked":    {world: unasked},
		"mon-alone":  {world: monAlone},
		"waits-json": {world: lost(), output: "json"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, out, _ := test.world.command()
			c.Output = test.output
			require.NoError(t, c.FenceRelease(t.Context(), FenceReleaseInput{Node: "node-a", Plan: true}))
			golden(t, "fence-release-plan-"+name+".txt", out.String())
			assert.Empty(t, test.world.fences)
			assert.Empty(t, test.world.signals)
		})
	}
}

// TestFenceReleaseRefuses names what is wrong, and changes nothing.
func TestFenceReleaseRefuses(t *testing.T) {
	unfenced, empty := lost(), lost()
	unfenced.policy.Spec.Fencing.API = v1alpha1.FencingNone
	empty.pods, empty.policy.Status.Fencing.Nodes = nil, nil
	away := lost()
	away.kubeAway = errors.New("connection refused")
	tests := map[string]struct {
		world *world
		in    FenceReleaseInput
		says  string
	}{
		"no reason":      {lost(), FenceReleaseInput{Node: "node-a", Reason: " "}, `--reason`},
		"no node's name": {lost(), FenceReleaseInput{Node: "Node_A", Reason: "x"}, `NODE: "Node_A"`},
		"no fencing":     {unfenced, FenceReleaseInput{Node: "node-a", Reason: "x"}, "no MaintenancePolicy with storage"},
		"no storage":     {empty, FenceReleaseInput{Node: "node-a", Reason: "x"}, "hosts no storage of any of the 1"},
		"odd policy":     {lost(), FenceReleaseInput{Node: "node-a", Reason: "x", Policy: "a"}, `--policy: "a"`},
		"no such policy": {lost(), FenceReleaseInput{Node: "node-a", Reason: "x", Policy: "a/b"}, "not found"},
		"away":           {away, FenceReleaseInput{Node: "node-a", Reason: "x"}, "connection refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, _, _ := test.world.command()
			require.ErrorContains(t, c.FenceRelease(t.Context(), test.in), test.says)
			assert.Empty(t, test.world.fences)
			assert.Empty(t, test.world.signals)
		})
	}
}

// TestFenceReleaseSays: a person's word starts a fence, or is told to the one that runs.
func TestFenceReleaseSays(t *testing.T) {
	w := lost()
	c, _, _ := w.command()
	require.NoError(t, c.FenceRelease(t.Context(), FenceReleaseInput{Node: "node-a", By: "ann", Reason: "it burns"}))
	assert.Equal(t, []workflows.FenceNodeInput{{
		Node: "node-a", Reason: "released by hand: it burns",
		Release: &workflows.FenceRelease{By: "ann", Reason: "it burns"},
	}}, w.fences)
	assert.Empty(t, w.signals)

	require.NoError(t, c.FenceRelease(t.Context(), FenceReleaseInput{Node: "node-b", By: "ann", Reason: "it burns"}))
	assert.Len(t, w.fences, 1)
	require.Len(t, w.signals, 1)
	assert.Contains(t, w.signals[0], workflows.SignalFenceRelease+" fence/node-b {ann it burns")
}

// TestFenceHold ends the fence of a node, or says beforehand what it would end.
func TestFenceHold(t *testing.T) {
	over := lost()
	over.jobs["fence/node-a"] = []Job{Fence{
		Node: "node-a", Execution: Execution{WorkflowID: "fence/node-a", State: "Completed"},
	}}
	tests := map[string]struct {
		world        *world
		node, output string
	}{
		"runs":      {world: lost(), node: "node-b"},
		"over":      {world: over, node: "node-a"},
		"never-ran": {world: lost(), node: "node-a"},
		"runs-json": {world: lost(), node: "node-b", output: "json"},
		"over-json": {world: over, node: "node-a", output: "json"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, out, _ := test.world.command()
			c.Output = test.output
			require.NoError(t, c.FenceHold(t.Context(), test.node, true))
			golden(t, "fence-hold-plan-"+name+".txt", out.String())
			assert.Empty(t, test.world.signals)
		})
	}

	w := lost()
	ended := fenced("node-b")
	ended.State, ended.Ended = "Completed", ago(0)
	ended.Result = &FenceResult{workflows.FenceNodeResult{Outcome: workflows.OutcomeAborted, Took: time.Minute}}
	w.jobs["fence/node-b"] = []Job{fenced("node-b"), ended}
	c, out, _ := w.command()
	require.NoError(t, c.FenceHold(t.Context(), "node-b", false))
	assert.Equal(t, []string{jobs.SignalAbort + " fence/node-b"}, w.signals)
	golden(t, "fence-hold.txt", out.String())

	require.ErrorContains(t, c.FenceHold(t.Context(), "node-a", false), `no fence of "node-a" runs`)
	require.ErrorContains(t, c.FenceHold(t.Context(), "Node_A", true), `NODE: "Node_A"`)
	w.temporalAway = errors.New("connection refused")
	require.ErrorContains(t, c.FenceHold(t.Context(), "node-b", true), "connection refused")
}

// TestFenceReleaseReturns: whoever does not ask to wait has the shell back at once, however long the fence takes.
func TestFenceReleaseReturns(t *testing.T) {
	w := newWorld()
	w.policy.Spec.Fencing = v1alpha1.FencingSpec{API: v1alpha1.FencingOpenShift, Namespace: "machines"}
	w.pods = []storageview.Pod{{Name: "rook-ceph-osd-0", Node: "node-a"}}
	w.jobs["fence/node-a"] = []Job{Fence{
		Execution: Execution{WorkflowID: "fence/node-a", RunID: "1", State: Running, Started: ago(0)},
		Status:    &workflows.FenceStatus{},
	}}
	c, out, said := w.command()
	in := FenceReleaseInput{Node: "node-a", By: "ann", Reason: "it burns"}
	require.NoError(t, c.FenceRelease(t.Context(), in))
	assert.Contains(t, out.String(), "follow it:  lockkeeper status fence/node-a -w")
	assert.Contains(t, said.String(), "ann releases the Machine of node-a whatever is known")

	in.Wait, in.Timeout = true, time.Second/2
	require.ErrorContains(t, c.FenceRelease(t.Context(), in), "no longer waiting")

	in.Reason = " "
	require.ErrorContains(t, c.FenceRelease(t.Context(), in), "--reason")
}
