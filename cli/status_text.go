package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// Outputs are the values of --output; "" is text.
var Outputs = []string{"", "json", "yaml"}

// Encode writes an answer as JSON or YAML.
func Encode(w io.Writer, answer any, output string) error {
	if output == "yaml" {
		out, err := yaml.Marshal(answer)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(answer)
}

// CheckOutput refuses an unknown --output.
func CheckOutput(output string) error {
	if !slices.Contains(Outputs, output) {
		return &ExitError{ExitUsage, wrong("--output", output, "must be json or yaml; leave it out for text")}
	}
	return nil
}

// Write puts the status into words: first the answer to "may I drain?", then who disrupts and who waits.
func (s Status) Write(w io.Writer) {
	sections := 0
	section := func(write func(io.Writer)) {
		var b strings.Builder
		write(&b)
		if b.Len() == 0 {
			return
		}
		if sections++; sections > 1 {
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, b.String())
	}
	section(s.writeNode)
	if s.detailed {
		section(s.writeRollout)
		section(s.writeCephOSD)
	}
	section(s.writePolicies)
	section(s.writeProblems)
	section(s.writeWishes)
	section(s.writeLease)
	section(s.writeNoout)
	section(s.writeFencing)
	section(s.writeDrains)
	section(s.writeFences)
	section(s.writeScaleDowns)
	if !s.detailed {
		section(s.writeRollouts)
	}
	section(s.writeMigrations)
	if len(s.Problems) > 0 {
		section(func(w io.Writer) {
			for _, p := range s.Problems {
				fmt.Fprintf(w, "Could not find out %s\n", p)
			}
		})
	}
	if s.TemporalProblem != "" {
		section(func(w io.Writer) {
			fmt.Fprintf(w, "Drains and rollouts are not known: %s\nThe rest is what the keepers last reported.\n",
				s.TemporalProblem)
		})
	}
}

func (s Status) writeNode(w io.Writer) {
	if s.Node == nil {
		return
	}
	fmt.Fprintf(w, "Node %s: %s\n", s.Node.Name, describeNode(s.Node.NodeState))
	if s.Node.Unguarded != "" {
		fmt.Fprintf(w, "It %s.\n", s.Node.Unguarded)
	}
}

// pgs are Ceph's; other kinds of storage have none.
func (p PolicyStatus) pgs() string {
	if p.Longhorn != nil {
		return "-"
	}
	return p.Storage.PGs
}

func (s Status) writePolicies(w io.Writer) {
	if len(s.Policies) == 0 && s.Node == nil && len(s.Problems) == 0 {
		fmt.Fprintln(w, "No MaintenancePolicy found: no storage is guarded. `kubectl explain maintenancepolicy` tells how "+
			"to write one.")
	}
	var rows [][]string
	for _, p := range s.Policies {
		rows = append(rows, []string{
			p.Namespace, p.Name, p.summary(), p.Storage.Up, p.pgs(),
			s.since(p.Since), p.why(),
		})
	}
	table(w, []string{"NAMESPACE", "POLICY", "MAY DRAIN", "UP", "PGS CLEAN", "SINCE", "WHY"}, rows)
}

// writeProblems tells what of a policy is not as it should be. The table has said already that nobody may drain.
func (s Status) writeProblems(w io.Writer) {
	for _, p := range s.Policies {
		say := func(what, why string) { fmt.Fprintf(w, "%s/%s: %s: %s\n", p.Namespace, p.Name, what, why) }
		for _, c := range p.Conditions {
			if c.Status == metav1.ConditionFalse &&
				(c.Type == v1alpha1.ConditionProtected || c.Type == v1alpha1.ConditionStorageReachable) {
				say("not "+c.Type, c.Message)
			}
		}
		if len(p.Storage.Down) > 0 {
			say("down", some(p.Storage.Down, 5))
		}
		if p.Trouble != "" {
			say("the keeper", p.Trouble)
		}
		if p.MayDrain != "" && p.ObservedGeneration != p.Generation {
			say("the keeper", fmt.Sprintf("has not reported on the policy's latest change yet (generation %d, reported %d)",
				p.Generation, p.ObservedGeneration))
		}
		if !p.NextTimer.IsZero() {
			say("next timer", when(p.NextTimer, s.At))
		}
	}
}

// writeWishes tells which OSDs and mons somebody wants gone, and how they get their turn.
func (s Status) writeWishes(w io.Writer) {
	var rows [][]string
	for _, p := range s.Policies {
		var of [][]string
		for _, x := range p.Wishes {
			what := "a newer one"
			if !x.Newer {
				what = "gone for good"
			}
			since := ""
			if !x.Since.IsZero() {
				since = when(x.Since, s.At)
			}
			of = append(of, []string{x.Daemon, what, x.Owner, since, p.turn()})
		}
		for _, x := range p.DrivenOff {
			of = append(of, []string{x.Daemon, "off " + x.Node, "taint " + x.Taint, "", p.turnOf(x)})
		}
		if more := len(of) - mostWishes; more > 0 {
			of = append(of[:mostWishes], []string{fmt.Sprintf("and %d more", more), "", "", "", ""})
		}
		rows = append(rows, of...)
	}
	table(w, []string{"WANTED", "AS", "BY", "REFUSED SINCE", "ITS TURN"}, rows)
}

// mostWishes is how many of a policy's wishes the text names.
const mostWishes = 12

// turnOf is how a daemon gets its turn that a taint is to drive off.
func (p PolicyStatus) turnOf(d kube.DrivenDaemon) string {
	if p.Restarts == v1alpha1.RestartsAutomatic {
		return "by " + jobs.DrainNode.ID(d.Node)
	}
	return "by `lockkeeper drain " + d.Node + "`"
}

// turn is how what waits gets its turn.
func (p PolicyStatus) turn() string {
	turn := "by " + jobs.RestartWaiting.ID(p.Namespace, p.Name)
	switch p.Restarts {
	case v1alpha1.RestartsAutomatic:
	case v1alpha1.RestartsObserve:
		return "when its failure domain opens: restarts is Observe"
	default:
		turn += ", once it is approved"
	}
	switch {
	case p.RestartsNever != "":
		turn += ", and never: " + p.RestartsNever
	case !p.RestartsFrom.IsZero():
		turn += ", from " + when(p.RestartsFrom, p.asked) + " on"
	}
	return turn
}

func (s Status) writeLease(w io.Writer) {
	var rows [][]string
	for _, p := range s.Policies {
		claim := func(c v1alpha1.LeaseClaim, state, why string) {
			rows = append(rows, []string{
				c.WorkflowID, c.FailureDomain.Type + " " + c.FailureDomain.Name, state,
				s.since(&c.Since), why,
			})
		}
		for _, c := range p.Lease.Holders {
			state := "holds"
			switch {
			case c.Finishing:
				state = "heals"
			case c.Reserve != nil:
				state = "in reserve" // until its job has the lease of another storage cluster
			case c.Observing:
				state = "observes"
			}
			claim(c, state, c.Reason)
		}
		for _, c := range p.Lease.Queue {
			claim(c, "waits", c.WaitsFor)
		}
		if more := int(p.Lease.Waiting) - len(p.Lease.Queue); more > 0 {
			rows = append(rows, []string{fmt.Sprintf("and %d more", more), "", "wait", "", ""})
		}
	}
	table(w, []string{"LEASE", "FAILURE DOMAIN", "STATE", "SINCE", "REASON"}, rows)
}

func (s Status) writeNoout(w io.Writer) {
	var rows [][]string
	for _, p := range s.Policies {
		for _, n := range p.Noout {
			if !n.Withdrawn {
				rows = append(rows, []string{n.Host, n.Owner, s.since(&n.Since), when(n.Expires.Time, s.At)})
			}
		}
	}
	table(w, []string{"NOOUT ON", "FOR", "SINCE", "EXPIRES"}, rows)
}

func (s Status) writeDrains(w io.Writer) {
	var rows [][]string
	for _, d := range s.Drains {
		since, next := d.Started, ""
		switch {
		case d.State != Running:
			since = d.Ended
		case d.Status != nil:
			since = d.Status.Since
			if !d.Status.NextTimer.IsZero() {
				next = strings.TrimSpace(when(d.Status.NextTimer, s.At) + " " + d.Status.NextTimerDoes)
			}
		}
		waits := d.WaitsFor()
		if d.Step != nil && d.Step.Eviction != nil {
			waits = join(waits, describeStep(&Step{Eviction: d.Step.Eviction}))
		}
		rows = append(rows, []string{d.WorkflowID, d.Phase(), when(since, s.At), next, waits})
	}
	table(w, []string{"DRAIN", "PHASE", "SINCE", "NEXT TIMER", "WAITS FOR"}, rows)
}

func (s Status) writeMigrations(w io.Writer) {
	var rows [][]string
	for _, m := range s.Migrations {
		since := m.waitsSince()
		waits := m.WaitsFor()
		if m.State != Running {
			since = m.Ended
			if m.Result != nil {
				waits = m.did()
			}
		}
		rows = append(rows, []string{m.WorkflowID, m.Quorum(), m.Phase(), when(since, s.At), m.Work(), waits})
	}
	table(w, []string{"MONS", "IN QUORUM", "PHASE", "SINCE", "STEP", "WAITS FOR"}, rows)
}

func (s Status) since(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return when(t.Time, s.At)
}
