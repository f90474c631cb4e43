package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/auditlog"
	"github.com/lockkeeper/lockkeeper/test/bench/figures"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
)

const (
	// stops is how many OSDs' pods are deleted while the watcher is alone, between how long.
	stops   = 20
	between = 3 * time.Second
)

// alone is how fast a watcher closes with nobody else left of lockkeeper, and Temporal away: from the answer to the
// deletion of an OSD's pod to the answer to the later of the two writes that raise the alarm on the OSDs' budgets.
func (w *world) alone(ctx context.Context) ([]time.Duration, error) {
	if err := w.awaitRest(ctx); err != nil {
		return nil, err
	}
	if err := lab.Command(ctx, "lab", "fault", "component-kill", "temporal", "--down",
		(stops*between + 10*time.Second).String(), "--name", w.lab); err != nil {
		return nil, err
	}
	w.lockkeeper.KillWorker()
	if err := figures.Pause(ctx, between); err != nil {
		return nil, err
	}
	var stopped []string
	for i := range stops {
		pod, err := w.stopOne(ctx, i%len(w.osds))
		if err != nil {
			return nil, err
		}
		stopped = append(stopped, pod)
		if err := figures.Pause(ctx, between); err != nil {
			return nil, err
		}
	}
	out, err := w.reactions(stopped)
	if err != nil {
		return nil, err
	}
	w.lockkeeper.Kill()
	if err := w.start(); err != nil {
		return nil, err
	}
	return out, w.awaitRest(ctx)
}

// stopOne deletes the pod of an OSD as soon as it is ready, and returns its name.
func (w *world) stopOne(ctx context.Context, osd int) (pod string, err error) {
	err = w.until(ctx, fmt.Sprintf("the pod of osd.%d to be ready", osd), func() (bool, error) {
		pods, err := w.Kube.CoreV1().Pods(w.namespace).List(ctx,
			metav1.ListOptions{LabelSelector: fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", osd)})
		if err != nil || len(pods.Items) != 1 {
			return false, err
		}
		pod = pods.Items[0].Name
		return podutils.IsPodReady(&pods.Items[0]) && pods.Items[0].DeletionTimestamp == nil, nil
	})
	if err != nil {
		return "", err
	}
	return pod, w.Kube.CoreV1().Pods(w.namespace).Delete(ctx, pod, metav1.DeleteOptions{})
}

// reactions reads from the API server's audit log what followed the deletion of each pod.
func (w *world) reactions(pods []string) (out []time.Duration, err error) {
	log := os.Getenv(auditlog.Variable)
	if log == "" {
		return nil, fmt.Errorf("%s is missing from the environment", auditlog.Variable)
	}
	deleted := map[string]time.Time{}
	raised := map[string][]time.Time{} // by budget
	if err := auditlog.ReadFiles(log, func(e auditlog.Event) {
		about := e.ObjectRef
		switch {
		case about.Namespace != w.namespace || e.Response.Code >= 300:
		case about.Resource == "pods" && e.Verb == "delete" && deleted[about.Name].IsZero():
			deleted[about.Name] = e.At // its kubelet deletes it, too, in the end
		case about.Resource == "poddisruptionbudgets" && e.Verb == "patch" &&
			strings.HasSuffix(e.User.Username, ":"+kube.WatcherOwner):
			raised[about.Name] = append(raised[about.Name], e.At)
		}
	}); err != nil {
		return nil, err
	}
	for _, pod := range pods {
		var took time.Duration
		for _, name := range []string{kube.DaemonBudgetName(w.policy), kube.ProvedBudgetName(w.policy)} {
			at, ok := firstAfter(raised[name], deleted[pod])
			if !ok || at.Sub(deleted[pod]) > between {
				return nil, fmt.Errorf("%s was deleted at %s, and nobody closed %s", pod, deleted[pod], name)
			}
			took = max(took, at.Sub(deleted[pod]))
		}
		out = append(out, took)
	}
	return out, nil
}

func firstAfter(times []time.Time, t time.Time) (first time.Time, ok bool) {
	for _, x := range times {
		if x.After(t) && (!ok || x.Before(first)) {
			first, ok = x, true
		}
	}
	return first, ok
}
