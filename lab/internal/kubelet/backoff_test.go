package kubelet

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	var b backoff
	for i, want := range []int64{0, 500, 1000, 2000, 4000, 8000, 10000, 10000} {
		if got := b.next(time.Second).Milliseconds(); got != want {
			t.Errorf("wait %d: %d ms, want %d", i, got, want)
		}
	}
	if got := b.next(backoffReset); got != 0 {
		t.Errorf("after a long run: %s, want 0", got)
	}
}
