package cli

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// karpenter looks for what Karpenter passes over on the nodes of each policy. Where it has none of them there is
// nothing to say.
func (d *Doctor) karpenter(ctx context.Context) {
	d.each(ctx, func(ctx context.Context, p *v1alpha1.MaintenancePolicy, name string) {
		k, err := d.Installation.Karpenter(ctx, p)
		switch {
		case err != nil:
			d.unknown(name+": what Karpenter passes over", err)
			return
		case len(k.Nodes) == 0:
			return
		}
		if len(k.Tolerant) > 0 {
			d.found(FoundBroken, fmt.Sprintf("%s: %s tolerate Karpenter's taint karpenter.sh/disrupted: it removes their nodes "+
				"without a word to their budgets, several at once", name, some(k.Tolerant, mostNames)),
				"let these pods tolerate the taints that they need by their keys, instead of all of them")
		}
		if len(k.Hurried) > 0 {
			d.found(FoundWarning, fmt.Sprintf("%s: Karpenter gives the pods on %s a terminationGracePeriod, at whose end it "+
				"deletes them whatever their budgets say", name, some(k.Hurried, mostNames)),
				"give NodePools with storage no terminationGracePeriod; deploy/guard-deletions has such deletions wait")
		}
		if len(k.Tolerant)+len(k.Hurried) == 0 {
			d.ok("%s: it asks the budgets on its nodes %s", name, some(k.Nodes, mostNames))
		}
	})
}
