package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// As deploy/ leaves them to Kubernetes's defaults.
const (
	probePeriod      = 10 * time.Second
	probeTimeout     = time.Second
	failureThreshold = 3
)

// liveness looks after one of lockkeeper's processes as a kubelet does by its livenessProbe, but starts nothing
// anew: it remembers that it would have.
type liveness struct {
	url  string
	stop context.CancelFunc

	mu     sync.Mutex
	killed error // why it would have been started anew, for the first time
}

// probe looks after the process that serves /healthz at an address until it is stopped.
func probe(address string) *liveness {
	ctx, stop := context.WithCancel(context.Background())
	l := &liveness{url: "http://" + address + "/healthz", stop: stop}
	go l.run(ctx)
	return l
}

func (l *liveness) run(ctx context.Context) {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(probePeriod):
		}
		err := l.ask(ctx)
		switch failures++; {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
		case failures == failureThreshold:
			l.mu.Lock()
			if l.killed == nil {
				l.killed = fmt.Errorf("a kubelet would have started it anew at %s: %w", time.Now().Format(time.TimeOnly), err)
			}
			l.mu.Unlock()
		}
	}
}

// ask is one probe.
func (l *liveness) ask(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, probeTimeout)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", l.url, answer.Status)
	}
	return nil
}

// check is about now, and about all the time before.
func (l *liveness) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed != nil {
		return l.killed
	}
	return l.ask(context.Background())
}

// checkWatcher: it lives, where it is to run.
func (w *world) checkWatcher() error {
	if w.procs["watch"] == nil {
		return nil
	}
	if err := w.alive.check(); err != nil {
		return fmt.Errorf("the watcher: %w", err)
	}
	return nil
}

// freeAddress is one on loopback on which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
