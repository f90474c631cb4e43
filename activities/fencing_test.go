package activities_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// aside is a policy that stood aside, with three Machines that it holds. The policy that was first goes when as many of
// them are let go as stay says.
type aside struct {
	activities.Policies
	noMachines
	stay  int
	first string
	held  []fencing.Machine
	goes  []string
}

func (a *aside) Policy(_ context.Context, key storage.ClusterKey) (activities.Policy, error) {
	p := activities.Policy{Key: key, Second: a.first}
	if len(a.goes) >= a.stay {
		p.Second = ""
	}
	p.Memory.Fencing = &fencing.Ledger{}
	for _, m := range a.held {
		p.Memory.Fencing.Held = append(p.Memory.Fencing.Held, fencing.Key(m.UID))
	}
	slices.Sort(p.Memory.Fencing.Held)
	return p, nil
}

func (a *aside) Machines(context.Context, storage.ClusterKey, storage.Fencing) ([]fencing.Machine, error) {
	return a.held, nil
}

func (a *aside) Hold(_ context.Context, _ storage.ClusterKey, _ storage.Fencing, m fencing.Machine, on bool) error {
	if !on {
		a.goes = append(a.goes, m.Name)
	}
	return nil
}

// TestHoldsStayOnceThePolicyIsInCharge: whoever stood aside asks before each Machine that it lets go whether it still
// does, since many of them take minutes, and one without a hold may be fenced at once.
func TestHoldsStayOnceThePolicyIsInCharge(t *testing.T) {
	for name, c := range map[string]struct {
		stay  int
		aside bool
		goes  []string
		moved bool
	}{
		"the other policy stays":            {stay: 9, aside: true, goes: []string{"a", "b", "c"}},
		"it goes before anything":           {stay: 0, aside: true, moved: true},
		"it goes after the first Machine":   {stay: 1, aside: true, goes: []string{"a"}, moved: true},
		"it goes after the second Machine":  {stay: 2, aside: true, goes: []string{"a", "b"}, moved: true},
		"the policy is deleted, or changed": {stay: 0, goes: []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			world := &aside{stay: c.stay, first: "a-first"}
			for _, name := range []string{"a", "b", "c"} {
				world.held = append(world.held, fencing.Machine{Name: name, UID: "uid-of-" + name, Held: true})
			}
			k := &activities.Keeper{Policies: world, Machines: world}
			result, err := k.ReleaseHolds(t.Context(), activities.ReleaseHoldsInput{ClusterKey: carried, Aside: c.aside})
			require.NoError(t, err)
			require.Equal(t, c.goes, world.goes)
			require.Equal(t, c.moved, result.Moved)
		})
	}
}
