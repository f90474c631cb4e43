package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// rightsForOSDs looks for rights that not everybody grants: those to make and delete the pods of a CephOSD, where there
// is one, and those to restart the OSDs of Deployments, where somebody asked for that.
func (d *Doctor) rightsForOSDs(ctx context.Context) {
	all, err := d.Installation.CephOSDs(ctx, d.Namespace)
	if err != nil {
		d.unknown("which CephOSDs there are", err)
	}
	var withCephOSD, restarting []string
	for i := range all {
		withCephOSD = append(withCephOSD, all[i].Namespace)
	}
	for i := range d.policies {
		if ns := d.policies[i].Namespace; !d.noTalk && !slices.Contains(restarting, ns) {
			if runs(ctx, d.Temporal, jobs.RestartOSDs.ID(ns)) {
				restarting = append(restarting, ns)
			}
		}
	}
	slices.Sort(withCephOSD)
	for _, x := range []struct {
		kind       activities.OSDSetKind
		namespaces []string
		what       string
	}{
		{activities.OSDSetCephOSD, slices.Compact(withCephOSD), "the OSDs of its CephOSDs cannot be made or replaced"},
		{activities.OSDSetDeployments, restarting, "restart-osds cannot restart anything"},
	} {
		for _, ns := range x.namespaces {
			missing, err := cephosd.Missing(ctx, d.Installation.May, kube.Account{Namespace: d.System, Name: workerAccount},
				x.kind, ns)
			what, how, _ := strings.Cut(missing, ": ")
			switch {
			case err != nil:
				d.unknown("what "+workerAccount+" may do in "+ns, err)
			case missing != "":
				d.found(FoundBroken, ns+": "+x.what+": "+what, how)
			default:
				d.ok("%s: %s may do what the rollout of a %s takes", ns, workerAccount, x.kind)
			}
		}
	}
	if len(withCephOSD)+len(restarting) == 0 && err == nil {
		d.ok("no CephOSD, and no restart of OSDs: none are needed")
	}
}

// mayRollOut says in a plan what the worker lacks. Who may not ask is told that, too: the plan may be for nothing.
func (c *Command) mayRollOut(ctx context.Context, p *RolloutPlan, kind activities.OSDSetKind, namespace string) {
	if c.WorkerNamespace == "" {
		return
	}
	switch missing, err := cephosd.Missing(ctx, c.Kubernetes.May,
		kube.Account{Namespace: c.WorkerNamespace, Name: workerAccount}, kind, namespace); {
	case err != nil:
		p.unknown("whether lockkeeper's worker has the rights for it", err)
	case missing != "":
		p.Refused = append(p.Refused, missing)
	}
}
