package workflows

import (
	"encoding/json"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// UnmarshalJSON decodes an input strictly, as that of a drain.
func (in *MigrateMonsInput) UnmarshalJSON(data []byte) error {
	type plain MigrateMonsInput
	var p plain
	p.invalid = input.Strict(data, &p)
	*in = MigrateMonsInput(p)
	return nil
}

// UnmarshalJSON passes over fields that it does not know: the run before may have been of another version.
func (s *MigrateMonsState) UnmarshalJSON(data []byte) error {
	type plain MigrateMonsState
	return json.Unmarshal(data, (*plain)(s))
}

func (m *migration) validate(ctx workflow.Context) error {
	in := &m.in
	if in.invalid != nil {
		return refuse(in.invalid)
	}
	key, wrong := input.PolicyKey("cephMon", in.CephMon)
	if wrong != nil {
		return refuse(input.Wrong("cephMon", in.CephMon, "must be NAMESPACE/NAME of a CephMon"))
	}
	if in.OneLess && !in.Migrate && in.State == nil {
		return refuse(input.Wrong("oneLess", "true", "must come with migrate"))
	}
	in.ref = activities.MonsRef{Namespace: key.Namespace, Name: key.Name}
	return first([]*input.Error{theOne(ctx, jobs.MigrateMons.ID(key.Namespace, key.Name),
		"there is one job for the mons of a CephMon at a time, under this ID")})
}

// PlanMonsInput asks what MigrateMons would do.
type PlanMonsInput struct {
	CephMon string `json:"cephMon"`
	OneLess bool   `json:"oneLess,omitempty"`
}

// PlanMons foresees a migration, and changes nothing. It is a workflow since only workers can ask Ceph.
func PlanMons(ctx workflow.Context, in PlanMonsInput) (activities.MonPlan, error) {
	key, wrong := input.PolicyKey("cephMon", in.CephMon)
	if wrong != nil {
		return activities.MonPlan{}, refuse(input.Wrong("cephMon", in.CephMon, "must be NAMESPACE/NAME of a CephMon"))
	}
	survey := activities.MonSurveyInput{Ref: activities.MonsRef{Namespace: key.Namespace, Name: key.Name}}
	survey.Memory.Mode.Migrate, survey.Memory.Mode.OneLess = true, in.OneLess
	return call(thorough(ctx, "look at the mons of "+in.CephMon), moving.PlanMons, survey)
}
