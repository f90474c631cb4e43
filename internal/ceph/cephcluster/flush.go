package cephcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// This file has OSDs report at once, where the policy allows that and the Ceph user may. It only saves time: what
// counts is still the number of a report and the summary that came with it, and without an answer reports are waited
// for.

const (
	// flushSettles is how long after a change of placement was seen OSDs have had the time to take it in. What they flush
	// before may be of the time before.
	flushSettles = time.Second
	// flushAgain is how long after a flush the next one may begin, for OSDs that have not answered, or whose data was not
	// whole yet.
	flushAgain = 2 * time.Second
	// flushHealing is for how long after a proof OSDs are told to report that their data is whole. Who heals for longer
	// can wait for a report.
	flushHealing = 20 * time.Second
	// flushWithin bounds one flush. An OSD that hangs answers nobody.
	flushWithin = 3 * time.Second
	// refusedFor is how long nobody tries again after Ceph refused: rights do not change often.
	refusedFor = time.Minute
)

// refusal is why OSDs could not be told to report.
type refusal struct {
	mu     sync.Mutex
	reason string
	until  time.Time
}

func (r *refusal) set(reason string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reason, r.until = reason, until
}

func (r *refusal) get() (reason string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason, r.until
}

// mayFlush tells whether OSDs may be told to report now.
func (c *cluster) mayFlush() bool {
	_, until := c.refused.get()
	return c.policy.Spec.Ceph.FlushPGStats && time.Now().After(until)
}

// flushNote says what came of spec.ceph.flushPGStats; "" if that is as it should be.
func (c *cluster) flushNote() string {
	reason, _ := c.refused.get()
	if reason == "" || !c.policy.Spec.Ceph.FlushPGStats {
		return ""
	}
	return "spec.ceph.flushPGStats has no effect, and reports are waited for: " + reason
}

// flushed is what OSDs said when they were told to report.
type flushed struct {
	proof   int
	asked   time.Time
	reports map[int]ceph.Report
}

// flush tells OSDs to report. It never blocks: the answers come by the channel, within flushWithin.
func (c *cluster) flush(ctx context.Context, proof int, osds []int) <-chan flushed {
	out := make(chan flushed, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	asked := time.Now()
	go func() {
		defer cancel()
		reports, err := c.client.FlushPGStats(ctx, osds)
		switch {
		case ceph.IsDenied(err):
			c.refused.set(fmt.Sprintf("the Ceph user lacks the capability osd '%s': %v", ceph.FlushOSDCaps, err),
				time.Now().Add(refusedFor))
		case ceph.IsTimeout(err) && len(reports) == 0:
			// A client that may not read the maps waits for them for ever: nobody tells it that it never gets them.
			c.refused.set(fmt.Sprintf("no OSD answers: %v. Without the capability mon '%s' no command finds its way to an OSD",
				err, ceph.FlushMonCaps), time.Now().Add(refusedFor))
		case err != nil && len(reports) == 0:
			c.refused.set(err.Error(), time.Time{})
		case err == nil:
			c.refused.set("", time.Time{})
		}
		out <- flushed{proof: proof, asked: asked, reports: reports}
	}()
	return out
}

// flushing is what a witness knows of flushes.
type flushing struct {
	proof   int            // which of the tracker's proofs it belongs to
	since   time.Time      // when that began, or was made
	proved  bool           // it was made
	last    time.Time      // when OSDs were last told
	answers <-chan flushed // nil: nobody was, or all have answered
}

// hurry has OSDs report whose reports a proof waits for, or whose data the proof found not to be whole yet.
func (w *witness) hurry(ctx context.Context, c *cluster, whole bool) {
	f := &w.flushing
	if f.answers != nil {
		select {
		case answer := <-f.answers:
			w.tracker.Flushed(answer.proof, answer.asked, answer.reports)
			f.answers = nil
		default:
			return
		}
	}
	now := time.Now()
	if proved := w.tracker.Proved(); f.proof != w.tracker.Proofs() || f.proved != proved {
		f.proof, f.proved, f.since = w.tracker.Proofs(), proved, now
	}
	if !c.mayFlush() || now.Sub(f.last) < flushAgain {
		return
	}
	var osds []int
	switch {
	case f.proved && !whole && now.Sub(f.since) < flushHealing:
		osds = w.tracker.Up()
	case !f.proved && now.Sub(f.since) >= flushSettles:
		osds = w.tracker.Asks()
	}
	if len(osds) > 0 {
		f.last, f.answers = now, c.flush(ctx, f.proof, osds)
	}
}
