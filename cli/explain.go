package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Explanation answers "may I drain this node now?", and if not: what is in the way, and what would have to change. Its
// field names are stable: scripts rely on them.
type Explanation struct {
	At   time.Time `json:"at"`
	Node string    `json:"node"`
	// MayDrain: a drain that began now would get what it needs at once.
	MayDrain bool                  `json:"mayDrain"`
	Policy   string                `json:"policy,omitempty"`
	Domain   storage.FailureDomain `json:"domain,omitzero"`
	Daemons  []string              `json:"daemons,omitempty"`
	State    activities.NodeState  `json:"state"`
	// Storage is the storage cluster in one line, as its keeper last saw it.
	Storage string `json:"storage,omitempty"`
	// InTheWay is empty if and only if MayDrain.
	InTheWay []Obstacle `json:"inTheWay"`
	// WouldWait: a drain that is started now begins by itself when all that is gone.
	WouldWait bool `json:"wouldWait,omitempty"`
	// Beware lists what does not keep a drain from beginning, but may surprise whoever begins one.
	Beware []Obstacle `json:"beware,omitempty"`
	// Others are the same for the other storage clusters that have daemons on the node. MayDrain and WouldWait of the
	// first speak for all.
	Others []Explanation `json:"others,omitempty"`
}

// Obstacle is one thing that is in the way.
type Obstacle struct {
	Name   string    `json:"name"` // a reason, as in the policy's status where it has one
	Since  time.Time `json:"since,omitzero"`
	What   string    `json:"what"`
	Change string    `json:"change"` // what would have to change, and who can change it
}

// Facts are all that an explanation is made of.
type Facts struct {
	Plan
	// Unguarded says why no policy cares for the node.
	Unguarded string
	// Holders are the jobs that hold the lease or are before this node in the queue, by workflow ID, as far as they
	// answered.
	Holders map[string]Job
	// ScaleDown sees the node through its removal; nil: none runs.
	ScaleDown *ScaleDown
	// Watcher is nil when the Lease could not be read; that it cannot is no news about the watcher.
	Watcher *kube.Watcher
}

// Explain finds out whether a node may be drained now. It changes nothing.
func (c *Command) Explain(ctx context.Context, node, policies, system string) (Explanation, error) {
	f, err := c.facts(ctx, node, policies, system)
	if err != nil {
		return Explanation{}, err
	}
	e := Explain(f)
	for _, other := range f.Others {
		o := Explain(c.factsOn(ctx, other, f.Watcher))
		begins := (e.MayDrain || e.WouldWait) && (o.MayDrain || o.WouldWait)
		e.MayDrain = e.MayDrain && o.MayDrain
		e.WouldWait = begins && !e.MayDrain
		e.Others = append(e.Others, o)
	}
	return e, nil
}

func (c *Command) facts(ctx context.Context, node, policies, system string) (Facts, error) {
	if err := input.NodeName("NODE", node); err != nil {
		return Facts{}, &ExitError{ExitUsage, err}
	}
	f := Facts{Plan: Plan{At: c.Now(), Input: workflows.DrainNodeInput{Node: node}}, Holders: map[string]Job{}}
	var err error
	if f.Node, err = c.Kubernetes.Node(ctx, node); err != nil {
		return Facts{}, fmt.Errorf("node %s: %w", node, err)
	}
	if policies == "" {
		if !f.Node.Found {
			return Facts{}, wrong("NODE", node,
				"no such node; `kubectl get nodes` lists them, and one that is deleted can be asked for with --policy")
		}
		keys, answer, err := c.Kubernetes.PoliciesOf(ctx, node)
		if err != nil {
			return Facts{}, fmt.Errorf("find the storage on %s: %w", node, err)
		}
		if !answer.OK {
			f.Unguarded = answer.Reason
			return f, nil
		}
		policies = joined(keys)
	}
	plan, err := c.Plan(ctx, workflows.DrainNodeInput{Node: node, Policy: policies})
	if err != nil {
		return Facts{}, err
	}
	f = c.factsOn(ctx, plan, nil)
	if w, err := c.Kubernetes.Watcher(ctx, system); err == nil {
		f.Watcher = &w
	}
	down, err := lookUp[ScaleDown](ctx, c.Temporal, jobs.ScaleDownNode.ID(node))
	if err == nil && down.State == Running {
		f.ScaleDown = &down
	}
	return f, nil
}

// factsOn are the facts about one storage cluster.
func (c *Command) factsOn(ctx context.Context, plan Plan, watcher *kube.Watcher) Facts {
	f := Facts{Plan: plan, Holders: map[string]Job{}, Watcher: watcher}
	if f.Now != nil {
		c.askHolders(ctx, &f)
	}
	return f
}

// askHolders asks those who are in the way what they wait for themselves. Who does not answer says nothing.
func (c *Command) askHolders(ctx context.Context, f *Facts) {
	for _, claim := range append(append([]string{}, workflowsOf(f.Now.Lease.Holders)...),
		workflowsOf(f.Now.Lease.Queue)...) {
		job, err := c.Temporal.Job(ctx, claim)
		switch {
		case err == nil && job.execution().State == Running:
			f.Holders[claim] = job
		case err != nil && !errors.Is(err, ErrNoJob):
			return // Temporal does not answer, and would not the next time either
		}
	}
}
