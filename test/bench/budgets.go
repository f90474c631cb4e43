package main

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// budgets are the two over the OSDs, as they were last seen, by the daemons that each is over.
type budgets map[string]*policyv1.PodDisruptionBudget

func (b budgets) note(p *policyv1.PodDisruptionBudget) { b[p.Labels[kube.LabelDaemon]] = p }

func (b budgets) both() []*policyv1.PodDisruptionBudget {
	return []*policyv1.PodDisruptionBudget{b[budget.Marked], b[budget.Unmarked]}
}

// closedElsewhere tells whether both budgets let nobody go, but in the failure domain of a pod with these labels.
func (b budgets) closedElsewhere(labels map[string]string) bool {
	for _, p := range b.both() {
		if p == nil || !letsNobodyGo(p) {
			return false
		}
		for _, e := range exceptions(p) {
			for _, value := range e.Values {
				if value != labels[e.Key] {
					return false
				}
			}
		}
	}
	return true
}

// opensFor tells whether both budgets leave out pods whose label has this value.
func (b budgets) opensFor(value string) bool {
	for _, p := range b.both() {
		if p == nil {
			return false
		}
		e := exceptions(p)
		if len(e) != 1 || len(e[0].Values) != 1 || e[0].Values[0] != value {
			return false
		}
	}
	return true
}

// atRest tells whether one of n OSDs may go, whichever it is.
func (b budgets) atRest(n int) bool {
	proved, unproved := b[budget.Marked], b[budget.Unmarked]
	return proved != nil && unproved != nil && len(exceptions(proved))+len(exceptions(unproved)) == 0 &&
		letsNobodyGo(unproved) && proved.Spec.MinAvailable != nil && proved.Spec.MinAvailable.IntValue() == n-1
}

// letsOneGo tells whether the disruption controller would let a proved pod go now.
func (b budgets) letsOneGo() bool {
	p := b[budget.Marked]
	return p != nil && p.Status.ObservedGeneration == p.Generation && p.Status.DisruptionsAllowed > 0
}

func letsNobodyGo(p *policyv1.PodDisruptionBudget) bool {
	least, most := p.Spec.MinAvailable, p.Spec.MaxUnavailable
	return least != nil && least.IntValue() >= budget.Everything || most != nil && most.IntValue() == 0
}

// exceptions are the requirements by which a budget leaves out a failure domain. By the mark it leaves out what is
// under the other.
func exceptions(p *policyv1.PodDisruptionBudget) (out []metav1.LabelSelectorRequirement) {
	for _, r := range p.Spec.Selector.MatchExpressions {
		if r.Key != storageview.MarkLabel {
			out = append(out, r)
		}
	}
	return out
}
