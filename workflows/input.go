package workflows

import (
	"encoding/json"
	"strconv"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file refuses inputs that make no sense, before anything is done. Whoever starts a workflow with Temporal's own
// CLI gets the same words as from lockkeeper's.
//
// Unknown fields are refused as well: a misspelt one would otherwise do nothing, in silence. So a field of an input is
// never removed as long as a history with it may have to be replayed, and a client with a new field needs workers that
// know it.

// UnmarshalJSON decodes an input strictly. What is wrong is kept, and the workflow fails with it in its own words; an
// error from here the SDK would wrap in three layers.
func (in *DrainNodeInput) UnmarshalJSON(data []byte) error {
	type plain DrainNodeInput
	var p plain
	p.invalid = input.Strict(data, &p)
	*in = DrainNodeInput(p)
	return nil
}

// UnmarshalJSON passes over fields that it does not know: the run before may have been of another version.
func (s *DrainState) UnmarshalJSON(data []byte) error {
	type plain DrainState
	return json.Unmarshal(data, (*plain)(s))
}

// validate completes the input of a drain, or says what is wrong with it.
func (d *drain) validate(ctx workflow.Context) error {
	in := &d.in
	if in.invalid != nil {
		return refuse(in.invalid)
	}
	in.Node = strings.TrimSpace(in.Node)
	checks := []*input.Error{
		input.NodeName("node", in.Node),
		input.Text("reason", in.Reason),
		input.PodSelector("eviction.podSelector", in.Eviction.PodSelector),
		gracePeriod(in.Eviction.GracePeriodSeconds),
		taintOf(in),
		theOne(ctx, jobs.DrainNode.ID(in.Node), "there is one drain of a node at a time, under this ID"),
	}
	_, err := input.PolicyKeys("policy", in.Policy)
	return first(append(checks, err))
}

// taintOf says what is wrong with the taint that a drain goes by.
func taintOf(in *DrainNodeInput) *input.Error {
	if in.Taint == "" {
		return nil
	}
	if wrong := input.TaintKey("taint", in.Taint); wrong != nil {
		return wrong
	}
	if in.Observe || in.UncordonAfterReboot || in.Eviction != (activities.EvictionOptions{}) {
		return input.Wrong("taint", in.Taint, "says what goes and when the drain ends; leave out observe, "+
			"uncordonAfterReboot and eviction")
	}
	return nil
}

// maxGracePeriod is a week, in seconds: the longest that a pod has any business to take to stop.
const maxGracePeriod = 7 * 24 * 60 * 60

func gracePeriod(seconds *int) *input.Error {
	if seconds != nil && (*seconds < 0 || *seconds > maxGracePeriod) {
		return input.Wrong("eviction.gracePeriodSeconds", strconv.Itoa(*seconds),
			"must be between 0 and "+strconv.Itoa(maxGracePeriod)+"; leave it out for each pod's own")
	}
	return nil
}

// UnmarshalJSON decodes an input strictly, but for the state: it is written by a keeper for the next one, which may be
// of another version, and not by people.
func (in *KeeperInput) UnmarshalJSON(data []byte) error {
	var p struct {
		Cluster storage.ClusterKey `json:"cluster"`
		State   json.RawMessage    `json:"state,omitempty"`
		// Which version writes the input says so; a keeper of this version runs whichever it was.
		Protocol int `json:"protocol,omitempty"`
	}
	*in = KeeperInput{invalid: input.Strict(data, &p)}
	if in.invalid == nil {
		in.Cluster, in.Protocol = p.Cluster, p.Protocol
		in.invalid = in.readState(p.State)
	}
	return nil
}

func (in *KeeperInput) readState(data json.RawMessage) *input.Error {
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, &in.State); err != nil {
		return input.Wrong("state", string(data), "is written by a keeper alone; leave it out: "+err.Error())
	}
	return nil
}

func (in *KeeperInput) validate(ctx workflow.Context) error {
	if in.invalid != nil {
		return refuse(in.invalid)
	}
	if in.Cluster.Namespace == "" || in.Cluster.Name == "" {
		return activities.Invalid("cluster", in.Cluster.String(), "namespace and name of a MaintenancePolicy are required")
	}
	return first([]*input.Error{
		input.Cluster("cluster", in.Cluster),
		theOne(ctx, KeeperID(in.Cluster), "there is one keeper of a storage cluster, under this ID"),
	})
}

// theOne makes sure that Temporal itself keeps a second workflow from doing the same: its ID is what tells.
func theOne(ctx workflow.Context, id, why string) *input.Error {
	if is := workflow.GetInfo(ctx).WorkflowExecution.ID; is != id {
		return input.Wrong("workflow ID", is, "must be "+id+": "+why)
	}
	return nil
}

func first(checks []*input.Error) error {
	for _, err := range checks {
		if err != nil {
			return refuse(err)
		}
	}
	return nil
}

func refuse(err *input.Error) error { return activities.Invalid(err.Field, err.Value, err.Allowed) }

// named tells whether a reference to a job can be one at all. Temporal refuses a signal to anything else, and then the
// whole workflow task with it: the keeper would never get past it.
func (r LeaseRef) named() bool {
	_, _, ok := jobs.Parse(r.WorkflowID)
	return ok && len(r.WorkflowID) <= maxID && len(r.RunID) <= maxID
}

// maxID is how long an ID may be that Temporal takes everywhere.
const maxID = 255
