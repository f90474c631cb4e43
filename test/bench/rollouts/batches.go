package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// batch is the OSDs that were stopped together, and when they got how far:
//
//	stopping ── the daemons end ──▶ gone ── making ──▶ made ── start ──▶ up ── recovery ──▶ whole ── handing on ──▶ next
//
// The daemons take the time to end and to start, the storage cluster that to recover. What is left is lockkeeper's: to
// see the last pod gone and make its successor, and from the manager's first report that all data is clean until the
// next batch begins to stop (the lease, noout, the last look), or, after the last one, until the workflow has ended.
type batch struct {
	osds                                   []int
	stopping, gone, made, up, whole, ready time.Time
	next                                   time.Time
}

func (b batch) overhead() time.Duration { return b.making() + b.handingOn() }

// A successor may be made before the last pod of its batch is gone, and a batch begin before we have read the report
// that it rests on: neither takes from what the other cost.
func (b batch) making() time.Duration    { return max(b.made.Sub(b.gone), 0) }
func (b batch) handingOn() time.Duration { return max(b.next.Sub(b.whole), 0) }

func (b batch) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("osd %v: %s = stop %s + make %s + start %s + recovery %s + hand on %s; ready in Kubernetes %s "+
		"after up",
		b.osds, ms(b.next.Sub(b.stopping)), ms(b.gone.Sub(b.stopping)), ms(b.making()), ms(b.up.Sub(b.made)),
		ms(b.whole.Sub(b.up)),
		ms(b.handingOn()), ms(b.ready.Sub(b.up)))
}

// happened is what became of an OSD's pod, or of its daemon.
type happened int

const (
	stopping happened = iota // the pod has its deletion timestamp
	gone                     // the pod is no more
	made                     // its successor is there
	ready                    // the successor is ready
	up                       // the OSD map has the daemon up, in a new life
)

type event struct {
	at   time.Time
	what happened
	osd  int
	zone string // of the pod
}

// report is what the manager says from then on, until the next one.
type report struct {
	at    time.Time
	clean bool
}

// record is all that was seen of a rollout, in the order in which it was seen.
type record struct {
	events  []event
	reports []report
}

// batches takes a record apart. A batch begins with the first pod that is stopped when the data is whole again, or,
// since the manager may not have had the time to tell that it was not, in another unit than the ones before.
func (r record) batches(unit func(event) string, ended time.Time) ([]batch, error) {
	var begins []int // indices of events
	of := ""
	for i, e := range r.events {
		if e.what != stopping {
			continue
		}
		if u := unit(e); len(begins) == 0 || u != of || r.serves(begins[len(begins)-1], i) {
			begins, of = append(begins, i), u
		}
	}
	if len(begins) == 0 {
		return nil, errors.New("no pod was stopped")
	}
	var out []batch
	for n, from := range begins {
		to, next := len(r.events), ended
		if n+1 < len(begins) {
			to = begins[n+1]
			next = r.events[to].at
		}
		b, err := r.batch(r.events[from:to], next)
		if err != nil {
			return out, err
		}
		out = append(out, b)
	}
	return out, nil
}

// serves tells whether every OSD that was stopped since one event was up again at another.
func (r record) serves(from, to int) bool {
	down := map[int]bool{}
	for _, e := range r.events[from:to] {
		switch e.what {
		case stopping:
			down[e.osd] = true
		case up:
			delete(down, e.osd)
		case gone, made, ready:
		}
	}
	return len(down) == 0
}

func (r record) batch(events []event, next time.Time) (batch, error) {
	b := batch{stopping: events[0].at, next: next}
	last := map[happened]*time.Time{gone: &b.gone, made: &b.made, ready: &b.ready, up: &b.up}
	count := map[happened]int{}
	for _, e := range events {
		if e.what == stopping {
			b.osds = append(b.osds, e.osd)
		} else {
			*last[e.what] = e.at
		}
		count[e.what]++
	}
	slices.Sort(b.osds)
	for what, name := range map[happened]string{gone: "gone", made: "made anew", up: "up again"} {
		if count[what] != count[stopping] {
			return b, fmt.Errorf("of OSDs %v, %d of %d were %s before the next ones were stopped", b.osds, count[what],
				count[stopping], name)
		}
	}
	var known bool
	switch b.whole, known = r.wholeAfter(b); {
	case !known:
		return b, fmt.Errorf("OSDs %v: the manager never reported the data whole again", b.osds)
	case b.whole.After(next.Add(readLate)):
		return b, fmt.Errorf("OSDs %v: the manager reported the data whole only %s AFTER the next ones were stopped", b.osds,
			b.whole.Sub(next))
	}
	return b, nil
}

// readLate is how much later than lockkeeper we may read a report.
const readLate = time.Second

// wholeAfter is the first report after all were up that says "clean". The manager's word counts once it has said
// otherwise: what it says before is old. If it never did, they were back before it could tell, and nothing is counted
// as recovery.
func (r record) wholeAfter(b batch) (at time.Time, known bool) {
	unclean := false
	for _, p := range r.reports {
		if p.clean && unclean && !p.at.Before(b.up) {
			return p.at, true
		}
		if !p.at.Before(b.stopping) && !p.at.After(b.next) {
			unclean = !p.clean
		}
	}
	return b.up, !unclean
}
