package main

import (
	"context"
	"errors"
	"sync"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

// recorder writes down what happens to the pods of mons and to their quorum.
type recorder struct {
	mu   sync.Mutex
	seen seen
	err  error // why something may be missing

	stop func()
	done sync.WaitGroup
}

// end stops recording.
func (r *recorder) end() error {
	r.stop()
	r.done.Wait()
	return r.err
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (w *world) startRecording(ctx context.Context) (*recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	changes, err := w.Kube.CoreV1().Pods(w.namespace).Watch(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-mon"})
	if err != nil {
		cancel()
		return nil, err
	}
	r := &recorder{stop: cancel, seen: seen{pods: map[string]*podTimes{}, joined: map[string]time.Time{}}}
	r.done.Go(func() { r.watchPods(ctx, changes) })
	r.done.Go(func() { r.watchQuorum(ctx, w.ceph) })
	for range clients {
		client, err := lab.Ceph() // a question that waits for a commit has those after it wait, too
		if err != nil {
			return nil, errors.Join(err, r.end())
		}
		r.done.Go(func() {
			defer client.Shutdown()
			r.commit(ctx, client)
		})
	}
	return r, nil
}

func (r *recorder) watchPods(ctx context.Context, changes watch.Interface) {
	defer changes.Stop()
	for e := range changes.ResultChan() {
		if pod, ok := e.Object.(*corev1.Pod); ok {
			r.mu.Lock()
			r.seen.takePod(pod, time.Now())
			r.mu.Unlock()
		}
	}
	if ctx.Err() == nil {
		r.fail(errors.New("the API server has ended the watch of pods"))
	}
}

// takePod notes how far a pod is. Of each mon the first pod counts.
func (s *seen) takePod(p *corev1.Pod, now time.Time) {
	mon := p.Labels[kube.MonLabel]
	t := s.pods[mon]
	if t == nil {
		t = &podTimes{made: now}
		s.pods[mon] = t
	}
	note := func(at *time.Time, when bool) {
		if when && at.IsZero() {
			*at = now
		}
	}
	for i := range p.Status.InitContainerStatuses {
		state := p.Status.InitContainerStatuses[i].State
		note(&t.mkfs, state.Running != nil || state.Terminated != nil)
		note(&t.whole, state.Terminated != nil)
	}
	for i := range p.Status.ContainerStatuses {
		note(&t.started, p.Status.ContainerStatuses[i].State.Running != nil)
	}
}

// askEvery is how exactly the coming of a quorum is dated.
const askEvery = 50 * time.Millisecond

// watchQuorum notes when Ceph names a mon in quorum for the first time.
func (r *recorder) watchQuorum(ctx context.Context, ceph *cephrados.Conn) {
	for ; ctx.Err() == nil; time.Sleep(askEvery) {
		var answer struct {
			Names []string `json:"quorum_names"`
		}
		if lab.Ask(ceph, "quorum_status", &answer) != nil {
			continue // the one who commits tells how long nobody was answered
		}
		r.mu.Lock()
		for _, name := range answer.Names {
			if r.seen.joined[name].IsZero() {
				r.seen.joined[name] = time.Now()
			}
		}
		r.mu.Unlock()
	}
}

// clients are more than mons that leave at once, so that some of them are connected to mons that stay.
const clients = 5

// commit has the mons commit something all the time. Who gets no answer asks again, and has waited since it first did.
func (r *recorder) commit(ctx context.Context, ceph *cephrados.Conn) {
	command := []byte(`{"prefix":"config-key set","key":"bench/mons","val":"1"}`)
	for began := time.Now(); ctx.Err() == nil; time.Sleep(askEvery) {
		if _, _, err := ceph.MonCommand(command); err != nil {
			continue
		}
		now := time.Now()
		r.mu.Lock()
		r.seen.answered, r.seen.longestWait = append(r.seen.answered, now), max(r.seen.longestWait, now.Sub(began))
		r.mu.Unlock()
		began = now
	}
}
