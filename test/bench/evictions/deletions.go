package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/test/hammer"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file measures the guard of deletions, and what lets go of what waits there.

const (
	osdLabels    = "app=rook-ceph-osd"
	daemonLabels = "app in (rook-ceph-osd, rook-ceph-mon)"
)

// wishes is how often somebody wants one OSD restarted.
const wishes = 20

// deletions installs the guard, deletes everything while nobody watches, and has all OSDs restarted, by a wish and by
// hand.
func (w *world) deletions(ctx context.Context) error {
	for _, file := range []string{"policy.yaml", "namespace.yaml"} {
		if err := lab.Command(ctx, "kubectl", "apply", "-f", filepath.Join(w.guard, file)); err != nil {
			return err
		}
	}
	if err := w.guarded(ctx); err != nil {
		return err
	}
	granted, err := w.deleteUnwatched(ctx)
	if err != nil {
		return fmt.Errorf("deletions with nobody watching: %w", err)
	}
	fmt.Printf("deletions_with_nobody_watching %d deletions\n", granted)
	seen, err := w.wishesSeen(ctx)
	if err != nil {
		return fmt.Errorf("a wish: %w", err)
	}
	figures.Print("wish_seen_ms", seen)
	byHand, err := w.restartByHand(ctx)
	if err != nil {
		return fmt.Errorf("a restart by hand: %w", err)
	}
	waiting, err := w.restartWaiting(ctx)
	if err != nil {
		return fmt.Errorf("a restart of what waits: %w", err)
	}
	fmt.Printf("restart_by_hand_s %.1f s\n", byHand.Seconds())
	fmt.Printf("restart_all_s %.1f s\n", waiting.Seconds())
	return nil
}

// guarded waits until the API server refuses to delete each of the pods: it takes up new policies in a second or so.
func (w *world) guarded(ctx context.Context) error {
	pods := w.Kube.CoreV1().Pods(w.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: daemonLabels})
	if err != nil {
		return err
	}
	for i := range list.Items {
		name, began := list.Items[i].Name, time.Now()
		err := w.until(ctx, "the guard of pod "+name, func() (bool, error) {
			err := pods.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsForbidden(err), nil
		})
		if err != nil {
			return err
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			fmt.Fprintf(os.Stderr, "the guard is in force after %s\n", took.Round(time.Millisecond))
		}
	}
	return nil
}

// deleteUnwatched lets worker, watcher and Temporal die, and deletes all pods of OSDs and mons all the time.
func (w *world) deleteUnwatched(ctx context.Context) (granted int, err error) {
	if err := w.die(ctx); err != nil {
		return 0, err
	}
	during, stop := context.WithTimeout(ctx, w.during)
	defer stop()
	answers, err := hammer.Deleters(during, os.Getenv("KUBECONFIG"), w.namespace, daemonLabels, w.clients)
	if err != nil {
		return 0, err
	}
	if fmt.Fprintf(os.Stderr, "deletions while nobody watches: %s\n", answers); answers.Granted+answers.Refused == 0 {
		return 0, errors.New("nobody deleted")
	}
	if err := w.start(); err != nil {
		return 0, err
	}
	return answers.Granted, w.awaitRest(ctx)
}

// wishesSeen has one OSD after the other wanted restarted, and takes it back: how long it took until the job was there.
func (w *world) wishesSeen(ctx context.Context) (all []time.Duration, err error) {
	list, err := w.Kube.AppsV1().Deployments(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: osdLabels})
	if err != nil {
		return nil, err
	}
	for i := range wishes {
		d := &list.Items[i%len(list.Items)]
		asked := time.Now()
		if err := w.annotate(ctx, d, `"`+asked.Format(time.RFC3339Nano)+`"`); err != nil {
			return nil, err
		}
		began, err := w.began(ctx, asked)
		if err != nil {
			return nil, err
		}
		all = append(all, began.Sub(asked))
		fmt.Fprintf(os.Stderr, "  %d/%d %s: its wish seen after %s\n", i+1, wishes, d.Name,
			began.Sub(asked).Round(time.Millisecond))
		if err := w.annotate(ctx, d, "null"); err != nil {
			return nil, err
		}
		if err := w.over(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// annotate changes a Deployment's template, as `kubectl rollout restart` does, or takes that back.
func (w *world) annotate(ctx context.Context, d *appsv1.Deployment, value string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"bench/wish":%s}}}}}`, value)
	_, err := w.Kube.AppsV1().Deployments(w.namespace).Patch(ctx, d.Name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

func (w *world) waitingID() string { return jobs.RestartWaiting.ID(w.namespace, w.policy) }

// began returns when the job began that is there since then.
func (w *world) began(ctx context.Context, since time.Time) (at time.Time, err error) {
	err = w.until(ctx, w.waitingID()+" to begin", func() (bool, error) {
		d, err := w.Temporal.DescribeWorkflowExecution(ctx, w.waitingID(), "")
		if isNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		at = d.WorkflowExecutionInfo.StartTime.AsTime()
		return at.After(since), nil
	})
	return at, err
}

// over waits for the end of the job.
func (w *world) over(ctx context.Context) error {
	return w.until(ctx, w.waitingID()+" to end", func() (bool, error) {
		d, err := w.Temporal.DescribeWorkflowExecution(ctx, w.waitingID(), "")
		if err != nil {
			return false, err
		}
		return d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, nil
	})
}

func isNotFound(err error) bool {
	var notFound *serviceerror.NotFound
	return errors.As(err, &notFound)
}

// restartWaiting has all OSDs restarted at once by their Deployments: from then until the job is over.
func (w *world) restartWaiting(ctx context.Context) (time.Duration, error) {
	patch := `{"spec":{"ceph":{"restarts":"Automatic"}}}`
	if err := lab.Command(ctx, "kubectl", "-n", w.namespace, "patch", "maintenancepolicy", w.policy, "--type=merge", "-p",
		patch); err != nil {
		return 0, err
	}
	if err := w.awaitRest(ctx); err != nil {
		return 0, err
	}
	asked := time.Now()
	if err := lab.Command(ctx, "kubectl", "-n", w.namespace, "rollout", "restart", "deployment", "-l",
		osdLabels); err != nil {
		return 0, err
	}
	if _, err := w.began(ctx, asked); err != nil {
		return 0, err
	}
	if err := w.over(ctx); err != nil {
		return 0, err
	}
	took := time.Since(asked)
	return took, w.awaitRest(ctx)
}

// restartByHand asks for the same: failure domain by failure domain, the first OSD alone.
func (w *world) restartByHand(ctx context.Context) (time.Duration, error) {
	if err := w.awaitRest(ctx); err != nil {
		return 0, err
	}
	asked := time.Now()
	key := storage.ClusterKey{Namespace: w.namespace, Name: w.policy}
	run, err := w.Temporal.ExecuteWorkflow(ctx,
		client.StartWorkflowOptions{ID: jobs.RestartOSDs.ID(key.Namespace), TaskQueue: workflows.TaskQueue},
		jobs.RestartOSDs.Type, workflows.RestartOSDsInput{Namespace: key.Namespace, UpdateDomain: "zone", Reason: "bench"})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out workflows.UpdateOSDsResult
	if err := run.Get(ctx, &out); err != nil {
		return 0, err
	}
	if took := time.Since(asked); out.Outcome == workflows.OutcomeDone && out.Replaced == len(w.osds) {
		return took, w.awaitRest(ctx)
	}
	return 0, fmt.Errorf("%s ended with %+v", run.GetID(), out)
}
