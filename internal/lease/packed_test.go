package lease_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestStateComesBack: no claim is lost on the way, however many there are.
func TestStateComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was := lease.State{Token: 7}
		claims := func(what string) (out []lease.Claim) {
			for i := range rapid.SampledFrom([]int{0, 1, 40, 600}).Draw(t, what) {
				node := fmt.Sprintf("%s-%d-%s", what, i, strings.Repeat("y", rapid.IntRange(0, 200).Draw(t, "length")))
				out = append(out, lease.Claim{
					WorkflowID: "drain/" + node, RunID: fmt.Sprint(i), Domain: storage.FailureDomain{Type: "zone", Name: "x"},
					Node: node, Reason: "drain of " + node, Priority: lease.PriorityDrain, FlagHosts: []string{node},
					Requested: time.Unix(int64(i), 0).UTC(), Next: &lease.Claim{Ask: 2},
				})
			}
			return out
		}
		was.Holders, was.Queue = claims("holder"), claims("waits")
		data, err := json.Marshal(was)
		require.NoError(t, err)
		var is lease.State
		require.NoError(t, json.Unmarshal(data, &is))
		require.Equal(t, was, is)
	})
}

// TestFewClaimsArePlain: what other versions read.
func TestFewClaimsArePlain(t *testing.T) {
	data, err := json.Marshal(lease.State{Token: 3, Queue: []lease.Claim{{WorkflowID: "drain/a"}}})
	require.NoError(t, err)
	require.Contains(t, string(data), `"queue":[{"workflowID":"drain/a"`)
	require.NotContains(t, string(data), "packed")
}
