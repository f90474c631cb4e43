package machines

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestOdd: what would keep Machines from being held, or from ever being fenced. Two host OSDs, and one does not.
func TestOdd(t *testing.T) {
	all := []fencing.Machine{
		{Name: "m-a", Node: "a", Labels: labels.Set{"pool": "storage"}},
		{Name: "m-b", Node: "b", Labels: labels.Set{"pool": "storage"}},
		{Name: "m-c", Node: "c", Labels: labels.Set{"pool": "web"}},
		{Name: "m-d", Labels: labels.Set{"pool": "storage"}}, // it has no node yet
	}
	of := func(selector string, c HealthCheck) HealthCheck {
		var err error
		c.Name = "x"
		c.selector, err = labels.Parse(selector)
		require.NoError(t, err)
		return c
	}
	const mdb, capi, nodes = v1alpha1.FencingMachineDisruptionBudget, v1alpha1.FencingClusterAPI,
		v1alpha1.FencingNodeHealthCheck
	const storagePool = "pool=storage"
	for name, c := range map[string]struct {
		api      v1alpha1.FencingAPI
		selector string
		check    *HealthCheck
		budget   *HealthCheck // somebody else's
		want     string       // "": nothing is odd
	}{
		"nothing":                {api: mdb},
		"one of storage alone":   {api: capi, selector: storagePool, check: &HealthCheck{Limit: "1"}},
		"one of others":          {api: capi, selector: "pool=web", check: &HealthCheck{Limit: "0"}},
		"one of all, unlimited":  {api: capi, check: &HealthCheck{}},
		"a budget of others":     {api: mdb, selector: "pool=web", budget: &HealthCheck{}},
		"a budget of storage":    {api: mdb, selector: storagePool, budget: &HealthCheck{}, want: "Budget x selects"},
		"it never acts":          {capi, storagePool, &HealthCheck{Limit: "20%"}, nil, "20% unhealthy Machines of 3"},
		"it never acts on nodes": {nodes, storagePool, &HealthCheck{Limit: "0"}, nil, "0 unhealthy Nodes of 3"},
		"it deletes nothing":     {capi, storagePool, &HealthCheck{Template: true}, nil, "has a remediation template"},
		"one limit for all":      {capi, "", &HealthCheck{Limit: "2"}, nil, "selects 2 Machines with OSDs and 1 without"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.FencingSpec{API: c.api, Namespace: "machines"}
			h, err := For(nil, storage.ClusterKey{Namespace: "n", Name: "p"}, spec)
			require.NoError(t, err)
			var r rules
			if c.check != nil {
				r.checks = append(r.checks, of(c.selector, *c.check))
			}
			if c.budget != nil {
				r.budgets = append(r.budgets, of(c.selector, *c.budget))
			}
			problems := h.odd(r, all, []string{"a", "b"})
			if c.want == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Contains(t, problems[0].Message, c.want)
			require.NotEmpty(t, problems[0].Remedy)
		})
	}
}
