package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// As deploy/ leaves them to Kubernetes's defaults, but for the timeout: a kubelet waits for one second. Here labs share
// a few processors, and what counts is whether there is an answer at all.
const (
	probePeriod      = 10 * time.Second
	probeTimeout     = 5 * time.Second
	failureThreshold = 3
)

// liveness probes one of lockkeeper's processes as a kubelet does. It restarts nothing, and remembers that a kubelet
// would have.
type liveness struct {
	url  string
	stop context.CancelFunc

	mu     sync.Mutex
	killed error // why a kubelet would have restarted it first; nil: it would not have
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
				l.killed = fmt.Errorf("a kubelet would have restarted it at %s: %w", time.Now().Format(time.TimeOnly), err)
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

// check says whether the process answers now, and did so all the time before.
func (l *liveness) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed != nil {
		return l.killed
	}
	return l.ask(context.Background())
}

// checkWatcher says whether the watcher is alive, unless the scenario has stopped it.
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
