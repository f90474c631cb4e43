package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

// This file watches the API server and asks Ceph, and writes both into the journal.

var (
	machines = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machines"}
	budgets  = schema.GroupVersionResource{
		Group: "healthchecking.openshift.io", Version: "v1alpha1", Resource: "machinedisruptionbudgets",
	}
)

const (
	osdsOnly = "app=rook-ceph-osd"
	daemons  = "app in (rook-ceph-osd, rook-ceph-mon)"
	// askEvery is how exactly it is dated what Ceph says.
	askEvery = 10 * time.Millisecond
)

// recorder fills the journal until it is ended.
type recorder struct {
	journal *journal
	stop    func()
	done    sync.WaitGroup

	mu  sync.Mutex
	err error // why something may be missing
}

func (r *recorder) end() error {
	r.stop()
	r.done.Wait()
	return r.failed()
}

func (r *recorder) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// source is one kind of object that is watched. Each event is handed over with the time at which it came.
type source struct {
	what  string
	watch func(context.Context) (watch.Interface, error)
	take  func(at time.Time, e watch.Event)
}

func (b *bench) startRecording(ctx context.Context) (*recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &recorder{journal: newJournal(), stop: cancel}
	for _, s := range b.sources(r.journal) {
		events, err := s.watch(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", s.what, err), r.end())
		}
		r.done.Go(func() {
			defer events.Stop()
			for e := range events.ResultChan() {
				s.take(time.Now(), e)
			}
			if ctx.Err() == nil {
				r.fail(fmt.Errorf("the API server has ended the watch of %s", s.what))
			}
		})
	}
	r.done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(askEvery) {
			b.askCeph(r.journal)
		}
	})
	return r, nil
}

// A watch without a version begins with what is there.
func (b *bench) sources(j *journal) []source {
	label := "fencegroup.rook.io/" + b.policy
	return []source{
		{"Machines", func(ctx context.Context) (watch.Interface, error) {
			return b.dyn.Resource(machines).Namespace(b.machines).Watch(ctx, metav1.ListOptions{})
		}, func(at time.Time, e watch.Event) { j.takeMachine(at, e, label) }},
		{"MachineDisruptionBudgets", func(ctx context.Context) (watch.Interface, error) {
			return b.dyn.Resource(budgets).Namespace(b.machines).Watch(ctx, metav1.ListOptions{
				FieldSelector: "metadata.name=" + b.policy,
			})
		}, j.takeBudget},
		{"pods", func(ctx context.Context) (watch.Interface, error) {
			return b.api.Kube.CoreV1().Pods(b.namespace).Watch(ctx, metav1.ListOptions{LabelSelector: daemons})
		}, func(at time.Time, e watch.Event) { j.takePod(at, e) }},
		{"nodes", func(ctx context.Context) (watch.Interface, error) {
			return b.api.Kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		}, func(_ time.Time, e watch.Event) { j.takeNode(e.Object) }},
	}
}

// takeMachine: a Machine is held as long as it carries the label by which the budget selects it.
func (j *journal) takeMachine(at time.Time, e watch.Event, label string) {
	m, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
	if e.Type == watch.Deleted {
		j.dismiss(node)
		return
	}
	_, held := m.GetLabels()[label]
	j.note(at, change{hasHold, node, held})
}

func (j *journal) takeBudget(at time.Time, e watch.Event) {
	b, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	most, found, err := unstructured.NestedInt64(b.Object, "spec", "maxUnavailable")
	// Without a number it holds nobody.
	j.note(at, change{letsOneGo, "", e.Type == watch.Deleted || err != nil || !found || most != 0})
}

// takePod notes where a daemon lives, and whether it is to end. Of a pod that is gone the next one tells.
func (j *journal) takePod(at time.Time, e watch.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	daemon := pod.Labels["app"][len("rook-ceph-"):] + "." + pod.Labels["ceph_daemon_id"]
	if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
		j.livesOn(daemon, pod.Spec.NodeName)
	}
	j.note(at, change{leaving, daemon, e.Type != watch.Deleted && pod.DeletionTimestamp != nil})
}

func (j *journal) takeNode(o runtime.Object) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			since := c.LastTransitionTime.Time
			if c.Status == corev1.ConditionTrue {
				since = time.Time{}
			}
			j.readiness(node.Name, since)
		}
	}
}

// askCeph takes in one look, and judges what was released before it began. A question that nobody answers tells
// nothing: the next one does.
func (b *bench) askCeph(j *journal) {
	began := time.Now()
	var now osdMap
	var status lab.Status
	if b.dump(0, &now) != nil || lab.Ask(b.ceph, "status", &status) != nil {
		return
	}
	at := time.Now()
	for _, o := range now.OSDs {
		c := change{serves, fmt.Sprintf("osd.%d", o.OSD), o.Up == 1}
		if c.is || !j.news(c) {
			j.note(at, c)
			continue
		}
		// Asking may have taken seconds, while the mons elected one of them: the map that says so tells when it was made.
		var then osdMap
		made, err := time.Time{}, b.dump(o.DownAt, &then)
		if err == nil {
			made, err = time.Parse("2006-01-02T15:04:05.999999-0700", then.Modified)
		}
		if err != nil {
			return
		}
		j.note(made, c)
	}
	j.quorum(at, status.Quorum)
	j.note(at, change{clean, "", status.Clean()})
	j.judge(began)
}

// osdMap is one map of the OSDs. DownAt is the map in which an OSD went down last.
type osdMap struct {
	Modified string
	OSDs     []struct {
		OSD, Up int
		DownAt  int `json:"down_at"`
	}
}

// dump asks for the map of an epoch; 0 is the last one.
func (b *bench) dump(epoch int, answer *osdMap) error {
	ask := map[string]any{"prefix": "osd dump", "format": "json"}
	if epoch > 0 {
		ask["epoch"] = epoch
	}
	request, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	out, _, err := b.ceph.MonCommand(request)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, answer)
}

// quorum notes which of the known mons are in it.
func (j *journal) quorum(at time.Time, names []string) {
	in := map[string]bool{}
	for _, name := range names {
		in["mon."+name] = true
	}
	for _, mon := range j.mons() {
		j.note(at, change{serves, mon, in[mon]})
	}
}
