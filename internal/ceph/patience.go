package ceph

import (
	"context"
	"sync"
	"time"
)

// patience is how long monitors may take for a short answer. Who takes longer counts as silent: closing must not wait
// for the end of an election. One that loses nobody takes less.
const patience = 1500 * time.Millisecond

// hearing notes when the monitors did not answer for longer than patience. What happened to OSDs meanwhile could not be
// reported to them, so right after it their map tells of the time before.
type hearing struct {
	mu     sync.Mutex
	asked  map[int]time.Time // questions without an answer so far
	next   int
	silent time.Time
}

// ask notes that a question is put. What it returns is called when there is an answer, or none any more.
func (h *hearing) ask() (answered func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked == nil {
		h.asked = map[int]time.Time{}
	}
	id := h.next
	h.next++
	h.asked[id] = time.Now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if time.Since(h.asked[id]) >= patience {
			h.silent = time.Now()
		}
		delete(h.asked, id)
	}
}

// since returns when the monitors were last known to be silent; zero: never.
func (h *hearing) since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.asked {
		if time.Since(at) >= patience { // somebody waits still
			return time.Now()
		}
	}
	return h.silent
}

// asking puts a question with a short answer, and waits for no longer than patience.
func asking[T any](ctx context.Context, h *hearing, question func(context.Context) (T, error)) (T, error) {
	defer h.ask()()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return question(ctx)
}
