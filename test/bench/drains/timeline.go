package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/bench/keeperlog"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/test/bench/spans"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// timeline is one drain, as seen from outside:
//
//	asked ── evictions ──▶ empty ── reboot, uncordon ──▶ back ── recovery ──▶ whole ──▶ ended
//
// What it takes without anybody's help is: the time in which at least one of the node's pods is terminating (evicting);
// from the moment at which the drain says that the node is empty until it is rebooted and uncordoned (away); and from
// there until all OSDs are up, all mons in quorum, and the manager reports all data clean (recovery). Of the rest it
// waits for the storage's own periodical reports (reports): while the keeper asks who lives, and from the recovery on
// until there is a new proof that all data is clean. The overhead is what is left: getting the lease, noout, cordon,
// pauses between evictions, noticing that the node is empty, looking, and giving the lease back.
type timeline struct {
	total                             time.Duration
	evicting, away, recovery, reports time.Duration
	events                            int64 // in the drain's own history
}

func (t timeline) overhead() time.Duration {
	return t.total - t.evicting - t.away - t.recovery - t.reports
}

func (t timeline) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s = evicting %s + away %s + recovery %s + reports %s + overhead %s",
		ms(t.total), ms(t.evicting), ms(t.away), ms(t.recovery), ms(t.reports), ms(t.overhead()))
}

// drain drains a node with lockkeeper, reboots and uncordons it.
func (w *world) drain(ctx context.Context, node string) (timeline, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	evicting, stop, err := w.watchEvictions(ctx, node)
	if err != nil {
		return timeline{}, err
	}
	asked := time.Now()
	job, err := w.Temporal.ExecuteWorkflow(ctx,
		client.StartWorkflowOptions{ID: jobs.DrainNode.ID(node), TaskQueue: workflows.TaskQueue},
		jobs.DrainNode.Type, workflows.DrainNodeInput{Node: node, Reason: "bench"})
	if err != nil {
		return timeline{}, err
	}
	if err := w.awaitEmpty(ctx, job); err != nil {
		return timeline{}, err
	}
	empty := time.Now()
	stop()
	// From now on, while the node is away: a node that is back soon may be whole again before anybody asks.
	whole := make(chan error, 1)
	var wholeAt time.Time
	go func() { whole <- w.awaitWhole(ctx, &wholeAt) }()
	if err := lab.Command(ctx, "lab", "fault", "node-reboot", node, "--name", w.lab); err != nil {
		return timeline{}, err
	}
	if err := lab.Command(ctx, "kubectl", "uncordon", node); err != nil {
		return timeline{}, err
	}
	back := time.Now()
	var result workflows.DrainNodeResult
	if err := job.Get(ctx, &result); err != nil {
		return timeline{}, err
	}
	ended := time.Now()
	if result.Outcome != workflows.OutcomeDone {
		return timeline{}, fmt.Errorf("it ended with %q", result.Outcome)
	}
	if err := <-whole; err != nil {
		return timeline{}, err
	}
	if wholeAt.After(ended) {
		return timeline{}, fmt.Errorf("it ended %s BEFORE all was whole", wholeAt.Sub(ended))
	}
	d, err := w.Temporal.DescribeWorkflowExecution(ctx, job.GetID(), job.GetRunID())
	if err != nil {
		return timeline{}, err
	}
	log, err := keeperlog.Read(ctx, w.Temporal, w.keeperID(), asked)
	if err != nil {
		return timeline{}, err
	}
	evicted := <-evicting
	own := spans.Without([]spans.Span{{From: asked, To: ended}},
		append(slices.Clone(evicted), spans.Span{From: empty, To: wholeAt}))
	return timeline{
		total: ended.Sub(asked), evicting: spans.Length(evicted), away: back.Sub(empty), recovery: max(wholeAt.Sub(back), 0),
		reports: spans.Length(own) - spans.Length(spans.Without(own, reportWaits(log, wholeAt))),
		events:  d.WorkflowExecutionInfo.HistoryLength,
	}, nil
}

func (w *world) awaitEmpty(ctx context.Context, job client.WorkflowRun) error {
	return w.until(ctx, "the node to be empty", func() (bool, error) {
		v, err := w.Temporal.QueryWorkflow(ctx, job.GetID(), job.GetRunID(), workflows.QueryStatus)
		if err != nil {
			return false, err
		}
		var s workflows.DrainStatus
		return v.Get(&s) == nil && s.Phase == workflows.PhaseReturn, nil
	})
}

// awaitWhole waits until all is whole. The manager's word counts once it has said otherwise: what it says first is old.
func (w *world) awaitWhole(ctx context.Context, at *time.Time) error {
	unclean := false
	return w.until(ctx, "the storage to be whole", func() (bool, error) {
		whole, clean := w.cephIsWhole()
		unclean = unclean || !clean
		*at = time.Now()
		return whole && unclean, nil
	})
}

// watchEvictions measures, until stop is called, for how long at least one of a node's pods was terminating.
func (w *world) watchEvictions(ctx context.Context, node string) (took <-chan []spans.Span, stop func(), err error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	pods, err := w.Kube.CoreV1().Pods(w.namespace).List(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	options.ResourceVersion = pods.ResourceVersion
	changes, err := w.Kube.CoreV1().Pods(w.namespace).Watch(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	out := make(chan []spans.Span, 1)
	go func() {
		terminating := map[types.UID]bool{}
		var all []spans.Span
		var since time.Time
		for e := range changes.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			before := len(terminating)
			switch {
			case e.Type == watch.Deleted:
				delete(terminating, pod.UID)
			case pod.DeletionTimestamp != nil:
				terminating[pod.UID] = true
			}
			switch {
			case before == 0 && len(terminating) > 0:
				since = time.Now()
			case before > 0 && len(terminating) == 0:
				all = append(all, spans.Span{From: since, To: time.Now()})
			}
		}
		out <- all
	}()
	return out, changes.Stop, nil
}
