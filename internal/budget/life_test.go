package budget_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestAnOpenDomainWithoutPods: between the eviction of all pods of a failure domain and their replacement the budget
// goes on to leave out what it left out. Closed meanwhile, it would open without a question when they are back. If it
// never left anything out, that is an opening, and everybody else has to give a sign of life first.
func TestAnOpenDomainWithoutPods(t *testing.T) {
	for name, c := range map[string]struct {
		pods, leftOut []string
		life          *storage.Life
		want          []string
		asks          bool
	}{
		"its pods are there":    {pods: []string{"0"}, leftOut: []string{"0"}, want: []string{"0"}},
		"its pods are away":     {leftOut: []string{"0"}, want: []string{"0"}},
		"they were never there": {},
		"the first is there":    {pods: []string{"0"}, asks: true},
		"the first is there, all others live": {
			pods: []string{"0"}, life: &storage.Life{Outside: osd(0)},
			want: []string{"0"}, asks: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := byOSD(lease.StopOneByOne, true, 0)
			in.Health, in.Proof, in.View.Domains[0].Touched = storage.Health{}, &storage.CleanProof{ChangeEpoch: 6, Shape: "s"},
				true
			in.View.Domains[0].LabelValues = c.pods
			if c.pods == nil {
				in.View.Domains[0].Troubled[0].Pod = storage.PodNone
			}
			in.Open, in.Opened, in.LeftOut, in.Life = osd(0), osd(0), c.leftOut, c.life
			d := budget.Decide(in)
			require.Equal(t, c.want, d.Budget.Except, d.Message)
			_, asks := budget.Question(in)
			require.Equal(t, c.asks, asks)
			if c.asks && c.life == nil {
				require.Equal(t, budget.ReasonNoSignOfLife, d.Reason)
			} else {
				require.Equal(t, budget.ModeOpen, d.Mode, d.Message)
			}
		})
	}
}

// TestLeftOutIsOfOneKind: after the pools' failure domain has changed, values of the old kind's label mean other pods.
func TestLeftOutIsOfOneKind(t *testing.T) {
	in := byOSD(lease.StopOneByOne, true, 0)
	in.Health, in.Proof, in.View.Domains[0].Touched = storage.Health{}, &storage.CleanProof{ChangeEpoch: 6, Shape: "s"},
		true
	in.View.Domains[0].LabelValues, in.View.Domains[0].Troubled[0].Pod = nil, storage.PodNone
	in.Opened, in.LeftOut = storage.FailureDomain{Type: "host", Name: "osd.0"}, []string{"0"}
	require.Empty(t, budget.Decide(in).Budget.Except)
	in.Opened.Type, in.Open = "osd", osd(0)
	require.Equal(t, []string{"0"}, budget.Decide(in).Budget.Except)
}
