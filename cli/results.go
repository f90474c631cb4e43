package cli

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/workflows"
)

// DrainResult is how a drain ended. People and scripts read its durations as in "4m0s"; between workflows they are
// numbers.
type DrainResult struct{ workflows.DrainNodeResult }

// MarshalJSON writes durations as Kubernetes does.
func (r DrainResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		workflows.DrainNodeResult
		Took   metav1.Duration `json:"took"`
		Waited metav1.Duration `json:"waitedForLease"`
	}{r.DrainNodeResult, metav1.Duration{Duration: r.Took}, metav1.Duration{Duration: r.Waited}})
}

// RolloutResult is how a rollout ended, with its duration as DrainResult has it.
type RolloutResult struct{ workflows.UpdateOSDsResult }

// MarshalJSON writes the duration as Kubernetes does.
func (r RolloutResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		workflows.UpdateOSDsResult
		Took metav1.Duration `json:"took"`
	}{r.UpdateOSDsResult, metav1.Duration{Duration: r.Took}})
}
