package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// A rollout takes any name, since it cannot know who will be there later: one with a slip of the pen in it excuses
// nobody, and nobody hears of that. So the name is held against the OSDs that there are.

// osdSetNames are the names of the OSDs of a rollout.
type osdSetNames struct {
	of    string     // whose they are
	osds  [][]string // of each OSD all its names, the number first
	whole bool       // no OSD has a number that is not known here
}

// checkOSD refuses a name that no OSD of the rollout has. What cannot be checked is said, and left to the rollout.
func (c *Command) checkOSD(ctx context.Context, id, osd string) error {
	job, target, _ := jobs.Parse(id)
	var osdSet osdSetNames
	var err error
	switch {
	case job == jobs.RestartWaiting:
		osdSet, err = c.waitingNames(ctx, target)
	case target.Name != "":
		osdSet, err = c.cephOSDNames(ctx, target.Namespace, target.Name)
	default:
		osdSet, err = c.deploymentNames(ctx, id, target.Namespace)
	}
	switch {
	case errors.Is(err, activities.ErrNotFound):
		return nil // that no rollout runs is for the signal to say
	case err != nil:
		fmt.Fprintf(c.Err, "warning: not checked whether there is an %s: %v\n", osd, err)
		return nil
	case slices.ContainsFunc(osdSet.osds, func(names []string) bool { return slices.Contains(names, osd) }):
		return nil
	case !osdSet.whole && osdNumber.MatchString(osd):
		fmt.Fprintf(c.Err, "warning: not checked whether %s has an %s: the pods do not tell all its numbers yet\n", osdSet.of,
			osd)
		return nil
	}
	var there []string
	for _, names := range osdSet.osds {
		s := names[0]
		if len(names) > 1 {
			s += " (" + names[1] + ")"
		}
		there = append(there, s)
	}
	return wrong("OSD", osd, fmt.Sprintf("must be an OSD of %s: %s", osdSet.of,
		cmp.Or(some(there, mostNames), "it has none")))
}

// waitingNames are those of the daemons that somebody wants gone. Others may have gone already and not be back, so that
// a number of another OSD is no slip of the pen.
func (c *Command) waitingNames(ctx context.Context, target jobs.Target) (osdSetNames, error) {
	out := osdSetNames{of: "what waits in " + target.Namespace + "/" + target.Name}
	p, err := c.Kubernetes.MaintenancePolicy(ctx, storage.ClusterKey{Namespace: target.Namespace, Name: target.Name})
	if err != nil {
		return out, err
	}
	wishes, err := c.Kubernetes.StorageWishes(ctx, p)
	for _, w := range wishes {
		out.osds = append(out.osds, []string{w.Daemon})
	}
	return out, err
}

// cephOSDNames are those of the spec, and the numbers that their pods carry.
func (c *Command) cephOSDNames(ctx context.Context, namespace, name string) (osdSetNames, error) {
	out := osdSetNames{of: fmt.Sprintf("CephOSD %s/%s", namespace, name), whole: true}
	set, err := c.Kubernetes.CephOSD(ctx, namespace, name)
	if err != nil {
		return out, err
	}
	pods, err := c.Kubernetes.CephOSDPods(ctx, namespace, name)
	if err != nil {
		return out, err
	}
	numbers := map[string]string{}
	for _, p := range pods {
		if k := podspec.Known(p); k.ID != nil {
			key := p.Annotations[podspec.HostAnnotation] + ":" + p.Annotations[podspec.DataAnnotation]
			numbers[key] = fmt.Sprintf("osd.%d", *k.ID)
		}
	}
	desired, _ := set.Desired()
	for _, o := range desired {
		if n := numbers[o.Key()]; n != "" {
			out.osds = append(out.osds, []string{n, o.Key()})
			continue
		}
		out.osds, out.whole = append(out.osds, []string{o.Key()}), false
	}
	return out, nil
}

// deploymentNames are the Deployments that the restart was told to restart.
func (c *Command) deploymentNames(ctx context.Context, id, namespace string) (osdSetNames, error) {
	out := osdSetNames{of: "the Deployments of " + id, whole: true}
	r, err := lookUp[Rollout](ctx, c.Temporal, id)
	switch {
	case errors.Is(err, ErrNoJob) || err == nil && r.State != Running:
		return out, activities.ErrNotFound
	case err != nil:
		return out, err
	case r.Status == nil:
		return out, errors.New(r.Silent)
	}
	list, err := c.Kubernetes.Deployments(ctx, namespace, r.Status.OSDSet.Selector)
	if err != nil {
		return out, err
	}
	policy := &v1alpha1.MaintenancePolicy{} // Rook's labels
	if named := r.Status.OSDSet.Policy; named != "" {
		if policy, err = c.Kubernetes.MaintenancePolicy(ctx,
			storage.ClusterKey{Namespace: namespace, Name: named}); err != nil {
			return out, err
		}
	} else if all, err := c.Kubernetes.MaintenancePolicies(ctx, namespace); err == nil && len(all) == 1 {
		policy = &all[0]
	}
	for i := range list {
		if n, err := strconv.Atoi(list[i].Spec.Template.Labels[kube.IDLabel(policy)]); err == nil {
			out.osds = append(out.osds, []string{fmt.Sprintf("osd.%d", n), list[i].Name})
		}
	}
	return out, nil
}
