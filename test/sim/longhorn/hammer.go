package longhorn

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file is the hammer: it asks again and again for the eviction of whatever may be evicted.

// Hammer begins to evict whatever may be evicted, at every change, and returns what ends it.
func (w *World) Hammer() (stop func()) {
	ended := make(chan struct{})
	go func() {
		for {
			w.mu.Lock()
			changed := w.changed
			w.mu.Unlock()
			w.happens(func() { w.evictAll() })
			select {
			case <-changed:
			case <-time.After(2 * time.Second):
			case <-ended:
				return
			case <-w.end.Done():
				return
			}
			if !w.pause(w.between(0, 20*time.Millisecond)) {
				return
			}
		}
	}()
	return func() { close(ended) }
}

// evictAll asks for the eviction of each instance manager that serves, in any order.
func (w *World) evictAll() {
	keys := sorted(w.pods)
	if len(keys) == 0 {
		return
	}
	first := w.draw(len(keys))
	for i := range keys {
		p := w.pods[keys[(first+i)%len(keys)]]
		if p != nil && p.Labels[kube.LonghornComponent] == kube.InstanceManager && podReady(p) {
			_ = w.evict(p, byHammer)
		}
	}
}
