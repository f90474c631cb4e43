package main

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/bench/crowd"
)

const zoneLabel = "topology-location-zone"

func zoneOf(osd appsv1.Deployment) storage.FailureDomain {
	return storage.FailureDomain{Type: "zone", Name: osd.Spec.Template.Labels[zoneLabel]}
}

// crowded is a world in which one job holds the lease of a zone, which is open meanwhile, and many others wait for that
// of another.
type crowded struct {
	*world
	*crowd.Crowd
	held storage.FailureDomain
	osds []appsv1.Deployment // of the other zones
}

// crowd returns when all jobs have asked. The crowd is to be dispersed even if it is returned with an error.
func (w *world) crowd(ctx context.Context, jobs int) (*crowded, error) {
	osds, err := w.osds(ctx)
	if err != nil {
		return nil, err
	}
	c := &crowded{world: w, held: zoneOf(osds[0])}
	var others []storage.FailureDomain
	for _, osd := range osds {
		if zone := zoneOf(osd); zone != c.held {
			c.osds, others = append(c.osds, osd), append(others, zone)
		}
	}
	if c.Crowd, err = crowd.Hold(ctx, w.Temporal, w.cluster(), c.held); err != nil {
		return nil, err
	}
	if err := c.isOpen(ctx); err != nil {
		return c, err
	}
	return c, c.Fill(ctx, jobs, others)
}

// isOpen waits until the zone is open of which the lease is held.
func (c *crowded) isOpen(ctx context.Context) error {
	b, err := c.watchBudgets(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()
	_, err = b.until(ctx, c.held.String()+" is open", func(b budgets) bool { return b.opensFor(c.held.Name) })
	return err
}

// busy is one event: an OSD elsewhere stops while the keeper tells everybody where they stand.
type busy struct {
	pod          string
	reaction     time.Duration
	before, then int64 // jobs that had been told when the pod was to go, and when the budgets were closed
}

// stopOneMeanwhile has all jobs ask again, and stops an OSD of another zone than the one that is open once the keeper
// has begun to tell them.
func (c *crowded) stopOneMeanwhile(ctx context.Context, i int) (busy, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*patience) // a keeper that has hundreds to tell opens late
	defer cancel()
	if err := c.isOpen(ctx); err != nil {
		return busy{}, err
	}
	if err := c.Silence(ctx); err != nil {
		return busy{}, err
	}
	var e busy
	var told func() int64
	var asked <-chan error
	s, err := c.stopOSD(ctx, c.osds[i%len(c.osds)], func() (err error) {
		if told, asked, err = c.Busy(ctx); err == nil {
			e.before = told()
		}
		return err
	})
	if err != nil {
		return busy{}, err
	}
	s.budgets.Stop()
	e.pod, e.then = s.pod.Name, told()
	if err := <-asked; err != nil {
		return busy{}, err
	}
	e.reaction, err = c.reaction(ctx, s)
	return e, err
}
