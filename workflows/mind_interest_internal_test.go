package workflows

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestWhoWaitsFarBehindIsLookedAtInTime: a look is told of the hosts of the first claims only. Who holds the lease is
// among them however many wait, and those behind are as soon as those before them have gone.
func TestWhoWaitsFarBehindIsLookedAtInTime(t *testing.T) {
	t.Parallel()
	claim := func(i int) lease.Claim {
		return lease.Claim{
			WorkflowID: fmt.Sprintf("drain/node-%d", i), RunID: fmt.Sprint(i), FlagHosts: []string{fmt.Sprintf("host-%d", i)},
			Domain: storage.FailureDomain{Type: "host", Name: fmt.Sprintf("host-%d", i)},
		}
	}
	m := &mind{cluster: storage.ClusterKey{Namespace: "storage", Name: "main"}}
	const most = 3*mostClaimsSeen + 8
	for i := range most {
		m.state.Memory.Lease.Queue = append(m.state.Memory.Lease.Queue, claim(i))
	}
	seen := map[string]bool{}
	for next := 0; next < most; next++ {
		l := &m.state.Memory.Lease
		l.Holders, l.Queue = l.Queue[:1:1], l.Queue[1:]
		hosts := m.flagHosts()
		require.LessOrEqual(t, len(hosts), mostClaimsSeen)
		require.Contains(t, hosts, storage.Host{Name: l.Holders[0].FlagHosts[0]}, "its holder")
		for _, h := range hosts {
			seen[h.Name] = true
		}
		if ahead := min(next+mostClaimsSeen, most); !seen[fmt.Sprintf("host-%d", ahead-1)] {
			t.Fatalf("of %d who wait the last of the first %d was not looked at", len(l.Queue), mostClaimsSeen)
		}
	}
	require.Len(t, seen, most)
}
