package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// RestartWaitingInput names the policy whose OSDs and mons wait to be restarted.
type RestartWaitingInput struct {
	Policy string `json:"policy"` // "namespace/name"
	// ProgressDeadline is how long a daemon may take to serve again before nothing further is let go; 0: 10 minutes.
	ProgressDeadline time.Duration `json:"progressDeadline,omitempty"`
	Reason           string        `json:"reason,omitempty"` // is shown to everybody who has to wait
	State            *UpdateState  `json:"state,omitempty"`

	invalid *input.Error // found while decoding
}

// UnmarshalJSON decodes an input strictly, as that of a drain.
func (in *RestartWaitingInput) UnmarshalJSON(data []byte) error {
	type plain RestartWaitingInput
	var p plain
	p.invalid = input.Strict(data, &p)
	*in = RestartWaitingInput(p)
	return nil
}

func (in *RestartWaitingInput) validate(ctx workflow.Context) (activities.OSDSetRef, error) {
	if in.invalid != nil {
		return activities.OSDSetRef{}, refuse(in.invalid)
	}
	key, wrong := input.PolicyKey("policy", in.Policy)
	if wrong != nil {
		return activities.OSDSetRef{}, refuse(wrong)
	}
	checks := []*input.Error{
		input.Text("reason", in.Reason),
		theOne(ctx, jobs.RestartWaiting.ID(key.Namespace, key.Name),
			"there is one restart of what waits for each policy, under this ID"),
	}
	if in.ProgressDeadline != 0 && in.ProgressDeadline < time.Second {
		checks = append(checks, input.Wrong("progressDeadline", in.ProgressDeadline.String(),
			"must be 1s or more, in nanoseconds; or 0, for 10m"))
	}
	return activities.OSDSetRef{
		Kind: activities.OSDSetWaiting, Namespace: key.Namespace, Name: whatWaits, Policy: key.Name,
		ProgressDeadline: in.ProgressDeadline,
	}, first(checks)
}

// whatWaits stands where other rollouts have the name of what they roll out.
const whatWaits = "what waits to be restarted"

// RestartWaiting lets the OSDs and mons of a storage cluster be restarted that somebody else wants restarted, and that
// the guard of deletions has wait: their Deployments were changed, `kubectl rollout restart` was told so, an operator
// wants it. It changes no Deployment. It lets the pods go, by eviction, and what wants them gone makes the next ones.
//
// Mons go first, one by one, then OSDs, one failure domain after the other under the lease, the very first daemon
// alone. What went has to be back, and the data whole, before anything else goes; what takes longer than the progress
// deadline halts the job, and it goes on by itself when that is back or is not wanted any more. A wish that is taken
// back is no longer part of it. What would go for good goes when Ceph says that nobody needs it, and waits until then.
//
// With `restarts: Approve` in the policy nothing goes before somebody has sent the signal approve; that holds as long as
// the job runs, and so also for what begins to wait meanwhile. It ends when nothing waits. The watcher starts it.
//
//	temporal workflow start --type RestartWaiting --task-queue lockkeeper --workflow-id restart-waiting/rook-ceph/rook-ceph \
//	  --input '{"policy":"rook-ceph/rook-ceph"}'
func RestartWaiting(ctx workflow.Context, in RestartWaitingInput) (UpdateOSDsResult, error) {
	u := newUpdate(ctx, in.State)
	u.accept, u.reason = in.validate, in.Reason
	u.goOn = func(s *UpdateState) error {
		in.State = s
		return workflow.NewContinueAsNewError(ctx, RestartWaiting, in)
	}
	return u.do(ctx)
}

func (u *update) waiting() bool { return u.osdSet.Kind == activities.OSDSetWaiting }

// noteLetGo remembers whom the job has let go: their pods are others by now, and nothing else tells.
func (u *update) noteLetGo(osds []rollout.OSD) {
	if !u.waiting() {
		return
	}
	for _, o := range osds {
		u.state.LetGo = append(u.state.LetGo, activities.LetGo{Key: o.Key, Pod: o.Pod, Epoch: o.Epoch, ForGood: o.ForGood})
	}
}

// noteBack forgets them when they are back.
func (u *update) noteBack(keys []string) {
	u.state.LetGo = slices.DeleteFunc(u.state.LetGo, func(g activities.LetGo) bool { return slices.Contains(keys, g.Key) })
}

// consent waits for a person to approve the job, if the policy asks for that.
func (u *update) consent(ctx workflow.Context, s activities.Survey) (asked bool, err error) {
	if !s.Rules.Consent || u.state.Consent {
		return false, nil
	}
	_, of := s.Counts.Progress()
	return true, u.rest(ctx, wait{
		phase: PhaseRest, holds: activities.HoldApproval, first: time.Hour, most: 24 * time.Hour,
		what: plural(of, "pod") + " to be let go, beginning with " + s.Next.OSDs[0].String() +
			": `lockkeeper approve " + u.name() + "`",
	}, false)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
