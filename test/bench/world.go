package main

import (
	"context"
	"fmt"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// patience is how long one step of an event may take before the run is given up.
const patience = 2 * time.Minute

type world struct {
	lab.Lab
	ceph      *cephrados.Conn
	namespace string
	policy    string
}

type event struct {
	pod                      string
	reaction, outage, reopen time.Duration
	// from the first clean report until all OSDs had reported since they were up; not of reopen
	reports time.Duration
	// of reopen: from the budgets' writing until the disruption controller had counted the pods
	counted time.Duration
}

func newWorld(ctx context.Context, namespace, policy string) (*world, error) {
	l, err := lab.Connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{Lab: l, namespace: namespace, policy: policy}
	if w.ceph, err = lab.Ceph(); err != nil {
		return nil, err
	}
	if _, err := w.Kube.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, kube.ProvedBudgetName(policy),
		metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("lockkeeper is not at work here: %w", err)
	}
	return w, nil
}

func (w *world) close() {
	w.Temporal.Close()
	w.ceph.Shutdown()
}

func (w *world) cluster() storage.ClusterKey {
	return storage.ClusterKey{Namespace: w.namespace, Name: w.policy}
}

func (w *world) keeperID() string { return workflows.KeeperID(w.cluster()) }

// osds are the Deployments of the OSDs.
func (w *world) osds(ctx context.Context) ([]appsv1.Deployment, error) {
	list, err := w.Kube.AppsV1().Deployments(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-osd"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// stop is the end of an OSD's pod, as it is watched.
type stop struct {
	pod     *corev1.Pod
	budgets *watching
	down    time.Time // when it was not ready
	closed  time.Time // when the budgets let nobody go elsewhere
}

// stopOSD deletes the pod of an OSD, which its Deployment replaces at once, and returns when the budgets are closed
// elsewhere. The pod goes as soon as ready says so. The budgets are to be stopped being watched afterwards.
func (w *world) stopOSD(ctx context.Context, osd appsv1.Deployment, ready func() error) (s stop, err error) {
	pods, pod, err := w.runningPod(ctx, osd.Spec.Selector)
	if err != nil {
		return stop{}, err
	}
	podWatch, err := w.Kube.CoreV1().Pods(w.namespace).Watch(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pods.ResourceVersion})
	if err != nil {
		return stop{}, err
	}
	defer podWatch.Stop()
	s = stop{pod: pod}
	if s.budgets, err = w.watchBudgets(ctx); err != nil {
		return stop{}, err
	}
	defer func() {
		if err != nil {
			s.budgets.Stop()
		}
	}()
	if err := ready(); err != nil {
		return stop{}, err
	}
	if err := w.Kube.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return stop{}, err
	}
	if s.down, err = first(ctx, podWatch, "the pod is not ready", func(e watch.Event) bool {
		p, ok := e.Object.(*corev1.Pod)
		return e.Type == watch.Deleted || (ok && (p.DeletionTimestamp != nil || !podutils.IsPodReady(p)))
	}); err != nil {
		return stop{}, err
	}
	s.closed, err = s.budgets.until(ctx, "the budgets are closed elsewhere",
		func(b budgets) bool { return b.closedElsewhere(pod.Labels) })
	return s, err
}

// stopOne stops the i-th OSD of a cluster at rest, and follows what happens until it is at rest again.
func (w *world) stopOne(ctx context.Context, i int) (event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	osds, err := w.osds(ctx)
	if err != nil {
		return event{}, err
	}
	s, err := w.stopOSD(ctx, osds[i%len(osds)], func() error { return nil })
	if err != nil {
		return event{}, err
	}
	defer s.budgets.Stop()
	reports, enough := context.WithCancel(ctx)
	defer enough()
	reported := make(chan result, 1)
	go func() { reported <- w.firstCleanReport(reports) }()
	rest, err := s.budgets.until(ctx, "the budgets are at rest", func(b budgets) bool { return b.atRest(len(osds)) })
	if err != nil {
		return event{}, err
	}
	open, err := s.budgets.until(ctx, "one OSD may go", budgets.letsOneGo)
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
	reaction, err := w.reaction(ctx, s)
	if err != nil {
		return event{}, err
	}
	e := event{pod: s.pod.Name, reaction: reaction, outage: open.Sub(s.down), counted: open.Sub(rest), reopen: -1}
	if r.clean.IsZero() {
		return e, nil
	}
	if open.Before(r.clean) {
		return event{}, fmt.Errorf("the budgets were opened %s BEFORE the manager reported that all PGs are clean",
			r.clean.Sub(open))
	}
	known := r.clean
	if r.proved.After(r.clean) && r.proved.Before(open) {
		known = r.proved
	}
	e.outage, e.reports, e.reopen = r.clean.Sub(s.down), known.Sub(r.clean), open.Sub(known)
	return e, nil
}

// watching follows the budgets.
type watching struct {
	watch.Interface
	seen budgets
}

func (w *world) watchBudgets(ctx context.Context) (*watching, error) {
	api := w.Kube.PolicyV1().PodDisruptionBudgets(w.namespace)
	mine := metav1.ListOptions{LabelSelector: kube.LabelPolicy + "=" + w.policy}
	list, err := api.List(ctx, mine)
	if err != nil {
		return nil, err
	}
	b := &watching{seen: budgets{}}
	for i := range list.Items {
		b.seen.note(&list.Items[i])
	}
	mine.ResourceVersion = list.ResourceVersion
	b.Interface, err = api.Watch(ctx, mine)
	return b, err
}

// until returns when the budgets are so; at once, if they are.
func (b *watching) until(ctx context.Context, what string, are func(budgets) bool) (time.Time, error) {
	if are(b.seen) {
		return time.Now(), nil
	}
	at, err := first(ctx, b, what, func(e watch.Event) bool {
		p, ok := e.Object.(*policyv1.PodDisruptionBudget)
		if !ok || e.Type == watch.Deleted {
			return false
		}
		b.seen.note(p)
		return are(b.seen)
	})
	if err != nil {
		for _, p := range b.seen.both() {
			if p != nil {
				err = fmt.Errorf("%w; %s: %s must stay, %s may go, except %v", err, p.Name, p.Spec.MinAvailable,
					p.Spec.MaxUnavailable, exceptions(p))
			}
		}
	}
	return at, err
}

// runningPod waits for the one ready pod of an OSD; a list shows the one before it, too, while that is terminating.
func (w *world) runningPod(ctx context.Context, selector *metav1.LabelSelector) (*corev1.PodList, *corev1.Pod, error) {
	var seen []string
	for ctx.Err() == nil {
		pods, err := w.Kube.CoreV1().Pods(w.namespace).List(ctx,
			metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)})
		if err != nil {
			return nil, nil, err
		}
		seen = nil
		var running []*corev1.Pod
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.DeletionTimestamp == nil && podutils.IsPodReady(p) {
				running = append(running, p)
			}
			seen = append(seen, fmt.Sprintf("%s on %q: %s, ready %t, deleted %v", p.Name, p.Spec.NodeName, p.Status.Phase,
				podutils.IsPodReady(p), p.DeletionTimestamp))
		}
		if len(running) == 1 {
			return pods, running[0], nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, nil, fmt.Errorf("in vain for one ready pod: %q: %w", seen, ctx.Err())
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

// result is when the manager first reported that all is clean, and when it was proved that this is not old.
type result struct {
	clean, proved time.Time
	err           error
}

// firstCleanReport polls what the manager reported to the mons. The first report that says "all clean" after one that
// said otherwise is the one that counts: before that, "clean" is old. The result has no times when ctx ended and no
// report said otherwise: the OSD was back before the manager could tell.
func (w *world) firstCleanReport(ctx context.Context) (r result) {
	var (
		unclean bool
		p       proof
	)
	for ctx.Err() == nil && (r.clean.IsZero() || r.proved.IsZero()) {
		var s lab.Status
		err := lab.Ask(w.ceph, "status", &s)
		now, clean := time.Now(), s.Clean()
		if err != nil {
			return result{err: err}
		}
		unclean = unclean || !clean
		back := unclean && s.OSDMap.Up == s.OSDMap.Total
		if back && clean && r.clean.IsZero() {
			r.clean = now
		}
		if back && r.proved.IsZero() {
			numbers, err := w.reportNumbers(s.OSDMap.Total)
			if err != nil {
				return result{err: err}
			}
			if p.made(numbers) {
				r.proved = time.Now()
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return r
}
