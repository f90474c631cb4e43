package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file holds Machines back from what fences them, for the keeper. Where a policy asks for no fencing nothing here
// is called.

// Machines are what fences nodes, and is held back. spec is the policy's, or what it was when a hold was set.
type Machines interface {
	// Machines lists everything that can be held.
	Machines(ctx context.Context, key storage.ClusterKey, spec storage.Fencing) ([]fencing.Machine, error)
	// Odd looks for what would keep Machines from being held as the policy says, or from ever being fenced, such as health
	// checks that never act. all are those that can be held. What it returns says what there is, of these nodes with OSDs.
	Odd(
		ctx context.Context, key storage.ClusterKey, spec storage.Fencing, all []fencing.Machine,
	) func(nodes []string) []string
	// Budget is what the policy's MachineDisruptionBudget says, and whether it may let anybody go at all.
	Budget(ctx context.Context, key storage.ClusterKey, spec storage.Fencing) (fencing.MachineBudget, error)
	// Hold sets a hold, or takes it away. A Machine that is gone, or another one by now, is no error.
	Hold(ctx context.Context, key storage.ClusterKey, spec storage.Fencing, m fencing.Machine, on bool) error
	// SetMax makes the MachineDisruptionBudget say it; nil deletes it.
	SetMax(ctx context.Context, key storage.ClusterKey, spec storage.Fencing, most *int) error
	// Patient is a node's Machine, and what its health checks say of it.
	Patient(ctx context.Context, key storage.ClusterKey, spec storage.Fencing, node string) (fencing.Patient, error)
	// DeletePods deletes the pods of the policy's OSDs and mons on a node. Those that are being deleted count as deleted.
	DeletePods(ctx context.Context, key storage.ClusterKey, node string) (deleted int, err error)
}

// fencingOf is under which a policy's Machines are to be looked at; nil: nobody asks for them. What was set under
// another spec has to be taken away first.
func fencingOf(p Policy) (spec *storage.Fencing, ending bool) {
	noted := p.Memory.Fencing
	wanted, _ := fencing.InForce(p.Settings.Fencing, noted)
	switch {
	case noted != nil && len(noted.Held) == 0 && !noted.Budget:
		return wanted, false
	case noted == nil || wanted != nil && *wanted == noted.Fencing:
		return wanted, false
	default:
		return &noted.Fencing, true
	}
}

// surveying lists Machines while the storage cluster is looked at.
type surveying struct {
	spec     storage.Fencing
	ending   bool
	machines []fencing.Machine
	budget   fencing.MachineBudget
	odd      func(nodes []string) []string
	err      error
}

func (k *Keeper) listMachines(ctx context.Context, p Policy) *surveying {
	spec, ending := fencingOf(p)
	if spec == nil || k.Machines == nil {
		return nil
	}
	s := &surveying{spec: *spec, ending: ending}
	if s.machines, s.err = k.Machines.Machines(ctx, p.Key, *spec); s.err == nil && spec.API == fencing.APIBudget {
		s.budget, s.err = k.Machines.Budget(ctx, p.Key, *spec)
	}
	if s.err == nil && !ending {
		s.odd = k.Machines.Odd(ctx, p.Key, *spec, s.machines)
	}
	return s
}

// survey is what there is to do about the Machines that were listed.
func (s *surveying) survey(p Policy, seen Seen, in Look) *fencing.Survey {
	if s == nil {
		return nil
	}
	if s.err != nil {
		return &fencing.Survey{Fencing: s.spec, Unavailable: storage.Clip(s.err.Error(), mostProblem)}
	}
	hosted := seen.Hosting
	if p.Standing(seen.ID).Key != (storage.ClusterKey{}) {
		hosted = nil // somebody else holds what is on these nodes
	}
	out := fencing.Sift(fencing.Found{
		Now: time.Now(), Ledger: p.Memory.Fencing, Machines: s.machines, Hosted: hosted, Ending: s.ending,
		Known: seen.View.Unavailable == "" && seen.View.NotInCharge == "" && seen.Hosting != nil && !seen.Homeless,
		Nodes: in.Nodes, UIDs: in.Machines,
	})
	out.Fencing, out.Max, out.Never = s.spec, s.budget.Max, s.budget.Never
	if out.Known && s.odd != nil {
		nodes := slices.Sorted(maps.Keys(hosted)) //workflowcheck:ignore sorted before anybody sees the order
		nodes = slices.DeleteFunc(nodes, func(node string) bool { return hosted[node].Daemons == 0 })
		for _, odd := range s.odd(nodes) {
			if len(out.Odd) < mostOdd {
				out.Odd = append(out.Odd, storage.Clip(odd, mostProblem))
			}
		}
	}
	return &out
}

// mostOdd is how many of them are told. When these are mended there is room for others.
const mostOdd = 5

// mostProblem is how long the words of an API may be that are kept.
const mostProblem = 300

// HoldsInput is what to change about the holds of a policy.
type HoldsInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Fencing storage.Fencing    `json:"fencing"`
	Set     []fencing.Machine  `json:"set,omitempty"`
	Remove  []fencing.Machine  `json:"remove,omitempty"`
	// Max is what the MachineDisruptionBudget is to say; nil: it stays as it is, unless Drop says that it goes.
	Max  *int `json:"max,omitempty"`
	Drop bool `json:"drop,omitempty"`
	// Before is what the PodDisruptionBudgets were when it was decided that something may be let go; nil: it may be,
	// whatever they are. If they have changed since, an alarm was raised, and nothing is let go.
	Before budget.Book `json:"before,omitempty"`
}

// HoldsResult is what became of it.
type HoldsResult struct {
	// Moved: it is not as it was when that was decided, so nothing was let go.
	Moved bool `json:"moved,omitempty"`
}

// ChangeHolds sets and takes away holds: one request or two for each. What one Machine refuses keeps no other one
// waiting.
func (k *Keeper) ChangeHolds(ctx context.Context, in HoldsInput) (HoldsResult, error) {
	if in.Before != nil {
		now, _, err := k.Budgets.ReadBudgets(ctx, in.Cluster)
		if err != nil {
			return HoldsResult{}, Unavailable("read the PodDisruptionBudgets", err)
		}
		if !now.Same(in.Before) {
			return HoldsResult{Moved: true}, nil
		}
	}
	var failed []error
	for _, m := range in.Set {
		failed = append(failed, k.Machines.Hold(ctx, in.Cluster, in.Fencing, m, true))
	}
	for _, m := range in.Remove {
		failed = append(failed, k.Machines.Hold(ctx, in.Cluster, in.Fencing, m, false))
	}
	if in.Max != nil || in.Drop {
		failed = append(failed, k.Machines.SetMax(ctx, in.Cluster, in.Fencing, in.Max))
	}
	if failed = slices.DeleteFunc(failed, func(err error) bool { return err == nil }); len(failed) > 0 {
		what := "hold Machines back"
		if len(failed) > 1 {
			what += fmt.Sprintf(" (%d failed)", len(failed))
		}
		return HoldsResult{}, Unavailable(what, failed[0])
	}
	return HoldsResult{}, nil
}

// ReleaseHoldsInput names the policy whose holds are to go.
type ReleaseHoldsInput struct {
	storage.ClusterKey
	// Aside: they go because another policy is in charge, and stay if none is any more. ID is the storage cluster's own.
	Aside bool   `json:"aside,omitempty"`
	ID    string `json:"id,omitempty"`
}

// ReleaseHolds takes away every hold that is noted in the policy's status, and the MachineDisruptionBudget. It returns
// when nothing is left, or when the policy is in charge after all: what else is taken back before that can be made
// again in no time, but a Machine without a hold may be fenced at once. So that is asked again before each of them: of
// many Machines the last would go on an answer that is minutes old.
func (k *Keeper) ReleaseHolds(ctx context.Context, in ReleaseHoldsInput) (HoldsResult, error) {
	key := in.ClusterKey
	p, err := k.policyToRelease(ctx, in)
	l := p.Memory.Fencing
	if err != nil || in.inCharge(p) {
		return HoldsResult{Moved: err == nil}, err
	}
	if l == nil || k.Machines == nil {
		return HoldsResult{}, nil
	}
	all, err := k.Machines.Machines(ctx, key, l.Fencing)
	if err != nil {
		return HoldsResult{}, Unavailable("list Machines", err)
	}
	var changes []HoldsInput
	for _, m := range all {
		if _, noted := slices.BinarySearch(l.Held, fencing.Key(m.UID)); noted {
			changes = append(changes, HoldsInput{Cluster: key, Fencing: l.Fencing, Remove: []fencing.Machine{m}})
		}
	}
	if l.Budget {
		changes = append(changes, HoldsInput{Cluster: key, Fencing: l.Fencing, Drop: true})
	}
	var failed error
	for _, change := range changes {
		if in.Aside {
			if p, err = k.policyToRelease(ctx, in); err != nil || in.inCharge(p) {
				return HoldsResult{Moved: err == nil}, err
			}
		}
		if _, err := k.ChangeHolds(ctx, change); failed == nil {
			failed = err // what one Machine refuses keeps no other one waiting
		}
	}
	return HoldsResult{}, failed
}

// policyToRelease is the policy as it is now; the zero one if there is none any more.
func (k *Keeper) policyToRelease(ctx context.Context, in ReleaseHoldsInput) (Policy, error) {
	p, err := k.Policies.Policy(ctx, in.ClusterKey)
	switch {
	case errors.Is(err, ErrNotFound):
		return Policy{}, nil
	case err != nil:
		return Policy{}, Unavailable("read MaintenancePolicy "+in.String(), err)
	default:
		return p, nil
	}
}

// inCharge tells whether a policy that stood aside is in charge after all.
func (in ReleaseHoldsInput) inCharge(p Policy) bool {
	return in.Aside && p.Key == in.ClusterKey && p.Second == "" && p.Standing(in.ID).First == ""
}
