package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// This file watches budgets and the pods of instance managers, and tells whose may be evicted by what budgets say. It
// shares nothing with lockkeeper, so that Longhorn's own budgets are read by the same rule.

// may is what the budgets say of the instance manager of a node.
type may string

const (
	kept may = "kept" // a budget that lets nobody go is over it
	one  may = "one"  // it may go if no other one does
	free may = "free" // no budget is over it
	gone may = "gone" // it does not run
)

// standing is what the budgets say, by node.
type standing map[string]may

// lets tells whether a node may leave, and somebody keeps its volumes. While Longhorn decides, nodes that keep nothing
// are under no budget; lockkeeper lets nobody else go meanwhile.
func (s standing) lets(node string, alone bool) bool {
	if s[node] != free {
		return false
	}
	keep := 0
	for other, m := range s {
		if other != node && m == kept {
			keep++
		}
	}
	if alone {
		return keep > 0
	}
	return keep == len(s)-1
}

// rest is who keeps the volume while nobody leaves.
type rest struct {
	keeper string
	others []string
}

func (s standing) rest(alone bool) (r rest, is bool) {
	for _, node := range slices.Sorted(maps.Keys(s)) {
		switch m := s[node]; {
		case m == kept && r.keeper == "":
			r.keeper = node
		case m == one && !alone, m == free && alone:
			r.others = append(r.others, node)
		default:
			return rest{}, false
		}
	}
	return r, r.keeper != "" && len(r.others) > 0
}

// moment is what the budgets said from a time on.
type moment struct {
	at  time.Time
	now standing
}

// view is all that was seen.
type view struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	budgets map[string]*policyv1.PodDisruptionBudget
	moments []moment
	err     error
}

const instanceManagers = "longhorn.io/component=instance-manager"

// startView watches until ctx ends. A watch without a version begins with what is there.
func startView(ctx context.Context, kube kubernetes.Interface, namespace string) (*view, error) {
	v := &view{pods: map[string]*corev1.Pod{}, budgets: map[string]*policyv1.PodDisruptionBudget{}}
	pods, err := kube.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: instanceManagers})
	if err != nil {
		return nil, fmt.Errorf("watch instance managers: %w", err)
	}
	budgets, err := kube.PolicyV1().PodDisruptionBudgets(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch budgets: %w", err)
	}
	for _, w := range []watch.Interface{pods, budgets} {
		go func() {
			for e := range w.ResultChan() {
				v.take(time.Now(), e)
			}
			if ctx.Err() == nil {
				v.fail(fmt.Errorf("the API server has ended a watch"))
			}
		}()
	}
	return v, nil
}

func (v *view) take(at time.Time, e watch.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch o := e.Object.(type) {
	case *corev1.Pod:
		if v.pods[o.Name] = o; e.Type == watch.Deleted {
			delete(v.pods, o.Name)
		}
	case *policyv1.PodDisruptionBudget:
		if v.budgets[o.Name] = o; e.Type == watch.Deleted {
			delete(v.budgets, o.Name)
		}
	}
	if now := standingOf(v.pods, v.budgets); len(v.moments) == 0 || !maps.Equal(now, v.moments[len(v.moments)-1].now) {
		v.moments = append(v.moments, moment{at, now})
	}
}

func (v *view) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

func (v *view) failed() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// since is when something was first so after a time; zero: it was not yet.
func (v *view) since(began time.Time, is func(standing) bool) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.moments {
		if !m.at.Before(began) && is(m.now) {
			return m.at
		}
	}
	return time.Time{}
}

// atRest tells who keeps the volume, if that has been so for a while.
func (v *view) atRest(alone bool, settled time.Duration) (r rest, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.moments) == 0 {
		return rest{}, false
	}
	m := v.moments[len(v.moments)-1]
	r, is = m.now.rest(alone)
	return r, is && time.Since(m.at) >= settled
}

func (v *view) last() standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.moments) == 0 {
		return nil
	}
	return v.moments[len(v.moments)-1].now
}

// standingOf reads the budgets as the API server does when it is asked for an eviction, but for their status, which
// follows a moment later.
func standingOf(pods map[string]*corev1.Pod, budgets map[string]*policyv1.PodDisruptionBudget) standing {
	s := standing{}
	for _, pod := range pods {
		node := pod.Spec.NodeName
		if node == "" {
			continue
		}
		if !runs(pod) {
			if s[node] == "" {
				s[node] = gone
			}
			continue
		}
		s[node] = free
		for _, b := range budgets {
			if !selects(b, pod) {
				continue
			}
			if letsNobodyGo(b, pods) {
				s[node] = kept
			} else if s[node] == free {
				s[node] = one
			}
		}
	}
	return s
}

func runs(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func selects(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

func letsNobodyGo(b *policyv1.PodDisruptionBudget, pods map[string]*corev1.Pod) bool {
	if most := b.Spec.MaxUnavailable; most != nil {
		return most.IntValue() == 0
	}
	there := 0
	for _, pod := range pods {
		if selects(b, pod) && runs(pod) {
			there++
		}
	}
	return b.Spec.MinAvailable != nil && b.Spec.MinAvailable.IntValue() >= there
}
