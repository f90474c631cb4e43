package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what differs between kinds of storage in Kubernetes: which pods are the storage daemons, by which label
// they go together, and how the two budgets over them are called.

// KindOf is the kind of storage that a policy is for.
func KindOf(p *v1alpha1.MaintenancePolicy) storage.Kind {
	if p.Spec.Longhorn != nil {
		return storage.Longhorn
	}
	return storage.Ceph
}

// Longhorn's labels of the pods of instance managers: what they are, and on which node.
const (
	LonghornComponent = "longhorn.io/component"
	InstanceManager   = "instance-manager"
	LonghornNode      = "longhorn.io/node"
)

// instanceManagers selects the pods of a Longhorn installation's instance managers. Longhorn deletes budgets of others
// whose matchLabels name them, and leaves those with matchExpressions alone.
func instanceManagers() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: LonghornComponent, Operator: metav1.LabelSelectorOpIn, Values: []string{InstanceManager},
	}}}
}

// nothing selects no pod: there are no daemons of this kind.
func nothing() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "lockkeeper.io/nothing", Operator: metav1.LabelSelectorOpExists},
		{Key: "lockkeeper.io/nothing", Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
}

// Values of LabelDaemon on the budgets over instance managers, without and with a mark.
const (
	DaemonManager       = "instance-manager"
	DaemonManagerProved = "instance-manager-proved"
)

// BookKey is which budget of a budget.Book one with this value of LabelDaemon is; "" for one that is none of them.
func BookKey(daemon string) string {
	switch daemon {
	case DaemonManager:
		return budget.Unmarked
	case DaemonManagerProved:
		return budget.Marked
	case budget.Unmarked, budget.Marked, budget.OfMons:
		return daemon
	default:
		return ""
	}
}

// daemonBudget is one of the two budgets over the storage daemons: that of the pods with a mark, or without.
type daemonBudget struct {
	name, daemon string
	marked       bool
}

// unmarkedBudget is over the pods without a mark.
func unmarkedBudget(p *v1alpha1.MaintenancePolicy) daemonBudget {
	if KindOf(p) == storage.Longhorn {
		return daemonBudget{name: budgetPrefix(p.Name) + DaemonManager, daemon: DaemonManager}
	}
	return daemonBudget{name: DaemonBudgetName(p.Name), daemon: DaemonOSD}
}

// markedBudget is over the pods with a mark.
func markedBudget(p *v1alpha1.MaintenancePolicy) daemonBudget {
	if KindOf(p) == storage.Longhorn {
		return daemonBudget{
			name: budgetPrefix(p.Name) + DaemonManagerProved, daemon: DaemonManagerProved, marked: true,
		}
	}
	return daemonBudget{name: ProvedBudgetName(p.Name), daemon: DaemonOSDProved, marked: true}
}

// BudgetNames are the names of the two budgets over a policy's storage daemons.
func BudgetNames(p *v1alpha1.MaintenancePolicy) (unmarked, marked string) {
	return unmarkedBudget(p).name, markedBudget(p).name
}
