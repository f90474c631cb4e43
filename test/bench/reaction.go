package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/auditlog"
	"github.com/lockkeeper/lockkeeper/test/bench/figures"
)

// reaction reads from the API server's audit log how long it took from the answer to the deletion of the pod to the
// answer to the write that closed the budgets: the last one that was asked for before a watch saw them closed. By the
// watches alone a bench whose hundreds of jobs are at work would measure how busy it is itself; of thirty times three
// were 0 s.
func (w *world) reaction(ctx context.Context, s stop) (time.Duration, error) {
	log := os.Getenv(auditlog.Variable)
	if log == "" {
		return 0, fmt.Errorf("%s is missing from the environment", auditlog.Variable)
	}
	if err := figures.Pause(ctx, auditlog.Delay); err != nil {
		return 0, err
	}
	var down, closed time.Time
	if err := auditlog.ReadFiles(log, func(e auditlog.Event) {
		about := e.ObjectRef
		switch {
		case about.Namespace != w.namespace || e.Response.Code >= 300 || e.Received.After(s.closed):
		case about.Resource == "pods" && e.Verb == "delete" && about.Name == s.pod.Name && down.IsZero():
			down = e.At // its kubelet deletes it, too, in the end
		case about.Resource == "poddisruptionbudgets" && e.Verb == "patch" && e.At.After(closed) &&
			about.Name != kube.MonBudgetName(w.policy): // which has no part in it
			closed = e.At
		}
	}); err != nil {
		return 0, err
	}
	if down.IsZero() || closed.Before(down) {
		return 0, fmt.Errorf("%s: deleted at %s, and budgets closed at %s, says %s", s.pod.Name, down, closed, log)
	}
	return closed.Sub(down), nil
}
