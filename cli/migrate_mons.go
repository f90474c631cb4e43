package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// MigrateMons moves the mons of a CephMon, "namespace/name", that are not as its spec says, and removes superfluous
// ones. The job that runs already is told so.
func (c *Command) MigrateMons(ctx context.Context, cephMon string, mode monplan.Mode, o StayOptions) error {
	key, err := cephMonKey(cephMon)
	if err != nil {
		return err
	}
	if err := c.checkCephMon(ctx, key); err != nil {
		return err
	}
	id := jobs.MigrateMons.ID(key.Namespace, key.Name)
	if err := c.Temporal.StartMigration(ctx, key, mode); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s: asked to migrate\n", id)
	if o.Follow || o.Wait {
		return c.stay(ctx, id, o, neverStands)
	}
	last, err := c.begin(ctx, id, func(now Job) bool {
		m, _ := now.(Migration)
		return m.Status != nil && m.Status.Survey.Found
	})
	if err != nil || last == nil {
		return err
	}
	if last.execution().State != Running {
		return c.ended(last)
	}
	fmt.Fprintln(c.Out, last.Describe(c.Now()))
	return nil
}

func cephMonKey(cephMon string) (activities.MonsRef, error) {
	key, refused := input.PolicyKey("CEPHMON", cephMon)
	if refused != nil {
		return activities.MonsRef{}, &ExitError{
			ExitUsage,
			wrong("CEPHMON", cephMon, "must be NAMESPACE/NAME of a CephMon, or a name together with --namespace"),
		}
	}
	return activities.MonsRef{Namespace: key.Namespace, Name: key.Name}, nil
}

func (c *Command) checkCephMon(ctx context.Context, ref activities.MonsRef) error {
	_, err := c.Kubernetes.CephMon(ctx, ref.Namespace, ref.Name)
	switch {
	case errors.Is(err, activities.ErrNotFound):
		return wrong("CEPHMON", ref.String(), "no such CephMon; `kubectl get cephmons -A` lists them")
	case err != nil:
		fmt.Fprintf(c.Err, "warning: not checked beforehand: %v\n", err)
	}
	return nil
}

// MigrationPlan is what `migrate-mons` would do.
type MigrationPlan struct {
	CephMon string `json:"cephMon"`
	activities.MonPlan
}

// PlanMigration foresees a migration; a worker has to look, since only workers can ask Ceph. It changes nothing.
func (c *Command) PlanMigration(ctx context.Context, cephMon string, mode monplan.Mode) (MigrationPlan, error) {
	key, err := cephMonKey(cephMon)
	if err != nil {
		return MigrationPlan{}, err
	}
	if err := c.checkCephMon(ctx, key); err != nil {
		return MigrationPlan{}, err
	}
	plan, err := c.Temporal.PlanMigration(ctx, workflows.PlanMonsInput{CephMon: key.String(), OneLess: mode.OneLess})
	return MigrationPlan{CephMon: key.String(), MonPlan: plan}, err
}

// Write puts the plan into words: the mons as they are, then each step with its acts and what it costs.
func (p MigrationPlan) Write(w io.Writer) {
	var rows [][]string
	for _, m := range p.Mons {
		quorum, spec := "in quorum", "yes"
		if !m.InQuorum {
			quorum = "out"
		}
		if m.Different != "" {
			spec = "no: " + m.Different
		}
		rows = append(rows, []string{"mon." + m.Name, m.Node, m.Zone, m.Storage, quorum, spec})
	}
	table(w, []string{"MON", "NODE", "ZONE", "STORAGE", "QUORUM", "AS SPEC"}, rows)
	for _, warning := range p.Survey.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", warning)
	}
	for _, r := range p.Survey.Refused {
		fmt.Fprintf(w, "\nrefused: %s\n", r.Error())
	}
	if p.Elsewhere != "" {
		fmt.Fprintf(w, "\nrefused: %s looks after these mons: lockkeeper stands aside, and changes none of them\n",
			p.Elsewhere)
	}
	if len(p.Survey.Refused) > 0 {
		return
	}
	if p.Elsewhere != "" {
		fmt.Fprintln(w, "\nWithout it this would be done:")
	}
	for i, s := range p.Course {
		fmt.Fprintf(w, "\n%d. ", i+1)
		writeStep(w, s)
	}
}

// verdicts are the words for how a course ends.
var verdicts = map[monplan.Verdict]string{
	monplan.Done: "Nothing is left to do", monplan.Wait: "It would wait", monplan.Refuse: "It would go no further",
}

func writeStep(w io.Writer, s monplan.Step) {
	if s.Verdict != monplan.Move {
		fmt.Fprint(w, verdicts[s.Verdict])
		if s.Why != "" {
			fmt.Fprintf(w, ": %s", s.Why)
		}
		fmt.Fprintln(w)
		return
	}
	m := Migration{Execution: Execution{State: Running}, Status: &workflows.MigrateMonsStatus{}}
	m.Status.Survey.Step = s
	fmt.Fprintf(w, "%s: %s\n", m.Work(), s.Why)
	var acts []string
	for _, a := range s.Acts {
		acts = append(acts, a.String())
	}
	fmt.Fprintf(w, "   %s\n", strings.Join(acts, " → "))
	if s.Kind() == monplan.Migrate || s.Kind() == monplan.OneLess || s.Kind() == monplan.Remove {
		fmt.Fprintf(w, "   under the lease of the storage cluster, as soon as mon.%s is about to be taken away\n", s.Work.Old)
	}
	if s.Risk != "" {
		fmt.Fprintf(w, "   risk: %s\n", s.Risk)
	}
}

// CleanMons deletes the volume claims that mons have left behind, once all mons are in quorum and nothing is under way.
// Paths on nodes it lists, since only a person can get at them; forget takes them off the list.
func (c *Command) CleanMons(ctx context.Context, cephMon string, yes, forget bool) error {
	key, err := cephMonKey(cephMon)
	if err != nil {
		return err
	}
	mon, err := c.Kubernetes.CephMon(ctx, key.Namespace, key.Name)
	if errors.Is(err, activities.ErrNotFound) {
		return wrong("CEPHMON", cephMon, "no such CephMon; `kubectl get cephmons -A` lists them")
	}
	if err != nil {
		return err
	}
	if why := unhealthy(mon); why != "" {
		return &ExitError{ExitNotDone, fmt.Errorf("nothing is deleted: %s", why)}
	}
	if len(mon.Status.Left) == 0 {
		fmt.Fprintln(c.Out, "no mon has left anything behind")
		return nil
	}
	if yes { // the status may be of yesterday: it is written only when a job looks
		if why := c.unhealthyNow(ctx, key); why != "" {
			return &ExitError{ExitNotDone, fmt.Errorf("nothing is deleted: %s", why)}
		}
	}
	var kept []v1alpha1.MonStorageLeft
	for _, l := range mon.Status.Left {
		switch {
		case l.Claim != "" && !yes:
			fmt.Fprintf(c.Out, "PersistentVolumeClaim %s of mon.%s would be deleted: say --yes\n", l.Claim, l.Mon)
			kept = append(kept, l)
		case l.Claim != "":
			if err := c.Kubernetes.DeleteMonClaim(ctx, key.Namespace, l.Claim, l.Mon); err != nil {
				return fmt.Errorf("PersistentVolumeClaim %s: %w", l.Claim, err)
			}
			fmt.Fprintf(c.Out, "PersistentVolumeClaim %s of mon.%s deleted\n", l.Claim, l.Mon)
		case !forget:
			fmt.Fprintf(c.Out, "mon.%s has left %s on %s: delete it there, and say --forget-paths\n", l.Mon, l.Path, l.Node)
			kept = append(kept, l)
		default:
			fmt.Fprintf(c.Out, "%s on %s is taken off the list\n", l.Path, l.Node)
		}
	}
	if !yes && !forget {
		return nil
	}
	return c.Kubernetes.ForgetMonStorage(ctx, mon, kept)
}

// unhealthyNow is unhealthy by a look of this moment, for which the mons prove by a commit that they live.
func (c *Command) unhealthyNow(ctx context.Context, ref activities.MonsRef) string {
	plan, err := c.Temporal.PlanMigration(ctx, workflows.PlanMonsInput{CephMon: ref.String()})
	s := plan.Survey
	switch {
	case err != nil:
		return "nobody could look at the mons: " + err.Error()
	case s.Counts.InQuorum == 0: // nobody knows who lives, or what the spec means
		return s.Step.Why
	case s.Counts.InQuorum < s.Counts.Mons:
		return fmt.Sprintf("%d of %d mons are in quorum", s.Counts.InQuorum, s.Counts.Mons)
	case s.Counts.Mons < s.Counts.Wanted:
		return fmt.Sprintf("%d mons are wanted, and there are %d", s.Counts.Wanted, s.Counts.Mons)
	}
	return ""
}

// unhealthy is why what mons have left behind should stay; "": nothing.
func unhealthy(m *v1alpha1.CephMon) string {
	s := m.Status
	switch {
	case s.AsOf == nil || s.ObservedGeneration != m.Generation:
		return "no job has looked at the mons since the spec was changed; `lockkeeper migrate-mons` starts one"
	case s.Step != nil:
		return "a step is under way: " + s.Step.Kind + " mon." + s.Step.Mon
	}
	for _, mon := range s.Mons {
		if !mon.InQuorum {
			return "mon." + mon.Name + " is out of quorum"
		}
	}
	if len(s.Mons) < int(m.Spec.Count) {
		return fmt.Sprintf("%d mons are wanted, and there are %d", m.Spec.Count, len(s.Mons))
	}
	return ""
}
