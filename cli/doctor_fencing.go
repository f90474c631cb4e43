package cli

import (
	"context"
	"slices"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/machines"
)

// fencing looks at what fences the nodes of each policy: whether it can be held back, and whether it would act at all.
func (d *Doctor) fencing(ctx context.Context) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		api := p.Spec.Fencing.API
		if api == "" || api == v1alpha1.FencingNone {
			return
		}
		pods, err := d.Kubernetes.StoragePods(ctx, p)
		if err != nil {
			d.unknown(name+": which nodes host OSDs", err)
			return
		}
		var nodes []string
		for _, pod := range pods {
			if pod.Node != "" && !slices.Contains(nodes, pod.Node) {
				nodes = append(nodes, pod.Node)
			}
		}
		slices.Sort(nodes)
		problems, err := d.Machines(ctx, p, nodes)
		if err != nil {
			d.unknown(name+": how nodes are fenced", err)
			return
		}
		for _, problem := range problems {
			result := FoundWarning
			if problem.Broken {
				result = FoundBroken
			}
			d.found(result, name+": "+problem.Message, problem.Remedy)
		}
		if f := p.Status.Fencing; f != nil && f.Problem != "" {
			d.found(FoundBroken, name+": the keeper cannot hold or release every Machine: "+f.Problem,
				"see `lockkeeper fence status`; rights are in deploy/fencing-namespace.yaml and deploy/fencing-nodes.yaml")
		}
		if f := p.Status.Fencing; f != nil {
			for _, note := range f.Notes {
				if slices.ContainsFunc(problems, func(p machines.Problem) bool { return p.Message == note }) {
					continue // it has just been said, with what to do about it
				}
				d.found(FoundWarning, name+": "+note, "see `lockkeeper fence status`")
			}
		}
	})
}
