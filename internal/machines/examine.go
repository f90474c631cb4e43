package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Problem is something about the fencing of a storage cluster that a person should know.
type Problem struct {
	// Broken: lockkeeper cannot hold or release Machines as the policy says. Otherwise it can, and something else is
	// odd.
	Broken  bool
	Message string
	Remedy  string
}

// Examine looks for what would keep Machines from being held, or from ever being fenced. nodes are those that host
// storage daemons. It changes nothing.
func Examine(
	ctx context.Context, c client.Client, p *v1alpha1.MaintenancePolicy, nodes []string,
) ([]Problem, error) {
	spec := p.Spec.Fencing
	if spec.API == v1alpha1.FencingNone || spec.API == "" {
		return nil, nil
	}
	h, err := For(c, storage.ClusterKey{Namespace: p.Namespace, Name: p.Name}, spec)
	if err != nil {
		return []Problem{{true, err.Error(), "mend spec.fencing"}}, nil //nolint:nilerr // it is what was to be found out
	}
	all, err := h.Machines(ctx)
	var r rules
	if err == nil {
		r, err = h.rules(ctx)
	}
	if errors.Is(err, ErrNotServed) {
		return []Problem{notServed(err)}, nil
	}
	if err != nil {
		return nil, err
	}
	var problems []Problem
	without := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool {
		return slices.ContainsFunc(all, func(m fencing.Machine) bool { return m.Node == node })
	})
	if len(without) > 0 {
		problems = append(problems, Problem{
			Message: fmt.Sprintf("%d of %d nodes with OSDs have no Machine in the namespace %s, %s for one: nothing holds them",
				len(without), len(nodes), spec.Namespace, without[0]),
			Remedy: "mend spec.fencing.namespace, unless these nodes are not fenced at all",
		})
	}
	return append(problems, h.odd(r, all, nodes)...), nil
}

func notServed(err error) Problem {
	return Problem{true, err.Error(), "install it, or name another one in spec.fencing.api"}
}

// rules are what others have to say about when a Machine is fenced.
type rules struct {
	checks  []HealthCheck
	budgets []HealthCheck // MachineDisruptionBudgets of others: what they select
}

func (h *Holder) rules(ctx context.Context) (r rules, err error) {
	if r.checks, err = h.HealthChecks(ctx); err == nil && h.kind.api == v1alpha1.FencingMachineDisruptionBudget {
		r.budgets, err = h.budgetsOfOthers(ctx)
	}
	return r, err
}

// odd is what would keep Machines from being held as the policy says, or from ever being fenced. all are those that can
// be held.
func (h *Holder) odd(r rules, all []fencing.Machine, nodes []string) (problems []Problem) {
	var ours []map[string]string // labels of what is to be held
	for _, m := range all {
		if m.Node != "" && slices.Contains(nodes, m.Node) {
			ours = append(ours, m.Labels)
		}
	}
	for _, check := range r.checks {
		problems = append(problems, h.examineCheck(check, ours, all)...)
	}
	for _, b := range r.budgets {
		if slices.ContainsFunc(ours, b.Selects) {
			return append(problems, Problem{
				true, fmt.Sprintf("MachineDisruptionBudget %s selects Machines with OSDs, too, and fencing asks only one budget "+
					"of a Machine", b.Name), "delete it, or have it select others",
			})
		}
	}
	return problems
}

// examineCheck looks at one health check. ours are the labels of the Machines that host storage.
func (h *Holder) examineCheck(
	check HealthCheck, ours []map[string]string, machines []fencing.Machine,
) (problems []Problem) {
	storageToo := 0
	for _, set := range ours {
		if check.Selects(set) {
			storageToo++
		}
	}
	if storageToo == 0 {
		return nil
	}
	all, starting := 0, 0
	for _, m := range machines {
		if check.Selects(m.Labels) {
			all++
			if m.Node == "" { // nobody knows yet what it will host
				starting++
			}
		}
	}
	name := fmt.Sprintf("%s %s", h.kind.check.Kind, check.Name)
	skips := h.kind.mark.skips
	if check.Template && h.kind.mark.deletions {
		problems = append(problems, Problem{
			true, name + " has a remediation template, or has metal started again: it deletes no Machine, so hooks do not " +
				"hold any",
			"set spec.fencing.hold to SkipRemediation, where the api is ClusterAPI; elsewhere have it delete Machines",
		})
	}
	counted, why := all, ""
	if skips {
		counted = all - storageToo + 1
		why = fmt.Sprintf(", of which it counts %d, since those that are held are left out", counted)
	}
	fences, err := fencing.Fences(check.Limit, counted)
	switch {
	case err != nil:
		problems = append(problems, Problem{true, name + ": " + err.Error(), "mend it"})
	case !fences:
		problems = append(problems, Problem{
			true, fmt.Sprintf("%s acts on up to %s unhealthy %ss of %d%s: it never acts on one", name,
				check.Limit, h.kind.machine.Kind, all, why),
			"raise its limit",
		})
	}
	problems = append(problems, examineLeast(name, check.Least, all)...)
	if others := all - starting - storageToo; check.Limit != "" && others > 0 && !skips {
		problems = append(problems, Problem{
			Message: fmt.Sprintf("%s selects %d %ss with OSDs and %d without, with one limit of %s: those that wait for "+
				"lockkeeper count as unhealthy meanwhile, and the others may have to wait for them", name, storageToo,
				h.kind.machine.Kind, others, check.Limit),
			Remedy: fmt.Sprintf("give %ss with OSDs a health check of their own", h.kind.machine.Kind),
		})
	}
	return problems
}

// examineLeast: those that are held count as usual for whoever asks how many are healthy.
func examineLeast(name, least string, all int) []Problem {
	switch acts, err := fencing.Spares(least, all); {
	case err != nil:
		return []Problem{{true, name + ": " + err.Error(), "mend it"}}
	case !acts:
		return []Problem{{
			true, fmt.Sprintf("%s acts while %s of %d are healthy: it never acts on one", name, least, all), "lower minHealthy",
		}}
	default:
		return nil
	}
}
