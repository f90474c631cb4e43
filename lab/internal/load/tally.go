package load

import (
	"sync"
	"time"
)

// tally counts for all workers.
type tally struct {
	mu      sync.Mutex
	started time.Time
	counts  Report
	// underWay holds what each worker waits for.
	underWay []operation
}

type operation struct {
	what  string
	since time.Time // zero: none
}

func newTally(workers int) *tally {
	return &tally{started: time.Now(), underWay: make([]operation, workers)}
}

func (t *tally) begin(worker int, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay[worker] = operation{what, time.Now()}
}

func (t *tally) end(worker int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.stall(t.underWay[worker], time.Now())
	t.underWay[worker] = operation{}
}

func (t *tally) count(f func(*Report)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.counts)
}

func (t *tally) wrote() { t.count(func(r *Report) { r.Writes++ }) }
func (t *tally) read()  { t.count(func(r *Report) { r.Reads++ }) }

func (t *tally) failedWrite(err error) {
	t.count(func(r *Report) { r.FailedWrites++; r.note(err) })
}

func (t *tally) failedRead(err error) {
	t.count(func(r *Report) { r.FailedReads++; r.note(err) })
}

func (t *tally) lost(err error) {
	t.count(func(r *Report) { r.LostWrites++; r.note(err) })
}

func (t *tally) report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r := t.counts
	r.Errors = append([]string(nil), r.Errors...)
	for _, op := range t.underWay {
		r.stall(op, now)
	}
	r.Seconds = int(now.Sub(t.started).Seconds())
	return r
}
