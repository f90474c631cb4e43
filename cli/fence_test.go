package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/workflows"
)

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
