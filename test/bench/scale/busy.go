package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/bench/crowd"
)

// crowdPatience is how long a keeper may take to open again what it has closed, with so many jobs that wait.
const crowdPatience = 5 * time.Minute

// stopAllBusy has many jobs wait for the lease while one holds that of a failure domain, which is open, and stops OSDs
// elsewhere while the keeper tells all of them where they stand.
func (w *world) stopAllBusy(ctx context.Context, domains, jobs, events int) (reaction []time.Duration, err error) {
	rack := func(d int) storage.FailureDomain { return storage.FailureDomain{Type: "rack", Name: domainName(d)} }
	c, err := crowd.Hold(ctx, w.temporal, storage.ClusterKey{Namespace: namespace, Name: policy}, rack(0))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Disperse(ctx)) }()
	isOpen := func() error { // a keeper that has hundreds to tell opens late
		_, err := w.awaitFor(ctx, crowdPatience, rack(0).String()+" is open",
			func(b *policyv1.PodDisruptionBudget) bool { return slices.Equal(opened(b), []string{rack(0).Name}) })
		return err
	}
	if err := isOpen(); err != nil {
		return nil, err
	}
	var others []storage.FailureDomain
	for d := 1; d < domains; d++ {
		others = append(others, rack(d))
	}
	if err := c.Fill(ctx, jobs, others); err != nil {
		return nil, err
	}
	for i := range events {
		began := time.Now()
		if err := errors.Join(isOpen(), c.Silence(ctx)); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "open and silent after %s\n", time.Since(began).Round(time.Second))
		told, asked, err := c.Busy(ctx)
		if err != nil {
			return nil, err
		}
		osd := w.perNode + i*37%(w.osds-w.perNode) // of any rack but the first
		before := told()
		took, err := w.stop(ctx, osd)
		if err := errors.Join(err, <-asked); err != nil {
			return nil, fmt.Errorf("busy event %d, osd.%d: %w", i+1, osd, err)
		}
		fmt.Fprintf(os.Stderr, "%3d/%d osd.%d: reaction %s; the keeper had told %d of %d jobs before\n", i+1, events, osd,
			took.Round(time.Millisecond), before, jobs)
		reaction = append(reaction, took)
	}
	return reaction, nil
}
