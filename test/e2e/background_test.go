package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// background is what somebody does beside a scenario: a drain, an upgrade of a node.
type background struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done

	mu   sync.Mutex
	said bytes.Buffer
}

func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(p)
}

func (b *background) words() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.String()
}

// begin starts something on a node, once at a time.
func (w *world) begin(what, node string, do func(ctx context.Context, b *background, node string) error) error {
	key := what + " " + node
	if b := w.beside[key]; b != nil {
		select {
		case <-b.done:
		default:
			return errors.New("it is at it already")
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &background{cancel: cancel, done: make(chan struct{})}
	w.beside[key] = b
	go func() {
		defer close(b.done)
		b.err = do(ctx, b, node)
	}()
	return nil
}

func (w *world) ended(what, node string) error {
	b := w.beside[what+" "+node]
	if b == nil {
		return errors.New("nobody began it")
	}
	select {
	case <-b.done:
	case <-time.After(patience):
		return fmt.Errorf("it has not ended after %s:\n%s", patience, b.words())
	}
	if b.err != nil {
		return fmt.Errorf("%w:\n%s", b.err, b.words())
	}
	return nil
}

func (w *world) notEnded(what, node string, within time.Duration) error {
	b := w.beside[what+" "+node]
	if b == nil {
		return errors.New("nobody began it")
	}
	select {
	case <-b.done:
		return fmt.Errorf("it has ended (%v):\n%s", b.err, b.words())
	case <-time.After(within):
		return nil
	}
}

// endBeside ends what a scenario left going on.
func (w *world) endBeside() {
	for key, b := range w.beside {
		b.cancel()
		<-b.done
		delete(w.beside, key)
	}
}

// kubectlDrain is somebody's plain `kubectl drain`, which asks again every five seconds when it is refused.
func (w *world) kubectlDrain(ctx context.Context, b *background, node string) error {
	args := []string{"drain", node, "--ignore-daemonsets", "--delete-emptydir-data"}
	if w.ofCephOSD() {
		args = append(args, "--force") // or it refuses pods without a controller
	}
	return w.beneath(ctx, b, "kubectl", args...)
}

// upgrade is what an upgrade tool does with a node.
func (w *world) upgrade(ctx context.Context, b *background, node string) error {
	return errors.Join(
		w.kubectlDrain(ctx, b, node),
		w.beneath(ctx, b, "lab", "fault", "node-reboot", node, "--name", w.name),
		w.beneath(ctx, b, "kubectl", "uncordon", node),
	)
}

// beneath runs a command as part of something in the background.
func (w *world) beneath(ctx context.Context, b *background, name string, args ...string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c := w.command(name, args...)
	own := exec.CommandContext(ctx, c.Path, args...)
	own.Env, own.Stdout, own.Stderr = c.Env, b, b
	return own.Run()
}
