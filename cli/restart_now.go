package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file lets one pod go out of turn, because a person says so.

// Overrides is what it takes of Kubernetes. *kube.Cluster satisfies it.
type Overrides interface {
	WhoAmI(ctx context.Context) (string, error)
	FindPods(ctx context.Context, namespace, what string) ([]kube.PodRef, error)
	LetGo(ctx context.Context, pod kube.PodRef, by, reason string) error
	TakeBack(ctx context.Context, pod kube.PodRef) error
	DeletePod(ctx context.Context, pod kube.PodRef) error
	NoteOverride(ctx context.Context, pod kube.PodRef, by, reason string) error
}

var _ Overrides = (*kube.Cluster)(nil)

// RestartNowInput names one daemon, and why its pod may not wait for its turn.
type RestartNowInput struct {
	Namespace string
	Daemon    string // osd.3, mon.a, or pod/NAME
	Now       bool   // has to be said: whatever the budgets say
	Reason    string
}

// mostReason bounds what is written on a pod.
const mostReason = 500

func (in RestartNowInput) validate() error {
	kind, name, ok := strings.Cut(in.Daemon, ".")
	if pod, isPod := ExplainsPod(in.Daemon); isPod {
		kind, name, ok = "osd", pod, true
	}
	switch {
	case !ok || name == "" || kind != "osd" && kind != "mon":
		return wrong("DAEMON", in.Daemon, "must be osd.N, mon.X or pod/NAME")
	case !in.Now:
		return wrong("--now", "false", "is required: it deletes the daemon's pod whatever the budgets say. To restart OSDs "+
			"when it is their turn: `lockkeeper restart-osds`")
	case strings.TrimSpace(in.Reason) == "":
		return wrong("--reason", in.Reason, "is required: it stands on the pod and in an event")
	case len(in.Reason) > mostReason || strings.ContainsAny(in.Reason, "\n\r"):
		return wrong("--reason", in.Reason, fmt.Sprintf("must be one line of at most %d characters", mostReason))
	}
	return nil
}

// RestartNow deletes the pod of one daemon whatever the guard says, and leaves it to the pod's owner to make another
// one. The permission comes first, since the guard reads it on the pod; it is bound to the pod's UID, so that it is
// spent with it.
func (c *Command) RestartNow(ctx context.Context, overrides Overrides, in RestartNowInput) error {
	if err := in.validate(); err != nil {
		return &ExitError{ExitUsage, err}
	}
	pods, err := overrides.FindPods(ctx, in.Namespace, in.Daemon)
	switch {
	case err != nil:
		return fmt.Errorf("find the pod of %s: %w", in.Daemon, err)
	case len(pods) == 0:
		return wrong("DAEMON", in.Daemon, "has no pod in namespace "+in.Namespace+"; --namespace names another one")
	case len(pods) > 1:
		return wrong("DAEMON", in.Daemon, fmt.Sprintf("has %d pods in namespace %s: name one as pod/NAME", len(pods),
			in.Namespace))
	}
	pod := pods[0]
	me, err := overrides.WhoAmI(ctx)
	if err != nil {
		return fmt.Errorf("ask the API server who you are: %w", err)
	}
	if err := overrides.LetGo(ctx, pod, me, strings.TrimSpace(in.Reason)); err != nil {
		return fmt.Errorf("let pod %s go: %w", pod.Name, err)
	}
	if err := overrides.NoteOverride(ctx, pod, me, in.Reason); err != nil {
		fmt.Fprintf(c.Err, "An event could not be left: %v\n", err)
	}
	if err := overrides.DeletePod(ctx, pod); err != nil {
		return notDeleted(ctx, overrides, pod, err)
	}
	fmt.Fprintf(c.Out, "Pod %s of %s is deleted, out of turn. No other pod may go because of it; lockkeeper closes until "+
		"what replaces it serves and the data is whole: lockkeeper status\n", pod.Name, in.Daemon)
	return nil
}

// takingBack is how long a word that was of no use may take to be taken back.
const takingBack = 10 * time.Second

// notDeleted takes a person's word back, since whoever deletes the pod later is let through as well. It does so also if
// the command was interrupted.
func notDeleted(ctx context.Context, overrides Overrides, pod kube.PodRef, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takingBack)
	defer cancel()
	if failed := overrides.TakeBack(ctx, pod); failed != nil {
		return fmt.Errorf("delete pod %s: %w; whoever deletes it may do so from now on, and to take that back failed (%w): "+
			"kubectl -n %s annotate pod %[1]s %[5]s-", pod.Name, err, failed, pod.Namespace, kube.GoNowAnnotation)
	}
	return fmt.Errorf("delete pod %s: %w; it waits for its turn as before", pod.Name, err)
}
