package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
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
		// Until the keeper does it: who reads that a policy is fine must not believe that it is protected.
		d.found(FoundWarning, fmt.Sprintf("%s: spec.fencing.api is %s, and this version of lockkeeper holds no Machine yet",
			name, api), "hold Machines with OSDs by hand, or pause their health check")
	})
}
