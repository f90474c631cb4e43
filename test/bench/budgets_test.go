package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// says is a budget: least must stay, or none may go if it is -1; the failure domains of except are left out.
func says(daemon string, least int32, except ...string) *policyv1.PodDisruptionBudget {
	mark := metav1.LabelSelectorRequirement{Key: storageview.MarkLabel, Operator: metav1.LabelSelectorOpExists}
	p := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kube.LabelDaemon: daemon}}}
	p.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{mark}}
	if len(except) > 0 {
		leave := metav1.LabelSelectorRequirement{Key: "zone", Operator: metav1.LabelSelectorOpNotIn, Values: except}
		p.Spec.Selector.MatchExpressions = append(p.Spec.Selector.MatchExpressions, leave)
	}
	number := intstr.FromInt32(max(least, 0))
	if least < 0 {
		p.Spec.MaxUnavailable = &number
	} else {
		p.Spec.MinAvailable = &number
	}
	return p
}

func TestBudgets(t *testing.T) {
	const all = budget.Everything
	tests := map[string]struct {
		proved, unproved *policyv1.PodDisruptionBudget
		closed           bool // outside of zone x
		opens            bool // zone x
		rest             bool // of six
	}{
		"at rest":                        {proved: says("osd-proved", 5), unproved: says("osd", -1), rest: true},
		"at rest, of pods of all kinds":  {proved: says("osd-proved", 5), unproved: says("osd", all), rest: true},
		"a pod is not proved yet":        {proved: says("osd-proved", 4), unproved: says("osd", -1)},
		"closed":                         {proved: says("osd-proved", all), unproved: says("osd", all), closed: true},
		"one is closed, the other quiet": {proved: says("osd-proved", all), unproved: says("osd", -1), closed: true},
		"open": {
			proved: says("osd-proved", all, "x"), unproved: says("osd", all, "x"),
			closed: true, opens: true,
		},
		"open elsewhere":                  {proved: says("osd-proved", all, "y"), unproved: says("osd", all, "y")},
		"one is open elsewhere":           {proved: says("osd-proved", all), unproved: says("osd", all, "y")},
		"two are open":                    {proved: says("osd-proved", all, "x", "y"), unproved: says("osd", all, "x", "y")},
		"one budget is not there":         {proved: says("osd-proved", all)},
		"the pods without a mark are not": {unproved: says("osd", all)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := budgets{}
			for _, p := range []*policyv1.PodDisruptionBudget{tt.proved, tt.unproved} {
				if p != nil {
					b.note(p)
				}
			}
			assert.Equal(t, tt.closed, b.closedElsewhere(map[string]string{"zone": "x"}), "closed elsewhere")
			assert.Equal(t, tt.opens, b.opensFor("x"), "opens")
			assert.Equal(t, tt.rest, b.atRest(6), "at rest")
		})
	}
}
