package kubelet

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

// probe watches over one attempt of a container until ctx ends: the startup probe first, then the others.
func (c *container) probe(ctx context.Context) {
	if p := c.spec.StartupProbe; p != nil && !c.awaitStartup(ctx, p) {
		return
	}
	c.pod.changed(func() { c.state.started = true })
	if p := c.spec.LivenessProbe; p != nil {
		go c.poll(ctx, p, false, func(err error) bool {
			if err != nil {
				c.restart(p, fmt.Sprintf("Liveness probe failed: %v", err))
			}
			return err == nil
		})
	}
	p := c.spec.ReadinessProbe
	if p == nil {
		c.setReady(ctx, true)
		return
	}
	c.poll(ctx, p, true, func(err error) bool {
		if err != nil {
			c.pod.event(corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("Readiness probe failed: %v", err))
		}
		c.setReady(ctx, err == nil)
		return true
	})
}

func (c *container) awaitStartup(ctx context.Context, p *corev1.Probe) (started bool) {
	c.poll(ctx, p, true, func(err error) bool {
		if started = err == nil; !started {
			c.restart(p, fmt.Sprintf("Startup probe failed: %v", err))
		}
		return false
	})
	return started
}

// setReady does nothing once the attempt is over.
func (c *container) setReady(ctx context.Context, ready bool) {
	c.pod.changed(func() {
		if ctx.Err() == nil {
			c.state.ready = ready
		}
	})
}

// restart ends the attempt; the restart policy does the rest.
func (c *container) restart(p *corev1.Probe, why string) {
	c.pod.event(corev1.EventTypeWarning, "Unhealthy", why)
	grace := c.pod.grace()
	if p.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
	}
	c.terminate(grace)
}

// awaitStarted waits until a sidecar has started.
func (c *container) awaitStarted(ctx context.Context) bool {
	for {
		c.pod.mu.Lock()
		started := c.state.started
		c.pod.mu.Unlock()
		if started {
			return true
		}
		select {
		case <-time.After(eagerPeriod):
		case <-ctx.Done():
			return false
		}
	}
}

// eagerPeriod is how often a container is asked that has not said yes yet. A scenario waits for the daemon, not for us.
const eagerPeriod = 100 * time.Millisecond

// poll asks until ctx ends or tell says false. tell hears every success, and every failure beyond the threshold. An
// eager poll asks more often than the period while the answer is no, but counts one failure a period, so that
// thresholds mean what they say; the longer it takes the less often it asks.
func (c *container) poll(ctx context.Context, p *corev1.Probe, eager bool, tell func(error) (again bool)) {
	period := time.Duration(max(p.PeriodSeconds, 1)) * time.Second
	wait := time.Duration(p.InitialDelaySeconds) * time.Second
	var successes, failures int32
	began := time.Now()
	var counted time.Time
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		err := runtime.Probe(ctx, p, c.spec, c.pod.snapshot().ip, c.ask)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			successes, failures = successes+1, 0
			if successes >= max(p.SuccessThreshold, 1) && !tell(nil) {
				return
			}
			began, wait = now, period
		default:
			successes = 0
			if !eager || now.Sub(counted) >= period {
				failures, counted = failures+1, now
			}
			if failures >= max(p.FailureThreshold, 1) && !tell(err) {
				return
			}
			if wait = period; eager {
				wait = min(period, max(eagerPeriod, now.Sub(began)/20))
			}
		}
	}
}

// ask runs a probe's command. What it said is the reason why it failed.
func (c *container) ask(ctx context.Context, args []string) error {
	var said beginning
	err := c.run(ctx, &exec.Cmd{Args: args, Stdout: &said, Stderr: &said})
	if err == nil || len(said) == 0 {
		return err
	}
	return fmt.Errorf("%s (%w)", strings.TrimSpace(string(said)), err)
}

// beginning keeps as much of what is written as belongs into an event.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), 500-len(*b))]...)
	return len(p), nil
}
