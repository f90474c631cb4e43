package kube

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestManyWait: a status lists the first of hundreds who wait, and keeps all of them, in their order.
func TestManyWait(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	was := lease.State{Token: 3}
	for i := range 500 {
		node := fmt.Sprintf("node-%03d", i)
		was.Queue = append(was.Queue, lease.Claim{
			WorkflowID: "drain/" + node, RunID: "r", Domain: storage.FailureDomain{Type: "zone", Name: "zone-x"}, Node: node,
			Reason: "drain of " + node, Priority: lease.PriorityDrain, FlagHosts: []string{node},
			Requested: at.Add(time.Duration(i) * time.Second), WaitsFor: "zone zone-x stays closed",
		})
	}
	s := leaseStatus(was)
	assert.Len(t, s.Queue, mostQueued)
	assert.Equal(t, int32(500), s.Waiting)
	assert.Less(t, len(s.Packed), 32<<10)

	is := memoryOf(&v1alpha1.MaintenancePolicyStatus{Lease: s}).Lease
	for i := mostQueued; i < len(was.Queue); i++ {
		was.Queue[i].WaitsFor = "" // the keeper finds that out anew
	}
	assert.Equal(t, was, is)

	few := leaseStatus(lease.State{Queue: was.Queue[:mostQueued]})
	assert.Zero(t, few.Waiting)
	assert.Empty(t, few.Packed)

	s.Packed = []byte("what somebody wrote")
	assert.Len(t, memoryOf(&v1alpha1.MaintenancePolicyStatus{Lease: s}).Lease.Queue, mostQueued)
}

// TestWhatIsHeldInReserveIsRemembered: a keeper that is replaced must not take it for a grant.
func TestWhatIsHeldInReserveIsRemembered(t *testing.T) {
	was := lease.State{Token: 3, Holders: []lease.Claim{{
		WorkflowID: "drain/a", RunID: "r", Domain: storage.FailureDomain{Type: "zone", Name: "zone-x"}, Node: "a",
		Priority: lease.PriorityDrain, Token: 3, Reserve: 4 * time.Minute, Ready: true,
		Turn: 10 * time.Minute,
	}}}
	is := memoryOf(&v1alpha1.MaintenancePolicyStatus{Lease: leaseStatus(was)}).Lease
	assert.Equal(t, 4*time.Minute, is.Holders[0].Reserve)
	assert.True(t, is.Holders[0].Ready)
	assert.Equal(t, 10*time.Minute, is.Holders[0].Turn)
}
