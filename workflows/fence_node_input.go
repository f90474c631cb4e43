package workflows

import (
	"encoding/json"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// FenceNodeInput starts the fencing of a node, or goes on with it after continue-as-new. Only the node is required.
type FenceNodeInput struct {
	Node string `json:"node"`
	// Policy is "namespace/name" of the MaintenancePolicy, or of several, with commas; by default of all whose daemons the
	// node hosts and that name what fences nodes.
	Policy string `json:"policy,omitempty"`
	// Reason is shown to everybody who has to wait.
	Reason string `json:"reason,omitempty"`
	// Release lets the Machine go whatever is known, but for "one at a time": a person's word, who and why.
	Release *FenceRelease `json:"release,omitempty"`
	// State is written by the run before, and not by people.
	State *FenceState `json:"state,omitempty"`

	invalid *input.Error // found while decoding
}

// FenceRelease is a person's word that a node's Machine is to be released whatever is known. It is also what the signal
// `release` takes.
type FenceRelease struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// UnmarshalJSON decodes an input strictly, as that of a drain.
func (in *FenceNodeInput) UnmarshalJSON(data []byte) error {
	type plain FenceNodeInput
	var p plain
	p.invalid = input.Strict(data, &p)
	*in = FenceNodeInput(p)
	return nil
}

func (f *fence) validate(ctx workflow.Context) error {
	in := &f.in
	if in.invalid != nil {
		return refuse(in.invalid)
	}
	in.Node = strings.TrimSpace(in.Node)
	checks := []*input.Error{
		input.NodeName("node", in.Node),
		input.Text("reason", in.Reason),
		theOne(ctx, jobs.FenceNode.ID(in.Node), "there is one fence of a node at a time, under this ID"),
	}
	if r := in.Release; r != nil {
		checks = append(checks, required("release.by", r.By), input.Text("release.by", r.By),
			required("release.reason", r.Reason), input.Text("release.reason", r.Reason))
	}
	_, err := input.PolicyKeys("policy", in.Policy)
	return first(append(checks, err))
}

func required(field, value string) *input.Error {
	if strings.TrimSpace(value) == "" {
		return input.Wrong(field, value, "is required: it is kept in status, event and history")
	}
	return nil
}

// wholeRelease is a FenceRelease of one signal alone: who said who, and who said why, have not said both.
type wholeRelease FenceRelease

// UnmarshalJSON keeps nothing of what was decoded before, and nothing of what cannot be decoded.
func (r *wholeRelease) UnmarshalJSON(data []byte) error {
	var whole FenceRelease
	err := json.Unmarshal(data, &whole)
	if *r = (wholeRelease{}); err == nil {
		*r = wholeRelease(whole)
	}
	return err
}
