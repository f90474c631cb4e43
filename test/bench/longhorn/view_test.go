package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

func manager(node, mark string, ready corev1.ConditionStatus) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "im-" + node, Labels: map[string]string{"node": node}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
	if mark != "" {
		p.Labels["mark"] = mark
	}
	return p
}

func over(name string, most, least *int32, marked bool, without string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
	there := metav1.LabelSelectorOpDoesNotExist
	if marked {
		there = metav1.LabelSelectorOpExists
	}
	requires := []metav1.LabelSelectorRequirement{{Key: "mark", Operator: there}}
	b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: requires}
	if without != "" {
		b.Spec.Selector.MatchExpressions = append(b.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "node", Operator: metav1.LabelSelectorOpNotIn, Values: []string{without},
		})
	}
	if most != nil {
		b.Spec.MaxUnavailable = new(intstr.FromInt32(*most))
	}
	if least != nil {
		b.Spec.MinAvailable = new(intstr.FromInt32(*least))
	}
	return b
}

// TestView goes from rest to a node that is open, as lockkeeper writes it: one keeps the volume, and of two others one
// may go; then one is left out of both budgets, and nobody else may go.
func TestView(t *testing.T) {
	zero, one_, all := int32(0), int32(1), int32(1000000)
	v := &view{pods: map[string]*corev1.Pod{}, budgets: map[string]*policyv1.PodDisruptionBudget{}}
	at := time.Unix(0, 0)
	see := func(kind watch.EventType, o *policyv1.PodDisruptionBudget, p *corev1.Pod) {
		at = at.Add(time.Second)
		e := watch.Event{Type: kind, Object: o}
		if p != nil {
			e.Object = p
		}
		v.take(at, e)
	}
	see(watch.Added, nil, manager("a", "yes", corev1.ConditionTrue))
	see(watch.Added, nil, manager("b", "yes", corev1.ConditionTrue))
	see(watch.Added, nil, manager("c", "", corev1.ConditionTrue))
	see(watch.Added, over("unproved", &zero, nil, false, ""), nil)
	see(watch.Added, over("proved", nil, &one_, true, ""), nil)
	assert.Equal(t, standing{"a": one, "b": one, "c": kept}, v.last())
	r, is := v.atRest(false, time.Hour)
	assert.True(t, is)
	assert.Equal(t, rest{keeper: "c", others: []string{"a", "b"}}, r)

	began := at.Add(time.Millisecond)
	see(watch.Modified, over("proved", nil, &all, true, ""), nil)
	assert.Equal(t, standing{"a": kept, "b": kept, "c": kept}, v.last())
	lets := func(s standing) bool { return s.lets("a", false) }
	assert.Zero(t, v.since(began, lets), "closed")
	see(watch.Modified, over("unproved", &zero, nil, false, "a"), nil)
	assert.Zero(t, v.since(began, lets), "it carries the mark")
	see(watch.Modified, over("proved", nil, &all, true, "a"), nil)
	assert.Equal(t, standing{"a": free, "b": kept, "c": kept}, v.last())
	assert.False(t, v.last().lets("b", false))
	assert.Equal(t, time.Unix(8, 0), v.since(began, lets))

	see(watch.Modified, nil, manager("a", "", corev1.ConditionFalse))
	assert.Equal(t, gone, v.last()["a"])
	_, is = v.atRest(false, 0)
	assert.False(t, is)
}

// TestViewOfLonghornAlone: its budgets are one for each node that keeps something.
func TestViewOfLonghornAlone(t *testing.T) {
	s := standing{"a": kept, "b": free, "c": free}
	r, is := s.rest(true)
	assert.True(t, is)
	assert.Equal(t, "a", r.keeper)
	assert.False(t, standing{"a": free, "b": free, "c": free}.lets("a", true), "nobody keeps the volume")
	assert.True(t, standing{"a": free, "b": kept, "c": free}.lets("a", true))
}
