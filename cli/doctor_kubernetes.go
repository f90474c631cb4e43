package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/windows"
)

// Versions: below the least something that is needed is missing; tested is what README says.
const (
	leastKubernetes  = "1.27" // budgets with unhealthyPodEvictionPolicy
	testedKubernetes = "1.37"
	leastTemporal    = "1.28" // update-with-start
	testedTemporal   = "1.29"
)

var testedCeph = []string{"16", "18", "20"}

func (d *Doctor) kubernetes(ctx context.Context) {
	v, err := d.Installation.ServerVersion(ctx)
	switch {
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		d.found(FoundBroken, "it does not know who asks: "+err.Error(),
			"log in anew, or check the kubeconfig: `kubectl version` has to answer")
		d.noKube = true
	case err != nil:
		d.found(FoundBroken, "does not answer: "+err.Error(), "check --kubeconfig, --context and the network: `kubectl "+
			"version` has to answer. Until it does, the last budgets stay, which is safe")
		d.noKube = true
	default:
		d.serverVersion = v
		d.version(v, leastKubernetes, testedKubernetes, "budgets need unhealthyPodEvictionPolicy")
	}
}

// version says whether a server's version will do.
func (d *Doctor) version(is, least, tested, why string) {
	v, err := version.ParseGeneric(is)
	switch {
	case err != nil:
		d.found(FoundUnknown, fmt.Sprintf("answers, but its version %q cannot be read", is), "")
	case v.LessThan(version.MustParseGeneric(least)):
		d.found(FoundBroken, fmt.Sprintf("is %s: %s", is, why), "upgrade it to "+least+" or newer; tested is "+tested)
	case v.Major() != version.MustParseGeneric(tested).Major() || v.Minor() != version.MustParseGeneric(tested).Minor():
		d.ok("answers; it is %s. Tested is %s, nobody has tried this one", is, tested)
	default:
		d.ok("answers; it is %s", is)
	}
}

func (d *Doctor) ownRights(ctx context.Context) {
	var needs []need
	for _, r := range ownRights {
		r.Namespace = d.Namespace
		needs = append(needs, need{right: r})
	}
	missing, err := d.missing(ctx, needs)
	switch {
	case err != nil:
		d.unknown("what you may do", err)
	case len(missing) > 0:
		d.found(FoundWarning, "you may not "+strings.Join(missing, ", "),
			"drain, explain, status and this command say less without it: ask for it, or name a namespace with --namespace")
	default:
		d.ok("you may look at all that this command looks at")
	}
}

// missing are those rights that somebody needs and has not, in words.
func (d *Doctor) missing(ctx context.Context, needs []need) ([]string, error) {
	may := make([]bool, len(needs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, n := range needs {
		g.Go(func() (err error) { may[i], err = d.Installation.May(ctx, n.who, n.right); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []string
	for i, n := range needs {
		if !may[i] {
			out = append(out, n.right.String())
		}
	}
	return out, nil
}

func (d *Doctor) api(ctx context.Context) {
	const remedy = "kubectl apply -f deploy/crds, of the same version as this program"
	for _, crd := range []struct {
		name kube.CRD
		kind string
		may  bool // be missing
	}{
		{kube.PolicyCRD, "MaintenancePolicies", false},
		{kube.CephOSDCRD, "CephOSDs", true}, // where Rook or somebody else runs all OSDs
	} {
		found, answer, err := d.Installation.CRD(ctx, crd.name)
		switch {
		case err != nil:
			d.unknown("whether "+crd.kind+" are known", err)
		case !found && crd.may:
			d.ok("%s; only where lockkeeper is to make the pods of OSDs it is needed", answer.Reason)
		case !answer.OK:
			d.found(FoundBroken, answer.Reason, remedy)
		default:
			d.ok("%s are known, as this program knows them", crd.kind)
		}
	}
}

func (d *Doctor) lookPolicies(ctx context.Context) {
	var err error
	d.policies, err = d.Kubernetes.MaintenancePolicies(ctx, d.Namespace)
	switch {
	case meta.IsNoMatchError(err):
		d.found(FoundUnknown, "the API is not installed", "")
	case err != nil:
		d.unknown("which policies there are", err)
	case len(d.policies) == 0:
		d.found(FoundBroken, "there is no MaintenancePolicy, so no storage is guarded",
			"apply one in the namespace of the OSD pods: deploy/examples/maintenancepolicy.yaml")
	default:
		var names []string
		for i := range d.policies {
			names = append(names, d.policies[i].Namespace+"/"+d.policies[i].Name)
		}
		d.ok("%s", some(names, mostNames))
		d.eachOfCeph(ctx, d.windows)
	}
}

// windows that make no sense the API server cannot tell from others in all cases.
func (d *Doctor) windows(_ context.Context, p *v1alpha1.MaintenancePolicy, name string) {
	all, wrong := kube.RestartWindows(p)
	if wrong != nil {
		d.found(FoundBroken, name+": "+wrong.Error(), "mend it: until then nothing gets its turn that waits to be restarted")
		return
	}
	if open, change := windows.Open(all, d.Now()); !open && change.IsZero() {
		d.found(FoundWarning, name+": none of spec.ceph.restartWindows will ever open", "mend or remove them: until then "+
			"nothing gets its turn that waits to be restarted")
	}
}

// each makes a check of every policy.
func (d *Doctor) each(ctx context.Context, look func(context.Context, *v1alpha1.MaintenancePolicy, string)) {
	for i := range d.policies {
		p := &d.policies[i]
		look(ctx, p, p.Namespace+"/"+p.Name)
	}
}

// eachOfCeph makes a check of every policy of a Ceph cluster.
func (d *Doctor) eachOfCeph(ctx context.Context, look func(context.Context, *v1alpha1.MaintenancePolicy, string)) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		if kube.KindOf(p) == storage.Ceph {
			look(ctx, p, name)
		}
	})
}

func (d *Doctor) daemons(ctx context.Context) {
	d.each(ctx, d.managers)
	d.eachOfCeph(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		pods, err := d.Kubernetes.StoragePods(ctx, p)
		var nameless, fresh []string
		for _, pod := range pods {
			switch {
			case pod.OSD >= 0:
			case pod.Labels[podspec.OwnerLabel] != "" && pod.Labels[podspec.IDLabel] == "":
				fresh = append(fresh, pod.Name) // nobody has found out yet which OSD it is
			default:
				nameless = append(nameless, pod.Name)
			}
		}
		switch {
		case errors.Is(err, kube.ErrSelector):
			d.found(FoundBroken, name+": "+err.Error(), "mend spec.ceph.osds.selector")
		case err != nil:
			d.unknown(name+": which pods are OSDs", err)
		case len(pods) == 0:
			d.found(FoundBroken, name+": spec.ceph.osds.selector matches no pod in "+p.Namespace,
				"compare it with `kubectl -n "+p.Namespace+" get pods --show-labels`; the policy has to be in the namespace of "+
					"the OSD pods")
		case len(nameless) > 0:
			d.found(FoundBroken, fmt.Sprintf("%s: %s carry no OSD's number in the label %q", name, some(nameless, 3),
				kube.IDLabel(p)), "mend spec.ceph.osds.idLabel, or select OSD pods only")
		case len(fresh) > 0:
			d.found(FoundWarning, fmt.Sprintf("%s: %s do not say yet which OSDs they are: no label %q", name,
				some(fresh, 3), podspec.IDLabel),
				fmt.Sprintf("the rollout of their CephOSD labels them. If that says that a number is not known:\nkubectl -n %s "+
					"label pod POD %s=N", p.Namespace, podspec.IDLabel))
		default:
			d.ok("%s selects %s", name, pods2(len(pods)))
		}
	})
}

// remedyForBudgets is how budgets of somebody else go.
func remedyForBudgets(p *v1alpha1.MaintenancePolicy) string {
	if kube.KindOf(p) == storage.Longhorn {
		return "kubectl apply -f deploy/longhorn/one-writer.yaml: the API server empties Longhorn's own from then on, and " +
			"lockkeeper makes its own. Before Kubernetes 1.36: spec.longhorn.budgetsEmptiedBy: Worker"
	}
	return "Rook's go by themselves when its CephCluster has spec.disruptionManagement.managePodBudgets: false"
}

func pods2(n int) string { return strings.Replace(pods(n), "pod", "OSD pod", 1) }

func (d *Doctor) precedence(ctx context.Context) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		answer, err := d.Installation.Second(ctx, p)
		switch {
		case err != nil:
			d.unknown(name+": whether another policy means the same storage cluster", err)
		case !answer.OK:
			d.second[name] = true
			d.found(FoundBroken, name+": "+answer.Reason,
				"kubectl -n "+p.Namespace+" delete maintenancepolicy "+p.Name+", or the other one; whichever remains is in charge")
		}
	})
}

func (d *Doctor) otherBudgets(ctx context.Context) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		if d.second[name] {
			return // the other policy's are in place, as they should be
		}
		foreign, err := d.Installation.ForeignBudget(ctx, p)
		switch {
		case err != nil:
			d.unknown(name+": which other budgets there are", err)
		case foreign != "":
			d.found(FoundBroken, name+": "+foreign,
				remedyForBudgets(p))
		default:
			d.ok("%s: no other budget covers the same pods", name)
		}
	})
}

func (d *Doctor) monEndpoints(ctx context.Context) {
	d.eachOfCeph(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		raw, err := d.Installation.MonEndpoints(ctx, p)
		if apierrors.IsForbidden(err) {
			d.unknown(name, err)
			return
		}
		if err == nil {
			_, err = ceph.ParseMonEndpoints("spec.ceph.connection.monEndpoints", raw)
		}
		if err != nil {
			d.found(FoundBroken, name+": "+err.Error(),
				"name the ConfigMap and the key in spec.ceph.connection.monEndpoints; its value is \"a=10.0.0.1:6789,b=…\"")
			return
		}
		d.ok("%s: ConfigMap %s", name, kube.Endpoints(p))
	})
}

func (d *Doctor) rights(ctx context.Context) {
	needs, err := neededRights(d.System, d.policies)
	if err != nil {
		d.unknown("what is needed", err)
		return
	}
	for _, account := range []string{watcherAccount, workerAccount} {
		of := slices.DeleteFunc(slices.Clone(needs), func(n need) bool { return n.who.Name != account })
		missing, err := d.missing(ctx, of)
		switch {
		case err != nil:
			d.unknown("what "+account+" may do", err)
		case len(missing) > 0:
			d.found(FoundBroken, fmt.Sprintf("%s/%s may not %s", d.System, account, some(missing, mostNames)), d.grant(account))
		default:
			d.ok("%s/%s may do all that it has to (%d rights)", d.System, account, len(of))
		}
	}
}

func (d *Doctor) grant(account string) string {
	remedy := "kubectl apply -f deploy/rbac.yaml"
	if account != workerAccount {
		return remedy
	}
	remedy += "; a ConfigMap or Secret that a policy names by itself has to be named there, too"
	if len(d.policies) > 0 {
		remedy += fmt.Sprintf(". In each namespace with storage:\nkubectl -n %s apply -f deploy/storage-namespace.yaml",
			d.policies[0].Namespace)
		for i := range d.policies {
			p := &d.policies[i]
			if kube.KindOf(p) != storage.Longhorn {
				continue
			}
			remedy += fmt.Sprintf("\nkubectl -n %s apply -f deploy/storage-namespace-longhorn.yaml", p.Namespace)
			for _, role := range optionalRoles(p) {
				remedy += " -f deploy/storage-namespace-" + role + ".yaml"
			}
		}
	}
	return remedy
}

func (d *Doctor) watcher(ctx context.Context) {
	w, err := d.Kubernetes.Watcher(ctx, d.System)
	remedy := "kubectl -n " + d.System +
		" get pods,deployments; deploy/watcher.yaml, or `lockkeeper watch`. Elsewhere than in " + d.System +
		"? --system-namespace. Without it nobody hears of a cordon by `kubectl drain`, and no keeper is started"
	switch {
	case err != nil:
		d.unknown("whether it runs", err)
	case !w.Found:
		d.found(FoundBroken, fmt.Sprintf("has never run: there is no Lease %s in %s", kube.WatcherLease, d.System), remedy)
	case w.Holder == "":
		d.found(FoundBroken, "does not run: it was stopped", remedy)
	case !w.Running(d.Now()):
		d.found(FoundBroken, fmt.Sprintf("%s has not renewed its Lease since %s", w.Holder, when(w.Renewed, d.Now())), remedy)
	default:
		d.ok("%s is at work", w.Holder)
	}
}
