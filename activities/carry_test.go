package activities_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// diary is a world in which each step takes a second, and is written down when it begins and when it is done.
type diary struct {
	activities.Policies
	activities.Budgets
	mu     sync.Mutex
	lines  []string
	fails  map[string]int // how often each step still does
	result activities.BudgetResult
	// noPolicy: it is gone since the last look.
	noPolicy bool
}

var errOnPurpose = errors.New("on purpose")

func (d *diary) step(ctx context.Context, what string) error {
	d.mu.Lock()
	failing := d.fails[what] > 0
	d.fails[what]--
	d.lines = append(d.lines, what)
	d.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	if failing {
		return errOnPurpose
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, what+" done")
	return nil
}

func (d *diary) Policy(context.Context, storage.ClusterKey) (activities.Policy, error) {
	return activities.Policy{Key: carried}, nil
}

func (d *diary) ReportStatus(ctx context.Context, _ storage.ClusterKey, r activities.Report) error {
	if err := d.step(ctx, r.MayDrain); err != nil || !d.noPolicy {
		return err
	}
	return activities.ErrNotFound
}

func (d *diary) ReadBudgets(context.Context, storage.ClusterKey) (budget.Book, bool, error) {
	return nil, false, nil
}

func (d *diary) ApplyBudgets(ctx context.Context, _ activities.BudgetInput) (activities.BudgetResult, error) {
	return d.result, d.step(ctx, "budgets")
}

func (d *diary) ApplyStaticBudgets(
	ctx context.Context, _ activities.StaticBudgetsInput,
) (activities.StaticBudgetsResult, error) {
	return activities.StaticBudgetsResult{}, d.step(ctx, "others")
}

func (d *diary) Relocate(ctx context.Context, _ activities.RelocateInput) (activities.RelocateResult, error) {
	return activities.RelocateResult{}, d.step(ctx, "relocate")
}

// cluster is the diary's storage cluster.
type cluster struct {
	activities.StorageCluster
	*diary
}

func (d cluster) SetFlag(ctx context.Context, _ ...string) ([]activities.FlagRefusal, error) {
	return nil, d.step(ctx, "set")
}

func (d cluster) UnsetFlag(ctx context.Context, _ ...storage.Host) ([]activities.FlagRefusal, error) {
	return nil, d.step(ctx, "unset")
}

func (d cluster) Observe(ctx context.Context, _ activities.Look) (activities.Seen, error) {
	return activities.Seen{}, d.step(ctx, "look")
}

// fleet is the diary's Machines.
type fleet struct {
	noMachines
	*diary
}

func (d fleet) Hold(ctx context.Context, _ storage.ClusterKey, _ storage.Fencing, m fencing.Machine, on bool) error {
	return d.step(ctx, fmt.Sprintf("hold %s %t", m.Name, on))
}

func (d fleet) SetMax(ctx context.Context, _ storage.ClusterKey, _ storage.Fencing, most *int) error {
	return d.step(ctx, fmt.Sprintf("number %d", *most))
}

func (d *diary) StorageCluster(context.Context, storage.ClusterKey) (activities.StorageCluster, error) {
	return cluster{diary: d}, nil
}

func (d *diary) StorageClusterOf(context.Context, activities.Policy) (activities.StorageCluster, error) {
	return cluster{diary: d}, nil
}

// at is where a line is; lines that are missing come after all.
func (d *diary) at(line string) int {
	if at := slices.Index(d.lines, line); at >= 0 {
		return at
	}
	return len(d.lines)
}

// before tells whether one line comes before another, and does at all.
func (d *diary) before(a, b string) bool { return slices.Contains(d.lines, a) && d.at(a) < d.at(b) }

var carried = storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"}

// everything is a decision with all of its steps.
func everything(closes bool) activities.CarryInput {
	return activities.CarryInput{
		Cluster:  carried,
		Remember: &activities.Report{MayDrain: "remember"}, Others: &activities.LeavingNodes{},
		Set:   &activities.FlagInput{Hosts: []string{"node-a"}, On: true},
		Unset: &activities.FlagInput{Hosts: []string{"node-b"}}, Within: 5 * time.Second,
		Budgets: &activities.BudgetInput{}, Closes: closes,
		Report: &activities.Report{MayDrain: "report"}, Look: &activities.Look{},
	}
}

func carryOut(t *testing.T, d *diary, in activities.CarryInput) (r activities.CarryResult) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		k := &activities.Keeper{Policies: d, Budgets: d, Clusters: d, Machines: fleet{diary: d}}
		r, err = k.CarryOut(t.Context(), in)
		require.NoError(t, err)
	})
	return r
}

func TestStepsOfADecisionComeInTheirOrder(t *testing.T) {
	for _, closes := range []bool{true, false} {
		d := &diary{fails: map[string]int{}}
		r := carryOut(t, d, everything(closes))
		for _, later := range []string{"others", "set", "unset", "budgets", "report", "look"} {
			assert.True(t, d.before("remember done", later), "%s comes after what must not be forgotten: %v", later, d.lines)
		}
		for _, earlier := range []string{"set done", "unset done", "budgets done"} {
			assert.True(t, d.before(earlier, "report"), "the status is true: %v", d.lines)
			assert.True(t, d.before(earlier, "look"), "the look sees what was done: %v", d.lines)
		}
		assert.Equal(t, closes, d.before("budgets", "set done"), "what closes waits for nothing: %v", d.lines)
		assert.Equal(t, !closes, d.before("set done", "budgets"), "what opens waits for noout: %v", d.lines)
		for _, done := range []bool{
			r.Remembered.Done(), r.Others.Done(), r.Set.Done(), r.Unset.Done(), r.Budgets.Done(), r.Reported.Done(),
			r.Looked.Done(),
		} {
			assert.True(t, done, "%+v", r)
		}
	}
}

// TestDataMovesLast: data is moved once the budgets say what was decided, whether that lets somebody go or nobody.
func TestDataMovesLast(t *testing.T) {
	for _, closes := range []bool{true, false} {
		in := everything(closes)
		in.Relocate = &activities.RelocateInput{Cluster: carried}
		d := &diary{fails: map[string]int{}}
		r := carryOut(t, d, in)
		assert.True(t, d.before("budgets done", "relocate"), d.lines)
		assert.True(t, r.Relocated.Done(), "%+v", r)

		d = &diary{fails: map[string]int{"budgets": 100}}
		carryOut(t, d, in)
		assert.NotContains(t, d.lines, "relocate")

		d = &diary{fails: map[string]int{}, result: activities.BudgetResult{Moved: "an alarm"}}
		carryOut(t, d, in)
		assert.NotContains(t, d.lines, "relocate")
	}
}

// TestTheNumberClosesFirst: by the number of a MachineDisruptionBudget a Machine may go that nobody has released.
// It lets nobody go before a failure domain opens, and before a Machine is let go by its label.
func TestTheNumberClosesFirst(t *testing.T) {
	holds := func(closes bool) activities.CarryInput {
		in := everything(closes)
		in.Hold = &activities.HoldsInput{
			Cluster: carried, Max: new(int),
			Set: []fencing.Machine{{Name: "new"}}, Remove: []fencing.Machine{{Name: "dead"}},
		}
		return in
	}
	d := &diary{fails: map[string]int{}}
	r := carryOut(t, d, holds(false))
	assert.True(t, d.before("number 0 done", "budgets"), d.lines)
	assert.True(t, d.before("number 0 done", "hold dead false"), d.lines)
	assert.True(t, r.Held.Done() && r.Budgets.Done(), "%+v", r)

	d = &diary{fails: map[string]int{"number 0": 100}}
	r = carryOut(t, d, holds(false))
	assert.NotContains(t, d.lines, "budgets")
	assert.NotContains(t, d.lines, "hold dead false")
	assert.Contains(t, d.lines, "hold new true done", "what is held in addition waits for nothing")
	require.ErrorContains(t, r.Budgets.Err(), "the MachineDisruptionBudget has to let nobody go before: ")
	require.Error(t, r.Held.Err())
	assert.NotContains(t, d.lines, "report", "the status is true")

	d = &diary{fails: map[string]int{"number 0": 100}}
	r = carryOut(t, d, holds(true))
	assert.Contains(t, d.lines, "budgets done", "what closes waits for nothing")
	require.Error(t, r.Held.Err())
}

func TestADecisionOfWhichAStepFails(t *testing.T) {
	const always = 100
	tests := map[string]struct {
		closes         bool
		fails          string
		result         activities.BudgetResult
		want, unwanted []string // steps that are done, and not even begun
	}{
		"nothing is done that is not written down": {
			fails: "remember", unwanted: []string{"others", "set", "unset", "budgets", "report", "look"},
		},
		"nothing opens without noout": {
			fails: "set", want: []string{"remember", "others", "unset"}, unwanted: []string{"budgets", "report", "look"},
		},
		"what closes does so whatever noout does": {
			closes: true, fails: "set", want: []string{"unset", "budgets"}, unwanted: []string{"report", "look"},
		},
		"the status does not say what the budgets do not": {
			fails: "budgets", want: []string{"set", "unset"}, unwanted: []string{"report", "look"},
		},
		"somebody else was faster": {
			result: activities.BudgetResult{Moved: "the budget"}, want: []string{"set", "budgets", "look"},
			unwanted: []string{"report"},
		},
		"somebody else's budget covers the pods": {
			result: activities.BudgetResult{Conflict: "theirs"}, want: []string{"budgets"}, unwanted: []string{"report"},
		},
		"the other daemons keep nobody waiting": {
			fails: "others", want: []string{"set", "unset", "budgets", "report", "look"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := &diary{fails: map[string]int{tt.fails: always}, result: tt.result}
			carryOut(t, d, everything(tt.closes))
			for _, step := range tt.want {
				assert.Contains(t, d.lines, step+" done")
			}
			for _, step := range tt.unwanted {
				assert.NotContains(t, d.lines, step)
			}
		})
	}
}

// TestNothingIsDoneForAPolicyThatIsGone: in its status nothing can be written down any more. Who forces its finalizer
// away is not told of a noout that nobody remembers.
func TestNothingIsDoneForAPolicyThatIsGone(t *testing.T) {
	d := &diary{noPolicy: true, fails: map[string]int{}}
	r := carryOut(t, d, everything(false))
	assert.Equal(t, []string{"remember", "remember done"}, d.lines, "and it is not tried again")
	require.EqualError(t, r.Remembered.Err(), "there is no MaintenancePolicy rook-ceph/rook-ceph any more")

	in := everything(true)
	in.Remember = nil
	r = carryOut(t, d, in)
	assert.True(t, r.Reported.Done(), "a status that nothing depends on is no reason to do all anew: %+v", r.Reported)
}

func TestAStepIsTriedAgain(t *testing.T) {
	d := &diary{fails: map[string]int{"set": 1, "budgets": 1}}
	r := carryOut(t, d, everything(false))
	assert.True(t, r.Budgets.Done())
	assert.True(t, r.Set.Result.Unsure, "the first command got no answer, and may still be carried out")
	assert.False(t, r.Reported.Begun, "the status would say that it is sure")
}

// TestAStorageClusterWithoutAQuorum takes for ever to set a flag, and what is to close does not wait for it.
func TestAStorageClusterWithoutAQuorum(t *testing.T) {
	in := everything(false)
	in.Within = 300 * time.Millisecond
	d := &diary{fails: map[string]int{}}
	r := carryOut(t, d, in)
	assert.NotEmpty(t, r.Set.Failed)
	assert.False(t, r.Budgets.Begun)
}
