package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// UpdateOSDs starts the rollout of a CephOSD, "namespace/name", or makes the one that runs look again.
func (c *Command) UpdateOSDs(ctx context.Context, cephOSD string, o DrainOptions) error {
	key, refused := input.PolicyKey("CEPHOSD", cephOSD)
	if refused != nil {
		return &ExitError{ExitUsage, wrong("CEPHOSD", cephOSD, "must be NAMESPACE/NAME of a CephOSD, or a name together with --namespace")}
	}
	_, err := c.Kubernetes.CephOSD(ctx, key.Namespace, key.Name)
	switch {
	case errors.Is(err, activities.ErrNotFound):
		return wrong("CEPHOSD", cephOSD, "no such CephOSD; `kubectl get cephosds -A` lists them")
	case err != nil:
		fmt.Fprintf(c.Err, "warning: not checked beforehand: %v\n", err)
	}
	if err := c.Temporal.StartUpdate(ctx, key.Namespace, key.Name); err != nil {
		return err
	}
	return c.begun(ctx, workflows.UpdateOSDsID(key.Namespace, key.Name), o)
}

// RestartOSDs starts the restart of OSDs that Deployments run.
func (c *Command) RestartOSDs(ctx context.Context, in workflows.RestartOSDsInput, o DrainOptions) error {
	if err := checkRestart(in); err != nil {
		return &ExitError{ExitUsage, err}
	}
	id := workflows.RestartOSDsID(in.Namespace)
	if err := c.Temporal.StartRestart(ctx, in); errors.Is(err, ErrRuns) {
		r, err := c.Temporal.Rollout(ctx, id)
		if err != nil {
			return fmt.Errorf("%s runs already; more cannot be said: %w", id, err)
		}
		return fmt.Errorf("%s\nfollow it with `lockkeeper status %s -w`", r.Describe(c.Now()), id)
	} else if err != nil {
		return err
	}
	return c.begun(ctx, id, o)
}

// checkRestart finds what is wrong while the person is still looking. The job checks it again.
func checkRestart(in workflows.RestartOSDsInput) error {
	switch {
	case !isNamespace(in.Namespace):
		return wrong("--namespace", in.Namespace, "must be the name of a namespace")
	case in.MaxParallel < 0 || in.MaxParallel > mostParallel:
		return wrong("--max-parallel", strconv.Itoa(in.MaxParallel), fmt.Sprintf("must be between 0 (what the update domain has) and %d", mostParallel))
	case !slices.ContainsFunc(cephv1alpha1.UpdateDomains, func(d cephv1alpha1.UpdateDomain) bool { return strings.EqualFold(string(d), in.UpdateDomain) }):
		var all []string
		for _, d := range cephv1alpha1.UpdateDomains {
			all = append(all, string(d))
		}
		return wrong("--update-domain", in.UpdateDomain, "must be one of "+strings.Join(all, ", "))
	}
	for _, err := range []*inputError{input.PodSelector("--selector", in.Selector), input.Text("--reason", in.Reason)} {
		if err != nil {
			return err
		}
	}
	return nil
}

const mostParallel = 1000

// begun tells how a rollout that was started gets on.
func (c *Command) begun(ctx context.Context, id string, o DrainOptions) error {
	if o.Follow || o.Wait {
		fmt.Fprintf(c.Out, "%s started\n", id)
		return c.stayWithRollout(ctx, id, o)
	}
	r, err := c.firstBatch(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, r.Describe(c.Now()))
	if r.State == Running {
		fmt.Fprintf(c.Out, "follow it:  lockkeeper status %[1]s -w\nhold it:    lockkeeper pause %[1]s\nstop it:    lockkeeper abort %[1]s\n", id)
	}
	return nil
}

// firstBatch waits until the rollout has looked at the OSDs, and reports one that failed to.
func (c *Command) firstBatch(ctx context.Context, id string) (Rollout, error) {
	limited, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	tick := time.NewTicker(firstLookEvery)
	defer tick.Stop()
	last := Rollout{WorkflowID: id, State: Running, Started: c.Now(), Silent: "it has not said anything yet"}
	for {
		r, err := c.Temporal.Rollout(limited, id)
		if err == nil {
			last = r
		}
		switch {
		case err != nil:
		case r.State != Running && !r.Succeeded():
			return r, errors.New(r.Describe(c.Now()))
		case r.State != Running, r.Status != nil && r.Status.Phase != "" && r.Status.Phase != workflows.PhaseSurvey:
			return r, nil
		}
		select {
		case <-limited.Done():
			return last, ctx.Err()
		case <-tick.C:
		}
	}
}

// RolloutRuns tells whether a rollout runs, as far as Temporal can be asked.
func (c *Command) RolloutRuns(ctx context.Context, id string) bool {
	r, err := c.Temporal.Rollout(ctx, id)
	return err == nil && r.State == Running
}

// FollowRollout prints what happens to a rollout until it ends.
func (c *Command) FollowRollout(ctx context.Context, id string) error {
	return c.stayWithRollout(ctx, id, DrainOptions{Follow: true})
}

// stayWithRollout remains with a rollout until it ends, and reports how.
func (c *Command) stayWithRollout(ctx context.Context, id string, o DrainOptions) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var f rolloutFollower
	var last Rollout
	trouble := ""
	for {
		now, err := c.Temporal.Rollout(ctx, id)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrNoJob):
			return fmt.Errorf("%s: %w", id, err)
		case err != nil && err.Error() != trouble:
			trouble = err.Error()
			fmt.Fprintf(c.Err, "%s  %s; trying again\n", clock(c.Now()), trouble)
		case err == nil:
			trouble, last = "", now
			if o.Follow {
				c.print(f.news(c.Now(), last))
			}
			if last.State != Running {
				return c.rolloutEnded(last)
			}
		}
		select {
		case <-ctx.Done():
			s := fmt.Sprintf("no longer waiting; %s goes on", id)
			if last.State == Running {
				s = "no longer waiting; " + last.Describe(c.Now())
			}
			return &ExitError{ExitStillRuns, errors.New(s)}
		case <-tick.C:
		}
	}
}

func (c *Command) rolloutEnded(r Rollout) error {
	if !r.Succeeded() {
		return &ExitError{ExitNotDone, errors.New(r.Describe(c.Now()))}
	}
	fmt.Fprintf(c.Out, "%s  Done: %s\n", clock(r.Ended), r.described())
	return nil
}

// rolloutFollower turns looks at a rollout into lines, one for each thing that is new.
type rolloutFollower struct{ progress, batch, halt, waits, trouble string }

func (f *rolloutFollower) news(now time.Time, r Rollout) (out []string) {
	if r.State != Running {
		return nil
	}
	tell := func(was *string, is, format string) {
		if is != *was && is != "" {
			out = append(out, clock(now)+"  "+fmt.Sprintf(format, is))
		}
		*was = is
	}
	tell(&f.trouble, r.Silent, "%s")
	if r.Status == nil {
		return out
	}
	tell(&f.progress, r.Progress(), "%s OSDs up to date")
	tell(&f.batch, r.Batch(), "replaces %s")
	halt := ""
	if h := r.Status.Halted; h != nil {
		halt = h.Reason
	}
	tell(&f.halt, halt, "HALTED: %s\n          nothing further goes down; it goes on by itself when that is mended, or with `lockkeeper skip`")
	if halt != "" {
		return out
	}
	waits := ""
	if w := r.WaitsFor(); w != "" {
		waits = r.Phase() + ": waits for " + w
	}
	tell(&f.waits, waits, "    %s")
	return out
}
