package cephcluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// How often the numbers of reports are looked at while an answer is awaited, and while an OSD is known to be silent.
const (
	lookForLife   = 75 * time.Millisecond
	lookForSilent = time.Second
)

// nobodyReports is after what time all OSDs count as silent when no report at all arrives: with a manager that is dead,
// say.
const nobodyReports = 20 * time.Second

// managerless is how long no manager may be active before the mons' word has to do. Without a manager no report arrives
// anywhere, and it may be waiting for just the node that waits for the answer. By then peers have told the mons of an
// OSD that hangs: osd_heartbeat_grace is 20 s.
const managerless = 45 * time.Second

// Life implements activities.StorageCluster. It asks Ceph only, and keeps nothing: what one question found out answers
// no other.
func (c *cluster) Life(ctx context.Context, in activities.Asking, beat func()) (storage.Life, error) {
	outside := func(tree *failuredomain.Tree, id int) bool {
		return in.Outside.IsZero() || tree.Find(id, in.Outside.Type) != in.Outside.Name
	}
	q := question{cluster: c, about: outside, began: time.Now()}
	for {
		if err := q.look(ctx); err != nil {
			return storage.Life{}, err
		}
		answer, answered := q.answer(in.Outside)
		if answered && (answer.Silent == 0 || in.Known == nil || !reflect.DeepEqual(answer, *in.Known)) {
			return answer, nil
		}
		beat()
		pause := lookForLife
		if answered || in.Known != nil {
			pause = lookForSilent
		}
		select {
		case <-ctx.Done():
			return storage.Life{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Life asks whether every OSD that is up lives, but for some. It waits until all do, or until some have missed their
// turn.
func (c *Clusters) Life(ctx context.Context, key storage.ClusterKey, except []int) (storage.Life, error) {
	x, err := c.cluster(ctx, key)
	if err != nil {
		return storage.Life{}, err
	}
	q := question{
		cluster: x, about: func(_ *failuredomain.Tree, id int) bool { return !slices.Contains(except, id) },
		began: time.Now(),
	}
	for {
		if err := q.look(ctx); err != nil {
			return storage.Life{}, err
		}
		if answer, answered := q.answer(storage.FailureDomain{}); answered {
			return answer, nil
		}
		select {
		case <-ctx.Done():
			return storage.Life{}, ctx.Err()
		case <-time.After(lookForLife):
		}
	}
}

// question is one that is being asked.
type question struct {
	*cluster
	about func(*failuredomain.Tree, int) bool // the OSDs that matter
	began time.Time
	deaf  time.Time // since when no manager is active; zero: one is

	round      *pghealth.Round
	manager    ceph.Manager
	election   int64        // of the quorum in which the round began
	elected    bool         // the round was begun anew because of an election
	osds       *ceph.OSDMap // that the round knows of
	tree       *failuredomain.Tree
	domainType string
	flushed    time.Time      // when OSDs were last told to report
	answers    <-chan flushed // of those that were told; nil: nobody is awaited
}

// look looks once at who is up and who has reported.
func (q *question) look(ctx context.Context) error {
	reading, err := q.read(ctx)
	if err != nil {
		return err
	}
	if reading.Unavailable != "" {
		return errors.New(reading.Unavailable)
	}
	if q.osds != reading.Map {
		q.osds, q.tree = reading.Map, failuredomain.NewTree(reading.Crush)
		q.domainType = failuredomain.OSDType
		if smallest, err := q.tree.Smallest(reading.Map.Pools); err == nil {
			q.domainType = smallest.Type
		}
		if q.round != nil {
			q.round.Update(q.up())
		}
	}
	switch {
	case reading.Status.MgrMap.Available:
		q.deaf = time.Time{}
	case q.deaf.IsZero():
		q.deaf = time.Now()
	}
	elected := q.round != nil && q.election != reading.Status.ElectionEpoch
	q.elected = q.elected || elected
	if elected || q.round == nil {
		// What the manager told the mons while they had no quorum is news now, and may be from before an OSD hung.
		q.round, q.election = pghealth.NewRound(q.up(), nil), reading.Status.ElectionEpoch
	}
	q.hurry(ctx)
	if evidence := q.evidence(ctx, q.round.Asks()); evidence != nil {
		if q.manager != (ceph.Manager{}) && q.manager != evidence.Manager {
			q.round = pghealth.NewRound(q.up(), nil)
		}
		q.manager = evidence.Manager
		q.round.Weigh(time.Now(), evidence.Reports)
	}
	return nil
}

// hurry asks the OSDs themselves, where that is allowed: whoever answers lives. The others may still report.
func (q *question) hurry(ctx context.Context) {
	if q.answers != nil {
		select {
		case answer := <-q.answers:
			q.round.Answered(answer.asked, answer.reports)
			q.answers = nil
		case <-time.After(lookForLife): // most answer within milliseconds
			return
		case <-ctx.Done():
			return
		}
	}
	if silent := q.round.Silent(); len(silent) > 0 && q.mayFlush() && time.Since(q.flushed) >= flushAgain {
		q.flushed, q.answers = time.Now(), q.flush(ctx, 0, silent)
		q.hurry(ctx)
	}
}

// up are the OSDs that matter and are up, and since when.
func (q *question) up() map[int]int64 {
	up := map[int]int64{}
	for i := range q.osds.OSDs {
		if o := &q.osds.OSDs[i]; bool(o.Up) && q.about(q.tree, o.ID) {
			up[o.ID] = o.UpFrom
		}
	}
	return up
}

// answer is what is known by now; false when it is too early to say.
func (q *question) answer(outside storage.FailureDomain) (storage.Life, bool) {
	l := storage.Life{Outside: outside}
	silent := q.round.Silent()
	if len(silent) > 0 && !q.deaf.IsZero() && time.Since(q.deaf) >= managerless {
		l.Unproven = fmt.Sprintf("no manager has been active for %s, so that no OSD can give a sign of life", managerless)
		return l, true
	}
	if len(silent) > 0 && !q.round.Overdue() && time.Since(q.began) < nobodyReports {
		return l, false
	}
	l.Silent = len(silent)
	if len(silent) > 0 && q.elected {
		l.Meanwhile = "the mons elected a leader, and what an OSD reported before that does not count"
	}
	for _, id := range silent[:min(mostExamples, len(silent))] {
		l.Examples = append(l.Examples, named(id, q.domainType, q.tree.Find(id, q.domainType)))
	}
	return l, true
}
