package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

// askCephEvery is how exactly what Ceph says is dated.
const askCephEvery = 50 * time.Millisecond

// recorder writes down what happens to the pods of a CephOSD and to their OSDs.
type recorder struct {
	mu     sync.Mutex
	record record
	err    error // why something may be missing in the record

	stop func()
	done sync.WaitGroup
}

func (r *recorder) event(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.events = append(r.record.events, e)
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// end stops recording.
func (r *recorder) end() (record, error) {
	r.stop()
	r.done.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record, r.err
}

// startRecording returns when pods are watched and Ceph was asked once: what happens from now on is in the record.
func (w *world) startRecording(ctx context.Context) (*recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	options := metav1.ListOptions{LabelSelector: podspec.OwnerLabel + "=" + podspec.Owner(w.cephOSD)}
	pods, err := w.Kube.CoreV1().Pods(w.namespace).List(ctx, options)
	if err != nil {
		cancel()
		return nil, err
	}
	options.ResourceVersion = pods.ResourceVersion
	changes, err := w.Kube.CoreV1().Pods(w.namespace).Watch(ctx, options)
	if err != nil {
		cancel()
		return nil, err
	}
	lives, err := w.lives()
	if err != nil {
		changes.Stop()
		cancel()
		return nil, err
	}
	r := &recorder{stop: func() { cancel(); changes.Stop() }}
	r.done.Go(func() { r.watchPods(ctx, changes, pods.Items) })
	r.done.Go(func() { w.watchCeph(ctx, r, lives) })
	return r, nil
}

func (r *recorder) watchPods(ctx context.Context, changes watch.Interface, pods []corev1.Pod) {
	known := map[types.UID]happened{} // how far each has come
	for i := range pods {
		known[pods[i].UID] = ready
	}
	for e := range changes.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if ctx.Err() != nil {
			return // the end of a watch may look like an error of it
		}
		if !ok {
			r.fail(fmt.Errorf("the watch of the pods brought %v", e.Object))
			return
		}
		id, err := strconv.Atoi(pod.Labels[podspec.IDLabel])
		if err != nil {
			r.fail(fmt.Errorf("pod %s: label %s: %w", pod.Name, podspec.IDLabel, err))
			continue
		}
		was, had := known[pod.UID]
		tell := func(what happened) {
			known[pod.UID] = what
			r.event(event{at: time.Now(), what: what, osd: id, zone: pod.Labels[podspec.FailureDomainLabel+"zone"]})
		}
		if !had {
			tell(made)
			was = made
		}
		if pod.DeletionTimestamp != nil || e.Type == watch.Deleted {
			if was != stopping {
				tell(stopping)
			}
		} else if was == made && podutils.IsPodReady(pod) {
			tell(ready)
		}
		if e.Type == watch.Deleted {
			tell(gone)
		}
	}
	if ctx.Err() == nil {
		r.fail(errors.New("the watch of the pods ended early"))
	}
}

// watchCeph writes down each new life of an OSD, and each change of the manager's mind.
func (w *world) watchCeph(ctx context.Context, r *recorder, lives map[int]int64) {
	clean := true
	for ; ctx.Err() == nil; time.Sleep(askCephEvery) {
		now, err := w.lives()
		at := time.Now()
		if err != nil {
			r.fail(err)
			return
		}
		for id, from := range now {
			if from > lives[id] {
				lives[id] = from
				r.event(event{at: at, what: up, osd: id})
			}
		}
		is, err := w.clean()
		at = time.Now()
		if err != nil {
			r.fail(err)
			return
		}
		if is != clean {
			clean = is
			r.mu.Lock()
			r.record.reports = append(r.record.reports, report{at: at, clean: is})
			r.mu.Unlock()
		}
	}
}

// lives are the epochs at which the OSDs that are up came up.
func (w *world) lives() (map[int]int64, error) {
	var m struct {
		OSDs []struct {
			OSD    int   `json:"osd"`
			Up     int   `json:"up"`
			UpFrom int64 `json:"up_from"`
		} `json:"osds"`
	}
	if err := lab.Ask(w.ceph, "osd dump", &m); err != nil {
		return nil, err
	}
	out := map[int]int64{}
	for _, o := range m.OSDs {
		if o.Up == 1 {
			out[o.OSD] = o.UpFrom
		}
	}
	return out, nil
}

// clean tells whether all placement groups are, as the manager last reported to the monitors.
func (w *world) clean() (bool, error) {
	var s lab.Status
	err := lab.Ask(w.ceph, "status", &s)
	return s.Clean() && len(s.PGMap.States) > 0, err
}
