package starter

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// fences notes what fences are told.
type fences struct {
	*recorder
	told []string
}

func (f *fences) SignalFence(_ context.Context, in workflows.FenceNodeInput, _ string, start bool) error {
	f.told = append(f.told, fmt.Sprintf("%s %t", in.Node, start))
	return nil
}

// TestWhomFencesAreTold: what of a node changes for its fence, and whether one is to begin.
func TestWhomFencesAreTold(t *testing.T) {
	well := patient{Why: fencing.WhyRecovered, Details: "healthy", Held: true}
	dies := patient{Why: fencing.WhyUnhealthy, Details: "Ready=Unknown", Held: true}
	free, again := dies, dies
	free.Held, again.Details = false, "Ready=Unknown, another boot"
	const begins, hears = "node-a true", "node-a false"
	tests := map[string]struct {
		was, is *patient
		want    []string
	}{
		"a node that is well":              {nil, &well, nil},
		"one that dies":                    {&well, &dies, []string{begins}},
		"one that was dead before":         {nil, &dies, []string{begins}},
		"nothing new":                      {&dies, &dies, nil},
		"its Machine is let go":            {&dies, &free, nil},
		"and held again":                   {&free, &dies, []string{begins}},
		"it fails in another way":          {&dies, &again, []string{begins}},
		"it recovers":                      {&dies, &well, []string{hears}},
		"it recovers when it was let go":   {&free, &well, []string{hears}},
		"its Machine is gone, or its OSDs": {&dies, nil, []string{hears}},
		"a node that is well is gone":      {&well, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := &fences{recorder: &recorder{}}
			r := &FencingReconciler{Temporal: f, Log: logr.Discard()}
			sight := func(p *patient) *fenceSight {
				s := &fenceSight{Patients: map[string]patient{}}
				if p != nil {
					s.Patients["node-a"] = *p
				}
				return s
			}
			require.NoError(t, r.tell(t.Context(), storage.ClusterKey{}, sight(test.was), sight(test.is)))
			assert.Equal(t, test.want, f.told)
		})
	}
}

// TestFencesAreToldAnew: a policy that was edited may have named nothing that fences for a moment.
func TestFencesAreToldAnew(t *testing.T) {
	well := patient{Why: fencing.WhyRecovered, Details: "healthy", Held: true}
	dies := patient{Why: fencing.WhyUnhealthy, Details: "Ready=Unknown", Held: true}
	sight := func(nodes map[string]patient) *fenceSight { return &fenceSight{Patients: nodes} }
	before := sight(map[string]patient{"still-dead": dies, "back": dies, "well": well, "gone": dies})
	now := sight(map[string]patient{"still-dead": dies, "back": well, "well": well})
	before.tellAnew(now)
	f := &fences{recorder: &recorder{}}
	r := &FencingReconciler{Temporal: f, Log: logr.Discard()}
	require.NoError(t, r.tell(t.Context(), storage.ClusterKey{}, before, now))
	assert.Equal(t, []string{"back false", "still-dead true", "gone false"}, f.told)
	(*fenceSight)(nil).tellAnew(now) // which was not looked at before
}
