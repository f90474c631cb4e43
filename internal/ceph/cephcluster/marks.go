package cephcluster

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// witness is a tracker together with the pods that there were before its proof began. What it proves it proves of these
// pods: an OSD that reported after its pod was seen, and in the life that the map tells of, runs in that pod and in no
// earlier one.
type witness struct {
	tracker *pghealth.Tracker
	proof   int            // which of the tracker's proofs the pods belong to
	pods    map[int]string // OSD → the mark of its pod; nil: they could not be listed
	based   int            // the proof for which the numbers of reports were asked for as soon as it began
	flushing
}

// base asks for the numbers of reports as soon as a proof has begun, and not only in the next look: a digest of the
// manager that arrives in between would not count, and the next one is a whole period away.
func (w *witness) base(ctx context.Context, c *cluster, since *early) {
	if w.based == w.tracker.Proofs() {
		return
	}
	w.based = w.tracker.Proofs()
	if since != nil && since.numbers != nil {
		w.tracker.Base(since.at, *since.numbers)
		return
	}
	if e := c.evidence(ctx, w.tracker.Asks()); e != nil {
		w.tracker.Base(time.Now(), *e)
	}
}

// attend lists the pods when a proof has begun, before anybody is asked for a report that counts for it. It tells
// whether the same pods, with the same containers, were there when the proof before this one began: then nobody
// reported in between who runs in an earlier pod.
func (w *witness) attend(ctx context.Context, c *cluster) (same bool) {
	if w.pods != nil && w.proof == w.tracker.Proofs() {
		return false
	}
	before := w.pods
	w.pods, w.proof = nil, w.tracker.Proofs()
	if w.tracker.Proved() {
		return false // too late for this one
	}
	pods, err := c.kube.StoragePods(ctx, c.policy)
	if err != nil {
		return false // then this proof is of no pods
	}
	w.pods = podsByOSD(pods)
	return maps.Equal(before, w.pods)
}

// podsByOSD are the marks that pods of OSDs would carry, by OSD; "" for one that has two pods, of which one has to go
// first.
func podsByOSD(pods []storageview.Pod) map[int]string {
	out := make(map[int]string, len(pods))
	for i := range pods {
		if p := &pods[i]; p.OSD != storageview.NoOSD {
			if _, twice := out[p.OSD]; twice {
				out[p.OSD] = ""
				continue
			}
			out[p.OSD] = p.Mark()
		}
	}
	return out
}

// proved are the pods that the proof is of, as OSD → mark; nil without one. The map is never written to again.
func (w *witness) proved() map[int]string {
	if w.tracker == nil || !w.tracker.Proved() || w.proof != w.tracker.Proofs() {
		return nil
	}
	return w.pods
}

// proofWithin bounds how long Mark waits for reports. At Ceph's default periods two take ten seconds.
const proofWithin = 30 * time.Second

// Mark implements activities.StorageCluster. The proof that the watch made serves if it is of the pods that there are;
// for pods that came later a proof of its own is made. OSDs may come meanwhile, which the budget does not count: so no
// more pods have marks than it does, those included that have one and should not.
func (c *cluster) Mark(
	ctx context.Context, in activities.Marking, beat func(activities.Marked),
) (activities.Marked, error) {
	var out activities.Marked
	own := &witness{}
	for end := time.Now().Add(proofWithin); ; {
		pods, marked, reading, err := c.markable(ctx)
		if err != nil || reading.Unavailable != "" {
			return activities.Marked{Done: out.Done, Left: 1, Reason: reading.Unavailable}, err
		}
		watched, err := c.watched(ctx)
		if err != nil {
			return out, err
		}
		var proved []storageview.Pod
		out.Left = 0
		for _, p := range pods {
			switch ready := in.Unclean || watched[p.OSD] == p.Mark() || own.proved()[p.OSD] == p.Mark(); {
			case p.Proved():
			case !ready, !p.Marked() && in.Most > 0 && marked >= in.Most:
				out.Left++
			default:
				if proved = append(proved, *p); !p.Marked() {
					marked++
				}
			}
		}
		before := out.Done
		n, err := c.kube.MarkPods(ctx, c.policy, proved,
			func(done int) { beat(activities.Marked{Done: before + done, Left: len(proved) - done}) })
		out.Done += n
		out.Left += len(proved) - n
		if err != nil || out.Left == 0 || time.Now().After(end) {
			return out, err
		}
		if out.Reason, err = c.testify(ctx, own, end); err != nil || out.Reason != "" {
			return out, err
		}
	}
}

// testify has a witness watch until its proof is made, and says why there is none.
func (c *cluster) testify(ctx context.Context, w *witness, end time.Time) (reason string, err error) {
	if w.tracker == nil {
		if w.tracker, err = c.newTracker(); err != nil {
			return err.Error(), nil //nolint:nilerr // an answer of its own
		}
	}
	w.tracker.Doubt()
	for {
		health, _, err := c.lookWith(ctx, w, nil)
		switch {
		case err != nil:
			return "", err
		case health.Health.Fresh && health.Health.Clean:
			return "", nil
		case health.Unavailable != "":
			return health.Unavailable, nil
		case health.Health.Fresh || time.Now().After(end):
			return health.Health.Reason, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(lookUnsettle):
		}
	}
}

// watched are the pods of which the watch has proved that their daemons serve and that the data is whole; nil for none.
func (c *cluster) watched(ctx context.Context) (map[int]string, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !c.whole {
		return nil, nil
	}
	return c.watch.proved(), nil
}

// markable lists the pods that may carry a mark, as of a look at Kubernetes and then one at Ceph, and counts those that
// have one, whosever. Who is terminating is none that a budget counts.
func (c *cluster) markable(ctx context.Context) (may []*storageview.Pod, marked int, r ceph.Reading, err error) {
	in, r, err := c.podsThenCeph(ctx)
	if err != nil || r.Unavailable != "" {
		return nil, 0, r, err
	}
	for i := range in.Pods {
		if p := &in.Pods[i]; p.Marked() && p.State != storage.PodTerminating {
			marked++
		}
	}
	return storageview.Markable(in), marked, r, nil
}

func (c *cluster) podsThenCeph(ctx context.Context) (storageview.Input, ceph.Reading, error) {
	in := storageview.Input{
		IDLabel: kube.IDLabel(c.policy), FailureDomainLabel: kube.FailureDomainLabel(c.policy),
		Departed: c.departed.with(nil),
	}
	var err error
	if in.Pods, err = c.kube.StoragePods(ctx, c.policy); err != nil {
		return in, ceph.Reading{}, fmt.Errorf("list OSD pods: %w", err)
	}
	reading, err := c.read(ctx)
	if err != nil || reading.Unavailable != "" {
		return in, reading, err
	}
	in.Map, in.Tree = reading.Map, failuredomain.NewTree(reading.Crush)
	return in, reading, nil
}

// Unmark implements activities.StorageCluster.
func (c *cluster) Unmark(
	ctx context.Context, which activities.Unmarking, beat func(activities.Marked),
) (activities.Marked, error) {
	in, reading, err := c.podsThenCeph(ctx)
	if err != nil {
		return activities.Marked{}, err
	}
	if reading.Unavailable != "" && !which.All {
		return activities.Marked{Reason: reading.Unavailable}, nil
	}
	stay := map[string]bool{}
	if !which.All {
		for _, p := range storageview.Markable(in) {
			stay[p.Name] = true
		}
	}
	var gone []storageview.Pod
	for i := range in.Pods {
		if p := &in.Pods[i]; p.Marked() && !stay[p.Name] {
			gone = append(gone, *p)
		}
	}
	n, err := c.kube.UnmarkPods(ctx, c.policy, gone,
		func(done int) { beat(activities.Marked{Done: done, Left: len(gone) - done}) })
	return activities.Marked{Done: n, Left: len(gone) - n}, err
}
