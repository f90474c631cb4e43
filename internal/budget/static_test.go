package budget_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

func TestGrantedNodes(t *testing.T) {
	for name, c := range map[string]struct {
		holders []lease.Claim
		want    []string
	}{
		"nobody holds the lease":        {nil, nil},
		"a node once, in order":         {[]lease.Claim{{Node: "b"}, {Node: "a"}, {Node: "b"}}, []string{"a", "b"}},
		"a job that has done its work":  {[]lease.Claim{{Node: "a", Finishing: true}}, nil},
		"a job without a node":          {[]lease.Claim{{}}, nil},
		"a job that takes some daemons": {[]lease.Claim{{Node: "a", Daemons: []string{"osd.1"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, budget.GrantedNodes(lease.State{Holders: c.holders, Queue: []lease.Claim{{Node: "waits"}}}))
		})
	}
}
