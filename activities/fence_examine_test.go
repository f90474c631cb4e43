package activities_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// concern is a node with daemons of some storage clusters, and policies that may hold its Machine.
type concern struct {
	activities.Nodes
	activities.Policies
	noMachines
	hosted, fencing, holding []storage.ClusterKey
	broken                   map[storage.ClusterKey]error // what their Machine APIs say
	leaving, gone            []storage.ClusterKey
}

func (f *concern) PoliciesOf(context.Context, string) ([]storage.ClusterKey, storage.Answer, error) {
	return f.hosted, storage.Answer{OK: len(f.hosted) > 0, Reason: "hosts no storage"}, nil
}

func (f *concern) FencingPolicies(context.Context) ([]storage.ClusterKey, error) {
	return f.fencing, nil
}

func (f *concern) Policy(_ context.Context, key storage.ClusterKey) (p activities.Policy, err error) {
	for _, fences := range f.fencing {
		if fences == key {
			p.Settings.Fencing = &storage.Fencing{}
		}
	}
	p.Deleting = slices.Contains(f.leaving, key)
	if slices.Contains(f.gone, key) {
		err = activities.ErrNotFound
	}
	return p, err
}

func (f *concern) Patient(
	_ context.Context, key storage.ClusterKey, _ storage.Fencing, _ string,
) (p fencing.Patient, err error) {
	p.Machine.UID = "u"
	for _, holds := range f.holding {
		p.Machine.Held = p.Machine.Held || holds == key
	}
	return p, f.broken[key]
}

// TestThoseWhoseMachinesNobodyServes: a policy that names an API which is not there holds nothing, and keeps no node of
// another storage cluster from its fence. Of one that does not answer nobody knows.
func TestThoseWhoseMachinesNobodyServes(t *testing.T) {
	a, b := storage.ClusterKey{Namespace: "a", Name: "a"}, storage.ClusterKey{Namespace: "b", Name: "b"}
	notServed, silent := fmt.Errorf("Machines: %w", activities.ErrNotFound), errors.New("no answer")
	for name, test := range map[string]struct {
		broken map[storage.ClusterKey]error
		want   string // "": who hosts the OSDs is asked
	}{
		"that of another one is not served":          {map[storage.ClusterKey]error{b: notServed}, ""},
		"that of another one does not answer":        {map[storage.ClusterKey]error{b: silent}, "no answer"},
		"that of who hosts the OSDs is not served":   {map[storage.ClusterKey]error{a: notServed}, "not found"},
		"that of who hosts the OSDs does not answer": {map[storage.ClusterKey]error{a: silent}, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			of := &concern{hosted: []storage.ClusterKey{a}, fencing: []storage.ClusterKey{a, b}, broken: test.broken}
			f := &activities.Fence{Nodes: of, Policies: of, Machines: of}
			out, err := f.ExamineNode(t.Context(), activities.ExamineInput{Node: "node-a"})
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []storage.ClusterKey{a}, out.Clusters)
		})
	}
}

// TestWhileThePolicyIsOnItsWayOut: another one may be in charge afterwards, and nobody begins another fence then, so a
// job looks again. One that had asked this policy ends when its hold is gone.
func TestWhileThePolicyIsOnItsWayOut(t *testing.T) {
	a, b := storage.ClusterKey{Namespace: "a", Name: "a"}, storage.ClusterKey{Namespace: "b", Name: "b"}
	is := func(keys ...storage.ClusterKey) []storage.ClusterKey { return keys }
	for name, test := range map[string]struct {
		concern concern
		named   []storage.ClusterKey
		again   bool // it is asked again
		want    []storage.ClusterKey
	}{
		"it is the only one":   {concern{hosted: is(a), fencing: is(a), leaving: is(a)}, nil, true, nil},
		"another one holds it": {concern{hosted: is(a, b), fencing: is(a, b), leaving: is(a)}, nil, false, is(b)},
		"it was asked before":  {concern{hosted: is(a), fencing: is(a), leaving: is(a)}, is(a), false, nil},
		"and still holds it":   {concern{fencing: is(a), leaving: is(a), holding: is(a)}, is(a), false, is(a)},
		"it fences nothing":    {concern{hosted: is(a), leaving: is(a)}, nil, false, nil},
		"it hosts nothing":     {concern{fencing: is(a), leaving: is(a)}, nil, false, nil},
		"and holds it yet":     {concern{fencing: is(a), leaving: is(a), holding: is(a)}, nil, true, nil},
		"it is gone by now":    {concern{hosted: is(a), fencing: is(a), gone: is(a)}, nil, true, nil},
		"and was asked before": {concern{fencing: is(a), gone: is(a)}, is(a), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := &activities.Fence{Nodes: &test.concern, Policies: &test.concern, Machines: &test.concern}
			out, err := f.ExamineNode(t.Context(), activities.ExamineInput{Node: "node-a", Clusters: test.named})
			var failed *temporal.ApplicationError
			if errors.As(err, &failed) {
				assert.Equal(t, test.again, !failed.NonRetryable(), err)
			}
			assert.Equal(t, test.want == nil, err != nil)
			assert.Equal(t, test.want, out.Clusters)
		})
	}
}

// TestWhoIsAskedToReleaseANode: the keepers of all storage clusters with OSDs on it, if their policies name what fences
// nodes, and of those that hold its Machine for something else: a mon.
func TestWhoIsAskedToReleaseANode(t *testing.T) {
	a, b := storage.ClusterKey{Namespace: "a", Name: "a"}, storage.ClusterKey{Namespace: "b", Name: "b"}
	is := func(keys ...storage.ClusterKey) []storage.ClusterKey { return keys }
	tests := map[string]struct {
		concern concern
		named   []storage.ClusterKey
		want    []storage.ClusterKey
		refused string
	}{
		"one hosts OSDs":              {concern{hosted: is(a), fencing: is(a, b)}, nil, is(a), ""},
		"both do":                     {concern{hosted: is(b, a), fencing: is(a, b), holding: is(a, b)}, nil, is(a, b), ""},
		"one has a mon alone":         {concern{hosted: is(b), fencing: is(a, b), holding: is(a, b)}, nil, is(a, b), ""},
		"all have mons alone":         {concern{fencing: is(a, b), holding: is(a)}, nil, is(a), ""},
		"one fences nothing":          {concern{hosted: is(a, b), fencing: is(b)}, nil, is(b), ""},
		"nobody fences":               {concern{hosted: is(a)}, nil, nil, "no MaintenancePolicy with storage on it names"},
		"nobody hosts or holds":       {concern{fencing: is(a)}, nil, nil, "hosts no storage"},
		"they are known, or are said": {concern{hosted: is(a), fencing: is(a, b)}, is(b), is(b), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := &activities.Fence{Nodes: &test.concern, Policies: &test.concern, Machines: &test.concern}
			out, err := f.ExamineNode(t.Context(), activities.ExamineInput{Node: "node-a", Clusters: test.named})
			if test.refused != "" {
				require.ErrorContains(t, err, test.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, out.Clusters)
			assert.Len(t, test.concern.holding, out.Patient.Holders)
		})
	}
}
