package starter

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/mocks"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestKept: what Temporal and its workers answer when they are asked whether a status is kept.
func TestKept(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		kept   workflows.Kept
		stuck  bool
	}{
		"of an older worker": {
			answer: serviceerror.NewQueryFailed("unknown queryType kept"), kept: workflows.Kept{OK: true},
		},
		"nobody there": {
			answer: serviceerror.NewNotFound("no execution"), kept: workflows.Kept{Why: "keeper/ns/name does not run"},
		},
		"its task fails again and again": {answer: serviceerror.NewWorkflowNotReady("in failed state"), stuck: true},
		"its task has failed once, or nobody has tried it yet": {
			answer: serviceerror.NewQueryFailed("[TMPRL1100] During replay, a matching Timer command was expected"), stuck: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &mocks.Client{}
			c.On("QueryWorkflowWithOptions", mock.Anything, mock.Anything).Return(nil, test.answer)
			kept, err := NewTemporal(c).Kept(t.Context(), storage.ClusterKey{Namespace: "ns", Name: "name"})
			require.Equal(t, test.stuck, errors.Is(err, ErrCannotGoOn), "%v", err)
			require.Equal(t, test.stuck, err != nil, "%v", err)
			require.Equal(t, test.kept, kept)
		})
	}
}
