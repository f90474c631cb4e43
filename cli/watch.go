package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// PolicyChanges returns a channel that gets a value whenever a policy of the namespace ("": any) changes, by a watch.
func PolicyChanges(ctx context.Context, cfg *rest.Config, namespace string) (<-chan struct{}, error) {
	opts := cache.Options{Scheme: kube.Scheme}
	if namespace != "" {
		opts.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	policies, err := cache.New(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("watch the policies: %w", err)
	}
	informer, err := policies.GetInformer(ctx, &v1alpha1.MaintenancePolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch the policies: %w", err)
	}
	out := make(chan struct{}, 1)
	notify := func() {
		select {
		case out <- struct{}{}:
		default: // one is waiting already
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the policies: %w", err)
	}
	go func() { _ = policies.Start(ctx) }() // ends with ctx, and returns no other error
	return out, nil
}

// drainsEvery is how often Temporal is asked again while a job runs: its phases do not show in Kubernetes.
const drainsEvery = 2 * time.Second

// Watch prints the status now and whenever it changes, until ctx ends.
func (c *Command) Watch(
	ctx context.Context, changes <-chan struct{}, gather func(context.Context) (Status, error),
) error {
	var last string
	again := time.NewTimer(0) // the first look needs no event
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-again.C:
		}
		s, err := gather(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			var wrong *inputError
			if errors.As(err, &wrong) || last == "" {
				return err
			}
			fmt.Fprintf(c.Err, "%s  %v; trying again\n", clock(c.Now()), err)
			again.Reset(drainsEvery)
			continue
		}
		if len(s.Drains)+len(s.Rollouts) > 0 || s.detailed || s.TemporalProblem != "" {
			again.Reset(drainsEvery)
		}
		c.redraw(s, &last)
	}
}

// redraw replaces the screen of a terminal. Into a file or a pipe it appends, and only what is new: the times in a
// status grow by themselves and are no news.
func (c *Command) redraw(s Status, last *string) {
	var text, news bytes.Buffer
	s.Write(&text)
	timeless(s).Write(&news)
	if out, ok := c.Out.(*os.File); ok && term.IsTerminal(int(out.Fd())) { //nolint:gosec // a file descriptor
		fmt.Fprintf(c.Out, "\x1b[H\x1b[2J%s  every change of the policies, ^C ends\n\n%s", clock(s.At), text.String())
	} else if news.String() != *last {
		if *last != "" {
			fmt.Fprintln(c.Out)
		}
		fmt.Fprintf(c.Out, "%s\n%s", clock(s.At), text.String())
	}
	*last = news.String()
}

// timeless is a status as if no time went by.
func timeless(s Status) Status {
	s.At, s.Policies = time.Time{}, slices.Clone(s.Policies)
	for i := range s.Policies {
		s.Policies[i].asked = time.Time{}
	}
	return s
}
