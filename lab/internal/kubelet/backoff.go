package kubelet

import "time"

// A container that ends is started again at once, then after 0.5 s, 1 s, … up to the limit; the real kubelet says 10 s
// and 5 min. Having run for a while, it starts over.
const (
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 10 * time.Second
	backoffReset = 30 * time.Second
)

type backoff struct{ last time.Duration }

// next is how long to wait before the next start, given how long the container ran.
func (b *backoff) next(ran time.Duration) time.Duration {
	if ran >= backoffReset {
		b.last = 0
	}
	wait := b.last
	b.last = min(max(2*b.last, firstBackoff), maxBackoff)
	return wait
}
