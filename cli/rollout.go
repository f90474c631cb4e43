package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// UpdateOSDs starts the rollout of a CephOSD, "namespace/name", or makes the one that runs look again.
func (c *Command) UpdateOSDs(ctx context.Context, cephOSD string, o StayOptions) error {
	key, refused := input.PolicyKey("CEPHOSD", cephOSD)
	if refused != nil {
		return &ExitError{
			ExitUsage,
			wrong("CEPHOSD", cephOSD, "must be NAMESPACE/NAME of a CephOSD, or a name together with --namespace"),
		}
	}
	_, err := c.Kubernetes.CephOSD(ctx, key.Namespace, key.Name)
	switch {
	case errors.Is(err, activities.ErrNotFound):
		return wrong("CEPHOSD", cephOSD, "no such CephOSD; `kubectl get cephosds -A` lists them")
	case err != nil:
		fmt.Fprintf(c.Err, "warning: not checked beforehand: %v\n", err)
	}
	id := jobs.UpdateOSDs.ID(key.Namespace, key.Name)
	// What it has halted for already is no news: it is told to look again.
	before, err := lookUp[Rollout](ctx, c.Temporal, id)
	if err != nil && !errors.Is(err, ErrNoJob) {
		return err
	}
	if err := c.Temporal.StartUpdate(ctx, key.Namespace, key.Name); err != nil {
		return err
	}
	if before.State == Running {
		fmt.Fprintf(c.Out, "%s runs since %s; told to look again\n", id, when(before.Started, c.Now()))
	} else {
		fmt.Fprintf(c.Out, "%s started\n", id)
	}
	return c.begun(ctx, before, id, o)
}

// RestartOSDs starts the restart of OSDs that Deployments run.
func (c *Command) RestartOSDs(ctx context.Context, in workflows.RestartOSDsInput, o StayOptions) error {
	if err := checkRestart(in); err != nil {
		return &ExitError{ExitUsage, err}
	}
	if in.Policy != "" {
		_, err := c.Kubernetes.MaintenancePolicy(ctx, storage.ClusterKey{Namespace: in.Namespace, Name: in.Policy})
		switch {
		case errors.Is(err, activities.ErrNotFound):
			return wrong("--policy", in.Policy,
				"no such MaintenancePolicy in namespace "+in.Namespace+"; `kubectl get maintenancepolicies -A` lists them")
		case err != nil:
			fmt.Fprintf(c.Err, "warning: not checked beforehand: %v\n", err)
		}
	}
	id := jobs.RestartOSDs.ID(in.Namespace)
	if err := c.Temporal.StartRestart(ctx, in); errors.Is(err, ErrRuns) {
		return c.runsAlready(ctx, id, id)
	} else if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s started\n", id)
	return c.begun(ctx, Rollout{}, id, o)
}

// checkRestart finds what is wrong while the person is still looking. The job checks it again.
func checkRestart(in workflows.RestartOSDsInput) error {
	switch {
	case in.Namespace == "" || !mayExist(jobs.Target{Namespace: in.Namespace}):
		return wrong("--namespace", in.Namespace, "must be the name of a namespace")
	case in.MaxParallel < 0 || in.MaxParallel > mostParallel:
		return wrong("--max-parallel", strconv.Itoa(in.MaxParallel),
			fmt.Sprintf("must be between 0 (what the update domain has) and %d", mostParallel))
	case !cephv1alpha1.UpdateDomain(in.UpdateDomain).Valid():
		return wrong("--update-domain", in.UpdateDomain,
			"must be OSD, Host, or another type of the cluster's CRUSH map, such as Rack or Zone")
	}
	if d := in.ProgressDeadline; d != 0 && (d < leastDeadline || d > mostDeadline) {
		return wrong("--progress-deadline", d.String(), fmt.Sprintf("must be between %s and %s, or 0 for %s", leastDeadline,
			mostDeadline, activities.DefaultProgressDeadline))
	}
	if _, refused := input.PolicyKey("", in.Namespace+"/"+in.Policy); in.Policy != "" && refused != nil {
		return wrong("--policy", in.Policy, "must be the name of a MaintenancePolicy in namespace "+in.Namespace)
	}
	for _, err := range []*inputError{
		input.PodSelector("--selector", in.Selector), input.Text("--reason", in.Reason),
		input.Image("--image", in.Image), input.VersionOfImage("--ceph-version", in.CephVersion, in.Image),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

const mostParallel = 1000

// How long OSDs may take to serve again: as a CephOSD's spec.progressDeadline.
const (
	leastDeadline = 10 * time.Second
	mostDeadline  = 24 * time.Hour
)

// begun tells how a rollout that was started, or told to look again, gets on; before is how it was until then.
func (c *Command) begun(ctx context.Context, before Rollout, id string, o StayOptions) error {
	if o.Follow || o.Wait {
		return c.stay(ctx, id, o, func(now Job) error { return c.standstill(before, now.(Rollout), o) })
	}
	last, err := c.begin(ctx, id, func(now Job) bool {
		r, _ := now.(Rollout)
		return r.Status != nil && r.Status.Phase != "" && r.Status.Phase != workflows.PhaseSurvey && !r.looksAs(before)
	})
	r, seen := last.(Rollout)
	switch {
	case err != nil:
		return err
	case !seen:
		fmt.Fprintln(c.Err, "warning: it has not said anything yet")
	case r.State != Running && !r.Succeeded():
		return errors.New(r.Describe(c.Now()))
	default:
		fmt.Fprintln(c.Out, r.Describe(c.Now()))
	}
	if !seen || r.State == Running {
		fmt.Fprintf(c.Out, "follow it:  lockkeeper status %[1]s -w\nhold it:    lockkeeper pause %[1]s\nstop it:    "+
			"lockkeeper abort %[1]s\n", id)
	}
	return nil
}

// standstill is why a rollout goes no further by itself: it has halted, or its spec makes no sense. Nobody should wait
// for that without knowing. What it stood at before it was told to look again counts only after it has looked.
func (c *Command) standstill(before, now Rollout, o StayOptions) error {
	if !now.stands() || now.looksAs(before) {
		return nil
	}
	lines := []string{now.Describe(c.Now())}
	if o.Follow { // which has told the rest
		return &ExitError{ExitHalted, errors.New(lines[0])}
	}
	for _, e := range now.Status.Refused {
		lines = append(lines, "refused: "+e.Error())
	}
	for _, w := range now.NotBack() {
		lines = append(lines, "not back: "+w)
	}
	lines = append(lines, now.waysOut()...)
	return &ExitError{ExitHalted, errors.New(strings.Join(lines, "\n"))}
}

// rolloutFollower turns looks at a rollout into lines.
type rolloutFollower struct{ progress, batch, halt, waits, notBack, approval, ways, trouble string }

func (f *rolloutFollower) news(_ context.Context, c *Command, j Job) (out []string) {
	r, _ := j.(Rollout)
	now := c.Now()
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
	tell(&f.halt, halt, "HALTED: %s")
	waits, approval, ways := "", "", ""
	if w := r.waitsFor(); w != "" && halt == "" {
		waits = r.Phase() + ": waits for " + w
	}
	if r.awaitsApproval() {
		approval = howToApprove(r.WorkflowID)
	}
	if r.stands() {
		ways = strings.Join(r.waysOut(), "\n              ")
	}
	tell(&f.waits, waits, "    %s")
	tell(&f.approval, approval, "    %s")
	tell(&f.notBack, some(r.NotBack(), mostTroubles), "    not back: %s")
	tell(&f.ways, ways, "    %s")
	return out
}
