package cli

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

func pending(t *testing.T, name string, beat any) *workflowpb.PendingActivityInfo {
	t.Helper()
	a := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: name}, Attempt: 2}
	if beat != nil {
		var err error
		a.HeartbeatDetails, err = converter.GetDefaultDataConverter().ToPayloads(beat)
		require.NoError(t, err)
	}
	return a
}

// A heartbeat is read as what its activity sends: both kinds are objects, and nothing in them tells which it is.
func TestStepOf(t *testing.T) {
	evicting := activities.EvictionProgress{Total: 3, Remaining: 2}
	arriving := activities.Arrival{Waiting: []activities.Superfluous{{Key: "node-a:/dev/sda", Why: crashes}}}
	failing := pending(t, "SurveyOSDs", nil)
	failing.LastFailure = &failurepb.Failure{Message: "connection refused"}
	for name, test := range map[string]struct {
		pending []*workflowpb.PendingActivityInfo
		want    *Step
	}{
		"nothing": {nil, nil},
		"tells nothing": {[]*workflowpb.PendingActivityInfo{
			pending(t, awaitOSDs, nil),
			pending(t, awaitOSDs, activities.Arrival{}),
		}, nil},
		"an eviction": {
			[]*workflowpb.PendingActivityInfo{pending(t, "EvictPods", evicting)},
			&Step{Name: "EvictPods", Attempt: 2, Eviction: &evicting},
		},
		"OSDs not back": {
			[]*workflowpb.PendingActivityInfo{pending(t, awaitOSDs, arriving)},
			&Step{Name: awaitOSDs, Attempt: 2, Arrival: &arriving},
		},
		"a failure first": {
			[]*workflowpb.PendingActivityInfo{pending(t, awaitOSDs, arriving), failing},
			&Step{Name: "SurveyOSDs", Attempt: 2, LastFailure: "connection refused"},
		},
		"something odd": {[]*workflowpb.PendingActivityInfo{pending(t, awaitOSDs, "half a beat")}, nil},
		"a failure stays": {
			[]*workflowpb.PendingActivityInfo{failing, pending(t, awaitOSDs, arriving)},
			&Step{Name: "SurveyOSDs", Attempt: 2, LastFailure: "connection refused"},
		},
		"only beats count": {[]*workflowpb.PendingActivityInfo{pending(t, "ReplaceBatch", struct{}{})}, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, stepOf(test.pending)) })
	}
}

// Temporal knows an activity by the name of its method.
func TestAwaitOSDsIsAnActivity(t *testing.T) {
	_, is := reflect.TypeFor[*activities.OSDs]().MethodByName(awaitOSDs)
	assert.True(t, is)
}

// TestAnswers: every job that the registry names can be asked.
func TestAnswers(t *testing.T) {
	for _, j := range jobs.All {
		assert.Contains(t, answers, j.Type)
	}
}
