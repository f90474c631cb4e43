package workflows

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// UnmarshalJSON decodes an input strictly, as that of a drain.
func (in *UpdateOSDsInput) UnmarshalJSON(data []byte) error {
	type plain UpdateOSDsInput
	var p plain
	p.invalid = input.Strict(data, &p)
	*in = UpdateOSDsInput(p)
	return nil
}

// UnmarshalJSON decodes an input strictly, as that of a drain.
func (in *RestartOSDsInput) UnmarshalJSON(data []byte) error {
	type plain RestartOSDsInput
	var p plain
	p.invalid = input.Strict(data, &p)
	*in = RestartOSDsInput(p)
	return nil
}

// UnmarshalJSON passes over fields that it does not know: the run before may have been of another version.
func (s *UpdateState) UnmarshalJSON(data []byte) error {
	type plain UpdateState
	return json.Unmarshal(data, (*plain)(s))
}

func (in *UpdateOSDsInput) validate(ctx workflow.Context) (activities.OSDSetRef, error) {
	if in.invalid != nil {
		return activities.OSDSetRef{}, refuse(in.invalid)
	}
	key, wrong := input.PolicyKey("cephOSD", in.CephOSD)
	if wrong != nil {
		return activities.OSDSetRef{}, refuse(input.Wrong("cephOSD", in.CephOSD, "must be NAMESPACE/NAME of a CephOSD"))
	}
	return activities.OSDSetRef{Kind: activities.OSDSetCephOSD, Namespace: key.Namespace, Name: key.Name},
		first([]*input.Error{theOne(ctx, jobs.UpdateOSDs.ID(key.Namespace, key.Name),
			"there is one rollout of a CephOSD at a time, under this ID")})
}

// defaultDeployments is the selector of Rook's OSDs.
const defaultDeployments = "app=rook-ceph-osd"

func (in *RestartOSDsInput) validate(ctx workflow.Context) (activities.OSDSetRef, error) {
	if in.invalid != nil {
		return activities.OSDSetRef{}, refuse(in.invalid)
	}
	if in.Selector == "" {
		in.Selector = defaultDeployments
	}
	if in.UpdateDomain == "" {
		in.UpdateDomain = "OSD"
	}
	checks := []*input.Error{
		namespace("namespace", in.Namespace),
		input.PodSelector("selector", in.Selector),
		updateDomain("updateDomain", in.UpdateDomain),
		input.Text("reason", in.Reason),
		input.Image("image", in.Image),
		input.VersionOfImage("cephVersion", in.CephVersion, in.Image),
		theOne(ctx, jobs.RestartOSDs.ID(in.Namespace), "there is one restart of a namespace's OSDs at a time, under this ID"),
	}
	if in.MaxParallel < 0 || in.MaxParallel > maxParallel {
		checks = append(checks, input.Wrong("maxParallel", strconv.Itoa(in.MaxParallel),
			fmt.Sprintf("must be between 0 (what the update domain has) and %d", maxParallel)))
	}
	if _, wrong := input.PolicyKey("policy", in.Namespace+"/"+in.Policy); in.Policy != "" && wrong != nil {
		checks = append(checks, input.Wrong("policy", in.Policy, "must be the name of a MaintenancePolicy"))
	}
	if in.ProgressDeadline != 0 && in.ProgressDeadline < time.Second {
		checks = append(checks, input.Wrong("progressDeadline", in.ProgressDeadline.String(),
			"must be 1s or more, in nanoseconds; or 0, for 10m"))
	}
	return activities.OSDSetRef{
		Kind: activities.OSDSetDeployments, Namespace: in.Namespace, Selector: in.Selector, UpdateDomain: in.UpdateDomain,
		MaxParallel: in.MaxParallel, Policy: in.Policy, ProgressDeadline: in.ProgressDeadline, Image: in.Image,
		CephVersion: in.CephVersion,
	}, first(checks)
}

const maxParallel = 1000

func namespace(field, name string) *input.Error {
	if _, wrong := input.PolicyKey(field, name+"/x"); wrong != nil {
		return input.Wrong(field, name, "must be the name of a namespace")
	}
	return nil
}

var crushType = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)

// updateDomain is a type of CRUSH's, or OSD or Host, in any case. Which ones a cluster has only the cluster knows.
func updateDomain(field, name string) *input.Error {
	if !crushType.MatchString(name) {
		return input.Wrong(field, name, "must be OSD, Host, or a type of failure domain, such as Zone or Rack")
	}
	return nil
}
