package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/test/bench/keeperlog"
)

// proofLasts is how long the last proof of PG health may answer for the next question who lives, with a margin.
const proofLasts = 2 * time.Second

// openOne cordons a node of the i-th OSD, so that its failure domain opens, and takes that back. It returns how long
// that took from the cordon.
func (w *world) openOne(ctx context.Context, i int) (node string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	osds, err := w.osds(ctx)
	if err != nil {
		return "", 0, err
	}
	osd := osds[i%len(osds)]
	_, pod, err := w.runningPod(ctx, osd.Spec.Selector)
	if err != nil {
		return "", 0, err
	}
	b, err := w.watchBudgets(ctx)
	if err != nil {
		return "", 0, err
	}
	defer b.Stop()
	node = pod.Spec.NodeName
	cordoned := time.Now()
	if err := w.cordon(ctx, node, true); err != nil {
		return "", 0, err
	}
	opened, err := b.until(ctx, "its zone is open", func(b budgets) bool { return b.opensFor(pod.Labels[zoneLabel]) })
	if err != nil {
		_ = w.cordon(context.WithoutCancel(ctx), node, false)
		return "", 0, err
	}
	if err := w.cordon(ctx, node, false); err != nil {
		return "", 0, err
	}
	_, err = b.until(ctx, "the budgets are at rest", func(b budgets) bool { return b.atRest(len(osds)) })
	return node, opened.Sub(cordoned), err
}

func (w *world) cordon(ctx context.Context, node string, is bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, is)
	_, err := w.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// signsOfLife is how long each question for signs of life took that the keeper asked since, from the asking until
// everybody had given one.
func (w *world) signsOfLife(ctx context.Context, since time.Time) ([]time.Duration, error) {
	log, err := keeperlog.Read(ctx, w.Temporal, w.keeperID(), since)
	if err != nil {
		return nil, err
	}
	var out []time.Duration
	for _, q := range log.Questions {
		if q.Answered {
			out = append(out, q.Ended.Sub(q.Asked))
		}
	}
	return out, nil
}
