package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long one step of an event may take before the run is given up.
const patience = 2 * time.Minute

type world struct {
	kube      kubernetes.Interface
	ceph      *cephrados.Conn
	namespace string
	budget    string
}

type event struct {
	pod                      string
	reaction, outage, reopen time.Duration
}

func newWorld(ctx context.Context, namespace, policy string) (*world, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	conn, err := cephrados.NewConn()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(conn.ReadConfigFile(os.Getenv("CEPH_CONF")), conn.SetConfigOption("rados_mon_op_timeout", "5")); err != nil {
		return nil, fmt.Errorf("CEPH_CONF=%q: %w", os.Getenv("CEPH_CONF"), err)
	}
	if err := conn.Connect(); err != nil {
		return nil, err
	}
	w := &world{kube: k, ceph: conn, namespace: namespace, budget: "lockkeeper-" + policy + "-osd"}
	if _, err := k.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, w.budget, metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("lockkeeper is not at work here: %w", err)
	}
	return w, nil
}

func (w *world) close() { w.ceph.Shutdown() }

// stopOne deletes the pod of the i-th OSD, which its Deployment replaces at once, and follows what happens.
func (w *world) stopOne(ctx context.Context, i int) (event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	osds, err := w.kube.AppsV1().Deployments(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-osd"})
	if err != nil {
		return event{}, err
	}
	n := len(osds.Items)
	pods, pod, err := w.runningPod(ctx, osds.Items[i%n].Spec.Selector)
	if err != nil {
		return event{}, err
	}
	podWatch, err := w.kube.CoreV1().Pods(w.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pods.ResourceVersion})
	if err != nil {
		return event{}, err
	}
	defer podWatch.Stop()
	budgets, err := w.kube.PolicyV1().PodDisruptionBudgets(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.budget})
	if err != nil {
		return event{}, err
	}
	budgetWatch, err := w.kube.PolicyV1().PodDisruptionBudgets(w.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.budget, ResourceVersion: budgets.ResourceVersion})
	if err != nil {
		return event{}, err
	}
	defer budgetWatch.Stop()
	if err := w.kube.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return event{}, err
	}
	down, err := first(ctx, podWatch, "the pod is not ready", func(e watch.Event) bool {
		p, ok := e.Object.(*corev1.Pod)
		return e.Type == watch.Deleted || (ok && (p.DeletionTimestamp != nil || !ready(p)))
	})
	if err != nil {
		return event{}, err
	}
	closed, err := first(ctx, budgetWatch, "the budget is closed elsewhere", func(e watch.Event) bool {
		b, ok := e.Object.(*policyv1.PodDisruptionBudget)
		return ok && (len(b.Spec.Selector.MatchExpressions) > 0 || b.Spec.MinAvailable.IntValue() > n)
	})
	if err != nil {
		return event{}, err
	}
	reports, enough := context.WithCancel(ctx)
	defer enough()
	reported := make(chan result, 1)
	go func() { reported <- w.firstCleanReport(reports) }()
	open, err := first(ctx, budgetWatch, "the budget is at rest", func(e watch.Event) bool {
		b, ok := e.Object.(*policyv1.PodDisruptionBudget)
		return ok && len(b.Spec.Selector.MatchExpressions) == 0 && b.Spec.MinAvailable.IntValue() == n-1
	})
	if err != nil {
		return event{}, err
	}
	var r result
	select {
	case r = <-reported:
	case <-time.After(3 * time.Second): // several report periods: what comes now was not what the keeper waited for
		enough()
		r = <-reported
	}
	if r.err != nil {
		return event{}, r.err
	}
	if r.at.IsZero() {
		return event{pod: pod.Name, reaction: closed.Sub(down), outage: open.Sub(down), reopen: -1}, nil
	}
	if open.Before(r.at) {
		return event{}, fmt.Errorf("the budget was opened %s BEFORE the manager reported that all PGs are clean", r.at.Sub(open))
	}
	return event{pod: pod.Name, reaction: closed.Sub(down), outage: r.at.Sub(down), reopen: open.Sub(r.at)}, nil
}

// runningPod waits for the one ready pod of an OSD; a list shows the one before it, too, while that is terminating.
func (w *world) runningPod(ctx context.Context, selector *metav1.LabelSelector) (*corev1.PodList, *corev1.Pod, error) {
	var seen []string
	for ctx.Err() == nil {
		pods, err := w.kube.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)})
		if err != nil {
			return nil, nil, err
		}
		seen = nil
		var running []*corev1.Pod
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.DeletionTimestamp == nil && ready(p) {
				running = append(running, p)
			}
			seen = append(seen, fmt.Sprintf("%s on %q: %s, ready %t, deleted %v", p.Name, p.Spec.NodeName, p.Status.Phase, ready(p), p.DeletionTimestamp))
		}
		if len(running) == 1 {
			return pods, running[0], nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, nil, fmt.Errorf("in vain for one ready pod: %q: %w", seen, ctx.Err())
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// first returns when an event was received that matches.
func first(ctx context.Context, w watch.Interface, what string, matches func(watch.Event) bool) (time.Time, error) {
	for {
		select {
		case e, ok := <-w.ResultChan():
			now := time.Now()
			if !ok {
				return now, fmt.Errorf("the watch ended before %s", what)
			}
			if matches(e) {
				return now, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("in vain for %s: %w", what, ctx.Err())
		}
	}
}

type result struct {
	at  time.Time
	err error
}

// firstCleanReport polls what the manager reported to the mons. The first report that says "all clean" after one that said
// otherwise is the one that counts: before that, "clean" is old. The result has no time when ctx ended and no report said
// otherwise: the OSD was back before the manager could tell.
func (w *world) firstCleanReport(ctx context.Context) result {
	unclean := false
	for ctx.Err() == nil {
		out, _, err := w.ceph.MonCommand([]byte(`{"prefix":"status","format":"json"}`))
		now := time.Now()
		if err != nil {
			return result{err: err}
		}
		var s struct {
			OSDMap struct {
				Total int `json:"num_osds"`
				Up    int `json:"num_up_osds"`
			} `json:"osdmap"`
			PGMap struct {
				States []struct {
					Name string `json:"state_name"`
				} `json:"pgs_by_state"`
			} `json:"pgmap"`
		}
		if err := json.Unmarshal(out, &s); err != nil {
			return result{err: err}
		}
		clean := true
		for _, x := range s.PGMap.States {
			clean = clean && strings.HasPrefix(x.Name, "active+clean")
		}
		unclean = unclean || !clean
		if unclean && clean && s.OSDMap.Up == s.OSDMap.Total {
			return result{at: now}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return result{}
}
