package activities_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestAnAlarmHoldsMachinesToo: at the same time as the pods, which neither wait for it for long nor fail because of it.
func TestAnAlarmHoldsMachinesToo(t *testing.T) {
	key := storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"}
	for name, c := range map[string]struct {
		takes  time.Duration
		err    error
		budget bool
		max    []int
		longer time.Duration // than the budgets of the pods, which take a second
	}{
		"nobody asks for it":   {max: nil},
		"it is closed":         {budget: true, max: []int{0}},
		"it cannot be closed":  {budget: true, err: errors.New("refused"), max: []int{0}},
		"its API is slow":      {budget: true, takes: 1500 * time.Millisecond, max: []int{0}, longer: 500 * time.Millisecond},
		"its API is away":      {budget: true, takes: time.Hour, longer: time.Second},
		"the pods take longer": {budget: true, takes: time.Millisecond, max: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, m := &diary{fails: map[string]int{}}, &oneBudget{takes: c.takes, err: c.err}
				in := activities.BudgetInput{Cluster: key}
				if c.budget {
					in.Machines = &storage.Fencing{Namespace: "machines"}
				}
				began := time.Now()
				_, err := (&activities.Keeper{Budgets: d, Machines: m}).GuardPods(t.Context(), in)
				require.NoError(t, err)
				require.Equal(t, time.Second+c.longer, time.Since(began))
				require.Equal(t, c.max, m.said)
			})
		})
	}
}

type noMachines interface{ activities.Machines } // a field called Machines would hide the method

// oneBudget is a MachineDisruptionBudget.
type oneBudget struct {
	noMachines
	takes time.Duration
	err   error
	said  []int
}

func (m *oneBudget) SetMax(ctx context.Context, _ storage.ClusterKey, spec storage.Fencing, most *int) error {
	if spec.Namespace != "machines" || most == nil {
		return errors.New("not what was asked for")
	}
	select {
	case <-time.After(m.takes):
		m.said = append(m.said, *most)
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
