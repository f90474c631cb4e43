package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Command is what every subcommand works with.
type Command struct {
	Kubernetes Kubernetes
	Temporal   Temporal
	// Installations are those of Longhorn.
	Installations Installations
	Out           io.Writer // answers
	Err           io.Writer // what qualifies them
	Now           func() time.Time
	// WorkerNamespace is where lockkeeper's worker runs, of whose rights a plan speaks; "": it does not.
	WorkerNamespace string
	Output          string // json or yaml: how a job is printed that took a signal; "": in words
}

// Drain starts the drain of a node.
func (c *Command) Drain(ctx context.Context, in workflows.DrainNodeInput, o StayOptions) error {
	if err := c.check(ctx, &in); err != nil {
		return err
	}
	if err := c.Temporal.StartDrain(ctx, in); errors.Is(err, ErrRuns) {
		return c.runsAlready(ctx, jobs.DrainNode.ID(in.Node), in.Node)
	} else if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s started\n", jobs.DrainNode.ID(in.Node))
	if o.Follow || o.Wait {
		return c.stay(ctx, jobs.DrainNode.ID(in.Node), o, neverStands)
	}
	if err := c.firstSteps(ctx, in.Node); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "follow it:  lockkeeper status %[1]s -w\nhold it:    lockkeeper pause %[1]s\nundo it:    "+
		"lockkeeper abort %[1]s\n", in.Node)
	return nil
}

// check finds what is wrong with the input while the person is still looking. The job checks it again. What cannot be
// checked from here is said, and left to the job.
func (c *Command) check(ctx context.Context, in *workflows.DrainNodeInput) error {
	for _, err := range []*inputError{
		input.NodeName("NODE", in.Node), input.PodSelector("--pod-selector", in.Eviction.PodSelector),
		input.Text("--reason", in.Reason),
	} {
		if err != nil {
			return &ExitError{ExitUsage, err}
		}
	}
	if _, err := policyKeys(in.Policy); err != nil {
		return &ExitError{ExitUsage, err}
	}
	keys, err := c.policiesFor(ctx, in.Node, in.Policy)
	var wrong *inputError
	switch {
	case errors.As(err, &wrong):
		return err
	case err != nil:
		fmt.Fprintf(c.Err, "warning: not checked beforehand: %v\n", err)
	default:
		in.Policy = joined(keys)
	}
	return nil
}

func joined(keys []storage.ClusterKey) string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = key.String()
	}
	return strings.Join(names, ",")
}

// policiesFor finds the policies whose storage the node hosts. An inputError says what is wrong with the names; every
// other error means that Kubernetes did not answer.
func (c *Command) policiesFor(ctx context.Context, node, policies string) ([]storage.ClusterKey, error) {
	n, err := c.Kubernetes.Node(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	keys, err := policyKeys(policies)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if _, err := c.Kubernetes.MaintenancePolicy(ctx, key); errors.Is(err, activities.ErrNotFound) {
			return nil, wrong("--policy", key.String(),
				"no such MaintenancePolicy; `kubectl get maintenancepolicies -A` lists them")
		} else if err != nil {
			return nil, fmt.Errorf("MaintenancePolicy %s: %w", key, err)
		}
	}
	if len(keys) > 0 {
		return keys, nil
	}
	if !n.Found {
		return nil,
			wrong("node", node, "no such node; `kubectl get nodes` lists them, and one that is deleted can be drained with "+
				"--policy")
	}
	keys, answer, err := c.Kubernetes.PoliciesOf(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("find the storage on %s: %w", node, err)
	}
	if !answer.OK {
		return nil, wrong("node", node, answer.Reason)
	}
	return keys, nil
}

type inputError = input.Error

func wrong(field, value, allowed string) error { return input.Wrong(field, value, allowed) }

// policyKeys reads the names of policies; "": none.
func policyKeys(policies string) ([]storage.ClusterKey, error) {
	for policy := range strings.SplitSeq(policies, ",") {
		if ns, name, ok := strings.Cut(policy, "/"); policies != "" && (!ok || ns == "" || strings.Contains(name, "/")) {
			return nil, wrong("--policy", policy, "must be namespace/name, or a name together with --namespace")
		}
	}
	keys, err := input.PolicyKeys("--policy", policies)
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// runsAlready says how a job is that cannot be started; name is what people call it.
func (c *Command) runsAlready(ctx context.Context, id, name string) error {
	job, err := c.Temporal.Job(ctx, id)
	if err != nil {
		return fmt.Errorf("%s runs already; more cannot be said: %w", id, err)
	}
	what := job.Describe(c.Now())
	if d, _ := job.(Drain); d.Status != nil && d.Status.Observe {
		what += "\nit only observes: somebody drains the node from outside, and lockkeeper guards it"
	}
	return fmt.Errorf("%s\nfollow it with `lockkeeper status %s -w`", what, name)
}

// firstSteps waits until the job has resolved its node, and reports one that failed to.
func (c *Command) firstSteps(ctx context.Context, node string) error {
	last, err := c.begin(ctx, jobs.DrainNode.ID(node), func(now Job) bool {
		d, _ := now.(Drain)
		return d.Status != nil && d.Status.Step > 1
	})
	job, _ := last.(Drain)
	switch {
	case err != nil:
		return err
	case job.State != "" && job.State != Running && !job.Succeeded():
		return errors.New(job.Describe(c.Now()))
	case job.State != "" && job.State != Running, job.Status != nil && job.Status.Step > 1:
		fmt.Fprintf(c.Out, "%s\n", job.Describe(c.Now()))
	case job.WaitsFor() != "":
		fmt.Fprintf(c.Err, "warning: it has not got far yet: %s\n", job.WaitsFor())
	}
	return nil
}
