package cli

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestDetachingTakesARight: where the policy has volumes be detached the worker has to change attachments.
func TestDetachingTakesARight(t *testing.T) {
	for _, on := range []bool{false, true} {
		p := v1alpha1.MaintenancePolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system", Name: "longhorn"},
			Spec:       v1alpha1.MaintenancePolicySpec{Longhorn: &v1alpha1.LonghornSpec{DetachOnCordon: on}},
		}
		needs, err := neededRights("lockkeeper-system", []v1alpha1.MaintenancePolicy{p})
		require.NoError(t, err)
		assert.Equal(t, on, slices.ContainsFunc(needs, func(n need) bool {
			return n.who.Name == workerAccount && n.right.Resource == "volumeattachments" && n.right.Verb == "patch" &&
				n.right.Namespace == "longhorn-system"
		}))
	}
}

// TestDetachedIsSaid: what was detached stands in how a job ended, and why something was not in what it waits for.
func TestDetachedIsSaid(t *testing.T) {
	detached := workflows.AttachedByHand{Detached: []string{"vol-1", "vol-2"}}
	drain := Drain{Result: &DrainResult{workflows.DrainNodeResult{
		Outcome: workflows.OutcomeDone, Evicted: 3, Took: time.Minute, AttachedByHand: detached,
	}}}
	said := "vol-1, vol-2 detached, which was attached by hand"
	assert.Contains(t, drain.done(), "3 pods evicted, 0s waited for the lease, "+said)
	down := ScaleDown{Result: &ScaleDownResult{workflows.ScaleDownNodeResult{
		Outcome: workflows.OutcomeGone, AttachedByHand: detached,
	}}}
	assert.Contains(t, down.done(), said)

	stays := workflows.AttachedByHand{NotDetached: "what was attached to node-a by hand stays attached: forbidden"}
	waits := workflows.JobStatus{Phase: workflows.PhaseEvict, WaitsFor: "the pods of node-a to be evicted"}
	drain = Drain{Status: &workflows.DrainStatus{
		JobStatus: waits, Result: workflows.DrainNodeResult{AttachedByHand: stays},
	}}
	drain.State = Running
	assert.Contains(t, drain.WaitsFor(), stays.NotDetached)
	down = ScaleDown{Status: &workflows.ScaleDownStatus{
		JobStatus: waits, Result: workflows.ScaleDownNodeResult{AttachedByHand: stays},
	}}
	down.State = Running
	assert.Contains(t, down.WaitsFor(), stays.NotDetached)
}

// TestPlanDetaches: a plan says beforehand what is detached.
func TestPlanDetaches(t *testing.T) {
	p := Plan{kind: storage.Longhorn, Lease: storage.Answer{OK: true}}
	assert.NotContains(t, p.leaseStep(false), "attached by hand")
	p.detach = true
	assert.Contains(t, p.leaseStep(false), "what somebody attached by hand is detached")
}
