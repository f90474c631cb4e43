// Package load writes, reads back and verifies objects for as long as it runs, and keeps count of what went wrong.
//
// It answers the one question that matters of a disruption: did somebody who uses the storage notice? A write that
// takes long, because its OSD was stopped and another took over, is a stall. A write that returns an error has failed.
// A write that was acknowledged and cannot be read back, with its own content or a newer one, is lost: there must never
// be one.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrNotFound is what a Store returns for an object that does not exist.
var ErrNotFound = errors.New("no such object")

// Store holds objects. Its methods block until the storage has answered, however long that takes.
type Store interface {
	// Write replaces an object as a whole.
	Write(object string, data []byte) error
	// Read returns an object's whole content, or ErrNotFound.
	Read(object string) ([]byte, error)
}

// Options size a load. All fields are required.
type Options struct {
	Objects    int // the working set; it is written over and over, so that the pool does not fill up
	ObjectSize int // bytes, at least MinObjectSize
	Workers    int // operations under way at the same time
	Rate       int // operations per second altogether, half of them writes
}

// DefaultOptions leave most of two cores to whoever else is there.
func DefaultOptions() Options {
	return Options{Objects: 200, ObjectSize: 16 << 10, Workers: 8, Rate: 40}
}

// Validate names the option that makes no sense.
func (o Options) Validate() error {
	for _, v := range []struct {
		flag   string
		n, min int
	}{
		{"--workers", o.Workers, 1},
		{"--objects", o.Objects, o.Workers}, // every worker has objects of its own
		{"--object-size", o.ObjectSize, MinObjectSize},
		{"--rate", o.Rate, 1},
	} {
		if v.n < v.min {
			return fmt.Errorf("%s %d: must be at least %d", v.flag, v.n, v.min)
		}
	}
	if o.Rate > int(time.Second) {
		return fmt.Errorf("--rate %d: must be at most %d", o.Rate, int(time.Second))
	}
	return nil
}

// Load is a load that runs.
type Load struct {
	tally   *tally
	workers []*worker
	done    chan struct{}
}

// Start begins to write. It ends with ctx; Wait then waits for the last round of verification.
func Start(ctx context.Context, store Store, o Options) (*Load, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := &Load{tally: newTally(o.Workers), done: make(chan struct{})}
	for i := range o.Workers {
		w := &worker{index: i, store: store, tally: l.tally, size: o.ObjectSize}
		for n := i; n < o.Objects; n += o.Workers {
			w.objects = append(w.objects, &object{number: n})
		}
		l.workers = append(l.workers, w)
	}
	// One ticker for all: workers that are free share the rate, and ticks that nobody takes are dropped, so that there is
	// no rush of writes after a stall.
	ticker := time.NewTicker(time.Second / time.Duration(o.Rate))
	var running sync.WaitGroup
	for _, w := range l.workers {
		running.Go(func() { w.run(ctx, ticker.C) })
	}
	go func() {
		defer close(l.done)
		running.Wait()
		ticker.Stop()
	}()
	return l, nil
}

// Report tells how it went so far. Operations under way count towards the longest stall with the time they have taken
// yet.
func (l *Load) Report() Report { return l.tally.report() }

// Wait returns when all workers have ended and read every object once more, or when the timeout is over: the storage
// may never answer.
func (l *Load) Wait(timeout time.Duration) error {
	select {
	case <-l.done:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("operations still under way after %s", timeout)
	}
}

// object is what a worker knows of an object of its own.
type object struct {
	number int
	// acknowledged is the sequence number of the last write that the storage has confirmed, 0 if none; attempted that of
	// the last one that was sent. What is read must be between the two: a write that failed may have happened all the
	// same.
	acknowledged, attempted uint64
	// lost keeps one lost write from being counted with every further read of it.
	lost bool
}

func (o *object) name() string { return fmt.Sprintf("load-%05d", o.number) }

// worker has objects of its own, so that it alone knows what they must contain.
type worker struct {
	index   int
	store   Store
	tally   *tally
	size    int
	objects []*object
}

func (w *worker) run(ctx context.Context, ticks <-chan time.Time) {
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			w.verifyAll()
			return
		case <-ticks:
		}
		if turn%2 == 0 {
			w.write(w.objects[turn/2%len(w.objects)])
		} else {
			w.verify(w.objects[rand.IntN(len(w.objects))])
		}
	}
}

func (w *worker) write(o *object) {
	// Later than any write of an earlier run, whose objects are written over.
	o.attempted = max(o.attempted+1, uint64(time.Now().UnixNano()))
	data := encode(record{object: o.number, sequence: o.attempted}, w.size)
	w.tally.begin(w.index, "write "+o.name())
	err := w.store.Write(o.name(), data)
	w.tally.end(w.index)
	if err != nil {
		w.tally.failedWrite(fmt.Errorf("write %s: %w", o.name(), err))
		return
	}
	o.acknowledged, o.lost = o.attempted, false
	w.tally.wrote()
}

func (w *worker) verifyAll() {
	for _, o := range w.objects {
		w.verify(o)
	}
}

// verify reads an object that has been acknowledged, and judges it.
func (w *worker) verify(o *object) {
	if o.acknowledged == 0 {
		return
	}
	w.tally.begin(w.index, "read "+o.name())
	data, err := w.store.Read(o.name())
	w.tally.end(w.index)
	if err != nil && !errors.Is(err, ErrNotFound) {
		w.tally.failedRead(fmt.Errorf("read %s: %w", o.name(), err))
		return
	}
	w.tally.read()
	if err == nil {
		err = o.judge(data)
	}
	if err != nil && !o.lost {
		o.lost = true
		w.tally.lost(fmt.Errorf("%s: %w", o.name(), err))
	}
}

// judge says why the content is not that of the last acknowledged write or of a later one.
func (o *object) judge(data []byte) error {
	r, err := decode(data)
	switch {
	case err != nil:
		return err
	case r.object != o.number:
		return fmt.Errorf("content of object %d", r.object)
	case r.sequence < o.acknowledged:
		return fmt.Errorf("content of write %d, which is older than the acknowledged %d", r.sequence, o.acknowledged)
	case r.sequence > o.attempted:
		return fmt.Errorf("content of write %d, which was never sent: does another load write to this pool?", r.sequence)
	}
	return nil
}
