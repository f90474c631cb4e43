package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file looks at the guard of deletions, which only those have who want it.

// leastGuard is the first Kubernetes with ValidatingAdmissionPolicies of version v1.
const leastGuard = "1.30"

const (
	applyGuard    = "kubectl apply -f deploy/guard-deletions/policy.yaml, of the same version as this program"
	guardPolicies = "ValidatingAdmissionPolicies"
)

// bindGuard is the command that has the guard stand in a namespace.
func bindGuard(namespace string) string {
	if namespace == "rook-ceph" {
		return "kubectl apply -f deploy/guard-deletions/namespace.yaml"
	}
	return "sed 's/rook-ceph/" + namespace + "/' deploy/guard-deletions/namespace.yaml | kubectl apply -f -"
}

func (d *Doctor) guard(ctx context.Context) {
	if v, err := version.ParseGeneric(d.serverVersion); err == nil && v.LessThan(version.MustParseGeneric(leastGuard)) {
		d.found(FoundWarning, fmt.Sprintf("Kubernetes is %s, which has no %s: the budgets stop evictions only, and "+
			"neither deploy/guard-deletions nor deploy/admission.yaml can be installed", d.serverVersion, guardPolicies),
			"upgrade it to "+leastGuard+" or newer; until then whoever deletes pods does not wait")
		return
	}
	g, err := d.Installation.DeletionGuard(ctx)
	switch {
	case err != nil:
		d.unknown("whether deploy/guard-deletions is installed", err)
	case !g.Guards():
		d.ok("deploy/guard-deletions is not installed: the budgets stop evictions, and nobody who deletes pods")
	case d.guardWhole(g):
		d.guardedNamespaces(ctx, g)
	}
}

// guardWhole tells whether all policies are there and know lockkeeper's accounts.
func (d *Doctor) guardWhole(g kube.DeletionGuard) bool {
	whole := true
	for _, name := range kube.GuardPolicies {
		if !g.Has(name) {
			d.found(FoundBroken, "only a part of it is installed: there is no ValidatingAdmissionPolicy "+name, applyGuard)
			whole = false
		}
	}
	// In all namespaces, so that it is never missing where something is guarded.
	if b, bound := g.Binding(kube.GuardOfServers, ""); g.Has(kube.GuardOfServers) &&
		(!bound || !slices.Contains(b.Actions, string(admissionv1.Warn))) {
		d.found(FoundBroken, fmt.Sprintf("nobody tells lockkeeper's worker by which budgets each API server decides: there "+
			"is no ValidatingAdmissionPolicyBinding %s that warns, and one that is late may let go in two failure domains",
			kube.GuardOfServers), applyGuard)
		whole = false
	}
	for _, p := range g.Policies {
		accounts := []string{workerAccount}
		if p.Name == kube.GuardOfBudgets {
			accounts = append(accounts, watcherAccount) // it closes them
		}
		for _, name := range accounts {
			account := kube.Account{Namespace: d.System, Name: name}
			if p.Knows(account) {
				continue
			}
			role := strings.TrimPrefix(name, "lockkeeper-")
			d.found(FoundBroken, fmt.Sprintf("ValidatingAdmissionPolicy %s does not know lockkeeper's %s as %s/%s: it refuses "+
				"what the %[2]s does", p.Name, role, account.Namespace, account.Name),
				"put that account into deploy/guard-deletions/policy.yaml and apply it. Is lockkeeper in another namespace? "+
					"--system-namespace")
			whole = false
		}
	}
	return whole
}

func (d *Doctor) guardedNamespaces(ctx context.Context, g kube.DeletionGuard) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		deletions, bound := g.Binding(kube.GuardOfDeletions, p.Namespace)
		budgets, guardsBudgets := g.Binding(kube.GuardOfBudgets, p.Namespace)
		overrides, guardsOverrides := g.Binding(kube.GuardOfOverrides, p.Namespace)
		switch {
		case !bound:
			d.found(FoundWarning, fmt.Sprintf("%s: nothing guards its namespace: whoever deletes pods there does not wait",
				name), bindGuard(p.Namespace))
			return
		case deletions.Reads != p.Namespace:
			d.found(FoundBroken, fmt.Sprintf("%s: ValidatingAdmissionPolicyBinding %s guards %s by the budgets of %q", name,
				deletions.Name, p.Namespace, deletions.Reads), bindGuard(p.Namespace))
			return
		case deletions.WithoutBudgets == string(admissionv1.DenyAction):
			d.found(FoundBroken, fmt.Sprintf("%s: where there are no budgets ValidatingAdmissionPolicyBinding %s refuses "+
				"kubelets and the end of the namespace, too (parameterNotFoundAction: Deny)", name, deletions.Name),
				bindGuard(p.Namespace))
			return
		case !guardsBudgets || !guardsOverrides || deletions.Denies() && (!budgets.Denies() || !overrides.Denies()):
			d.found(FoundBroken, fmt.Sprintf("%s: its pods are guarded, and what decides about them is not: whoever may write "+
				"budgets or annotations of pods there may delete everything", name), bindGuard(p.Namespace))
			return
		}
		d.guardedPods(ctx, p, name, deletions)
	})
	if d.Namespace != "" {
		return // not all policies were looked at
	}
	for _, b := range g.Bindings {
		if b.Policy == kube.GuardOfDeletions && !slices.ContainsFunc(d.policies,
			func(p v1alpha1.MaintenancePolicy) bool { return p.Namespace == b.Namespace }) {
			d.found(FoundWarning, fmt.Sprintf("ValidatingAdmissionPolicyBinding %s guards nothing: there is no "+
				"MaintenancePolicy in %q, so there are no budgets to go by", b.Name, b.Namespace),
				"apply a MaintenancePolicy there, or: kubectl delete validatingadmissionpolicybinding "+b.Name)
		}
	}
}

// guardedPods looks at whose pods the guard holds: those of the budgets that it reads.
func (d *Doctor) guardedPods(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string, b kube.GuardBinding) {
	guards, err := d.Installation.GuardingBudgets(ctx, p)
	if err != nil {
		d.unknown(name+": which budgets decide deletions", err)
		return
	}
	osds, mons := d.guardedOSDs(p, name, guards), d.guardedMons(p, name, guards)
	switch {
	case !b.Denies():
		says := strings.Join(b.Actions, " and ")
		d.found(FoundWarning, fmt.Sprintf("%s: the guard says %s and refuses nothing", name, says),
			"validationActions: [Deny] in deploy/guard-deletions/namespace.yaml; "+bindGuard(p.Namespace))
	case osds && mons:
		d.ok("%s: whatever deletes pods of OSDs and mons waits its turn", name)
	}
}

// guardedOSDs tells whether both budgets of the OSDs decide deletions, and says so if not.
func (d *Doctor) guardedOSDs(p *v1alpha1.MaintenancePolicy, name string, guards map[string]bool) bool {
	var missing, silent []string
	for _, of := range []struct{ daemon, budget string }{
		{kube.DaemonOSDProved, kube.ProvedBudgetName(p.Name)}, {kube.DaemonOSD, kube.DaemonBudgetName(p.Name)},
	} {
		switch decides, has := guards[of.daemon]; {
		case !has:
			missing = append(missing, of.budget)
		case !decides:
			silent = append(silent, of.budget)
		}
	}
	switch {
	case len(silent) > 0:
		d.found(FoundBroken, fmt.Sprintf("%s: %s does not carry the label %s=%s, so the guard does not go by it: a "+
			"lockkeeper from before the guard wrote it", name, strings.Join(silent, ", "), kube.LabelGuards,
			kube.GuardsDeletions),
			"have it written anew: cordon a storage node and, when its failure domain is open, uncordon it")
	case len(missing) == 2:
		d.found(FoundBroken, fmt.Sprintf("%s: its OSDs are not guarded: there are no budgets that decide (%s)", name,
			strings.Join(missing, ", ")), "the keeper makes them, unless spec.ceph.managePodBudgets is false: `lockkeeper status`")
	case len(missing) == 1:
		d.found(FoundWarning, fmt.Sprintf("%s: of the two budgets that decide, %s is missing: the other one decides for "+
			"all OSDs", name, missing[0]), "the keeper makes it: `lockkeeper status`")
	default:
		return true
	}
	return false
}

// guardedMons tells whether a budget decides deletions of mons, and says so if not. There is none for one or two mons
// that may go although Ceph stops answering then.
func (d *Doctor) guardedMons(p *v1alpha1.MaintenancePolicy, name string, guards map[string]bool) bool {
	decides, has := guards[kube.DaemonMon]
	switch {
	case decides, kube.KindOf(p) != storage.Ceph:
		return true
	case has:
		d.found(FoundWarning, fmt.Sprintf("%s: its mons are not guarded: their pods do not tell which mon they are, so a "+
			"budget keeps a number of them and cannot say which may be deleted", name),
			fmt.Sprintf("give each mon's pod a label %s with its name, as Rook does", kube.MonLabel))
	case p.Spec.Ceph != nil && p.Spec.Ceph.AllowMonQuorumLoss:
		d.found(FoundWarning, fmt.Sprintf("%s: its mons are not guarded: spec.ceph.allowMonQuorumLoss lets one or two mons "+
			"go at any time, so no budget decides about them", name),
			"run at least three mons; a budget decides about those, whatever that field says")
	default:
		d.found(FoundWarning, fmt.Sprintf("%s: its mons are not guarded: there is no budget that decides (%s)", name,
			kube.MonBudgetName(p.Name)), "the keeper makes it, unless spec.ceph.managePodBudgets is false: `lockkeeper status`")
	}
	return false
}
