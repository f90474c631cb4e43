package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is what people ask about fencing: how it stands, to release a node by hand, and to hold it again.

// FenceStatus answers `fence status`.
type FenceStatus struct {
	Policies []FencePolicy `json:"policies"`
	Fences   []Fence       `json:"fences"`
	// TemporalProblem says why the jobs are not known.
	TemporalProblem string `json:"temporalProblem,omitempty"`
}

// FencePolicy is a policy that names what fences nodes, and what its keeper says of that.
type FencePolicy struct {
	Namespace string                  `json:"namespace"`
	Name      string                  `json:"name"`
	Spec      v1alpha1.FencingSpec    `json:"spec"`
	Status    *v1alpha1.FencingStatus `json:"status,omitempty"`
}

// FenceStatus gathers what is held, what is to be fenced, and which jobs see to it. node "": all.
func (c *Command) FenceStatus(ctx context.Context, namespace, node string) error {
	s, err := c.Status(ctx, namespace)
	if err != nil {
		return err
	}
	policies, err := c.Kubernetes.MaintenancePolicies(ctx, namespace)
	if err != nil {
		return fmt.Errorf("list the policies: %w", err)
	}
	out := FenceStatus{Policies: []FencePolicy{}, Fences: []Fence{}, TemporalProblem: s.TemporalProblem}
	for _, f := range s.Fences {
		if node == "" || f.Node == node {
			out.Fences = append(out.Fences, f)
		}
	}
	for i := range policies {
		p := &policies[i]
		if api := p.Spec.Fencing.API; p.Status.Fencing != nil || api != "" && api != v1alpha1.FencingNone {
			out.Policies = append(out.Policies, FencePolicy{p.Namespace, p.Name, p.Spec.Fencing, p.Status.Fencing})
		}
	}
	if c.Output != "" {
		return Encode(c.Out, out, c.Output)
	}
	if len(out.Policies) == 0 {
		fmt.Fprintln(c.Out, "No MaintenancePolicy names what fences nodes (spec.fencing.api), so nothing is held back.")
	}
	for _, p := range out.Policies {
		if p.Status == nil {
			fmt.Fprintf(c.Out, "%s/%s: spec.fencing.api is %s, and its keeper has not looked yet\n", p.Namespace, p.Name,
				p.Spec.API)
		}
	}
	s.writeFencingOf(c.Out, node)
	s.Fences = out.Fences
	s.writeFences(c.Out)
	return nil
}

// FenceReleaseInput is a person's word that a node's Machine is to go whatever is known.
type FenceReleaseInput struct {
	Node, Policy, By, Reason string
	Plan                     bool
	StayOptions
}

// FencePlan is what a release by hand would pass over.
type FencePlan struct {
	Node string `json:"node"`
	// Held are the policies that hold its Machine, and why.
	Held []FenceHeld `json:"held"`
	// Waits: another Machine is released, which nobody can pass over.
	Waits string `json:"waits,omitempty"`
}

// FenceHeld is why one policy holds a node.
type FenceHeld struct {
	Policy  string `json:"policy"`
	Stage   string `json:"stage,omitempty"` // "": nobody asked for the node yet
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// FenceRelease starts the fence of a node with a person's word, or tells it to the one that runs.
func (c *Command) FenceRelease(ctx context.Context, in FenceReleaseInput) error {
	if wrong := input.NodeName("NODE", in.Node); wrong != nil {
		return &ExitError{ExitUsage, wrong}
	}
	if _, wrong := input.PolicyKeys("--policy", in.Policy); wrong != nil {
		return &ExitError{ExitUsage, wrong}
	}
	if strings.TrimSpace(in.Reason) == "" && !in.Plan {
		return &ExitError{ExitUsage, wrong("--reason", in.Reason, "is required: who, when and why are kept in status, "+
			"event and history")}
	}
	plan, err := c.fencePlan(ctx, in)
	if err != nil {
		return err
	}
	if in.Plan {
		return c.printFencePlan(plan)
	}
	word := workflows.FenceRelease{By: in.By, Reason: in.Reason}
	id := jobs.FenceNode.ID(in.Node)
	err = c.Temporal.StartFence(ctx, workflows.FenceNodeInput{
		Node: in.Node, Policy: in.Policy, Reason: "released by hand: " + in.Reason, Release: &word,
	})
	if errors.Is(err, ErrRuns) {
		err = c.Temporal.Signal(ctx, id, workflows.SignalFenceRelease, word)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "%s releases the Machine of %s whatever is known, as soon as no other one is released.\n", in.By,
		in.Node)
	if in.Follow || in.Wait {
		return c.stay(ctx, id, in.StayOptions, neverStands)
	}
	fmt.Fprintf(c.Out, "follow it:  lockkeeper status %[1]s -w\nend it:     lockkeeper fence hold %[2]s\n", id, in.Node)
	return nil
}

func (c *Command) fencePlan(ctx context.Context, in FenceReleaseInput) (plan FencePlan, err error) {
	plan = FencePlan{Node: in.Node, Held: []FenceHeld{}}
	keys, err := c.whoHolds(ctx, in)
	if err != nil {
		return plan, err
	}
	for _, key := range keys {
		p, err := c.Kubernetes.MaintenancePolicy(ctx, key)
		if err != nil {
			return plan, err
		}
		if api := p.Spec.Fencing.API; api == "" || api == v1alpha1.FencingNone {
			continue
		}
		held := FenceHeld{Policy: key.String()}
		if f := p.Status.Fencing; f != nil {
			for _, n := range f.Nodes {
				switch {
				case n.Node == in.Node:
					held.Stage, held.Reason, held.Message = n.Stage, n.Reason, n.Message
				case n.Stage == "Released":
					plan.Waits = fmt.Sprintf("the Machine of %s is released, and one goes at a time", n.Node)
				}
			}
		}
		plan.Held = append(plan.Held, held)
	}
	if len(plan.Held) == 0 {
		return plan, wrong("NODE", in.Node, "no MaintenancePolicy with storage on it names what fences nodes "+
			"(spec.fencing.api), so nothing holds its Machine")
	}
	return plan, nil
}

// whoHolds are the policies whose word a release needs: those that are named, or have OSDs on the node, or were asked
// to release it for something else, such as a mon.
func (c *Command) whoHolds(ctx context.Context, in FenceReleaseInput) ([]storage.ClusterKey, error) {
	if named, _ := input.PolicyKeys("--policy", in.Policy); len(named) > 0 {
		return named, nil
	}
	keys, answer, err := c.Kubernetes.PoliciesOf(ctx, in.Node)
	if err != nil {
		return nil, fmt.Errorf("find the storage on %s: %w", in.Node, err)
	}
	policies, err := c.Kubernetes.MaintenancePolicies(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list the policies: %w", err)
	}
	for i := range policies {
		p := &policies[i]
		key := storage.ClusterKey{Namespace: p.Namespace, Name: p.Name}
		asked := p.Status.Fencing != nil && slices.ContainsFunc(p.Status.Fencing.Nodes,
			func(n v1alpha1.FencingNode) bool { return n.Node == in.Node })
		if asked && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, wrong("NODE", in.Node, answer.Reason+"; a Machine that is held for a mon is released by --policy")
	}
	return keys, nil
}

func (c *Command) printFencePlan(plan FencePlan) error {
	if c.Output != "" {
		return Encode(c.Out, plan, c.Output)
	}
	fmt.Fprintf(c.Out, "A release of %s by hand:\n", plan.Node)
	for i, h := range plan.Held {
		why := "nobody asked for its release yet; lockkeeper explain " + plan.Node + " tells what a drain would wait for"
		if h.Stage != "" {
			why = h.Stage + ", " + h.Reason + ": " + h.Message
		}
		fmt.Fprintf(c.Out, "  %d. policy %s lets its Machine go (now: %s)\n", i+1, h.Policy, why)
	}
	if plan.Waits != "" {
		fmt.Fprintf(c.Out, "It waits for one thing that nobody can pass over: %s.\n", plan.Waits)
	}
	fmt.Fprintln(c.Out,
		"Whoever fences nodes may then delete the Machine or reboot the node at once. That cannot be taken "+
			"back. Nothing was changed.")
	return nil
}

// HoldPlan is what holding a node's Machine again would end.
type HoldPlan struct {
	Node string `json:"node"`
	Ends Job    `json:"ends"` // null: no fence of it runs
}

// FenceHold ends the fence of a node. Its Machine is held again, unless it is gone.
func (c *Command) FenceHold(ctx context.Context, node string, plan bool) error {
	if wrong := input.NodeName("NODE", node); wrong != nil {
		return &ExitError{ExitUsage, wrong}
	}
	id := jobs.FenceNode.ID(node)
	if !plan {
		return c.signal(ctx, id, jobs.SignalAbort, "")
	}
	job, err := c.Temporal.Job(ctx, id)
	if errors.Is(err, ErrNoJob) || err == nil && job.execution().State != Running {
		job, err = nil, nil
	}
	switch {
	case err != nil:
		return err
	case c.Output != "":
		return Encode(c.Out, HoldPlan{Node: node, Ends: job}, c.Output)
	case job == nil:
		fmt.Fprintf(c.Out, "No fence of %s runs: if storage daemons run on it, its Machine is held already.\n", node)
	default:
		fmt.Fprintf(c.Out, "%s\nIt would end, and the Machine be held again. Nothing was changed.\n", job.Describe(c.Now()))
	}
	return nil
}
