package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	cephrados "github.com/ceph/go-ceph/rados"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/bench/lab"
	"github.com/lockkeeper/lockkeeper/workflows"
)

const (
	patience        = 2 * time.Minute  // for everything but a rollout
	rolloutPatience = 30 * time.Minute // for one
)

type world struct {
	options
	lab.Lab
	cephOSDs dynamic.ResourceInterface // as they are: a type would drop what it does not know of a template
	ceph     *cephrados.Conn
	changes  int
}

func newWorld(ctx context.Context, o options) (*world, error) {
	l, err := lab.Connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{options: o, Lab: l}
	all, err := dynamic.NewForConfig(w.Config)
	if err != nil {
		return nil, err
	}
	resource := schema.GroupVersionResource{
		Group:   cephv1alpha1.GroupVersion.Group,
		Version: cephv1alpha1.GroupVersion.Version, Resource: "cephosds",
	}
	w.cephOSDs = all.Resource(resource).Namespace(o.namespace)
	if w.ceph, err = lab.Ceph(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *world) close() {
	w.Temporal.Close()
	w.ceph.Shutdown()
}

// rollOut changes the template and follows its way to every OSD.
func (w *world) rollOut(ctx context.Context, updateDomain string) (rollout, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutPatience)
	defer cancel()
	if err := w.setSpec(ctx, func(c *unstructured.Unstructured) error {
		return unstructured.SetNestedField(c.Object, updateDomain, "spec", "updateDomain")
	}); err != nil {
		return rollout{}, err
	}
	if err := w.awaitRest(ctx); err != nil {
		return rollout{}, err
	}
	recorder, err := w.startRecording(ctx)
	if err != nil {
		return rollout{}, err
	}
	r := rollout{asked: time.Now()}
	run, err := w.changeTemplate(ctx, r.asked)
	if err == nil {
		err = run.Get(ctx, nil)
	}
	r.ended = time.Now()
	record, lost := recorder.end()
	if err := errors.Join(err, lost); err != nil {
		return rollout{}, err
	}
	unit := func(e event) string { return strconv.Itoa(e.osd) }
	if updateDomain != "OSD" {
		unit = func(e event) string { return e.zone }
	}
	if r.batches, err = record.batches(unit, r.ended); err != nil {
		return rollout{}, err
	}
	for _, b := range r.batches {
		fmt.Fprintln(os.Stderr, b)
		r.osds += len(b.osds)
	}
	fmt.Fprintf(os.Stderr, "by %s: %d OSDs in %d batches; the first pod was stopped %s after the template changed\n",
		updateDomain, r.osds, len(r.batches), r.batches[0].stopping.Sub(r.asked).Round(10*time.Millisecond))
	if err := w.awaitRest(ctx); err != nil {
		return rollout{}, err
	}
	if r.events, err = w.events(ctx, r.asked); err != nil {
		return rollout{}, err
	}
	return r, w.complete(ctx, r.osds)
}

// complete: it was about every OSD.
func (w *world) complete(ctx context.Context, osds int) error {
	c, err := w.cephOSDs.Get(ctx, w.cephOSD, metav1.GetOptions{})
	if err != nil {
		return err
	}
	total, _, err := unstructured.NestedInt64(c.Object, "status", "osds", "total")
	if err == nil && int(total) != osds {
		err = fmt.Errorf("of %d OSDs %d were replaced", total, osds)
	}
	return err
}

// changeTemplate returns when the rollout of the new one is under way.
func (w *world) changeTemplate(ctx context.Context, since time.Time) (client.WorkflowRun, error) {
	if err := w.setSpec(ctx, func(c *unstructured.Unstructured) error {
		w.changes++
		return setUpdate(c, fmt.Sprintf("%d-%d", since.UnixNano(), w.changes))
	}); err != nil {
		return nil, err
	}
	var run client.WorkflowRun
	err := w.until(ctx, "the rollout to begin", func() (bool, error) {
		d, err := w.Temporal.DescribeWorkflowExecution(ctx, w.rolloutID(), "")
		if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
			return false, nil
		}
		if err != nil || d.WorkflowExecutionInfo.StartTime.AsTime().Before(since) {
			return false, err
		}
		run = w.Temporal.GetWorkflow(ctx, w.rolloutID(), d.WorkflowExecutionInfo.Execution.RunId)
		return true, nil
	})
	return run, err
}

func (w *world) setSpec(ctx context.Context, set func(*unstructured.Unstructured) error) error {
	return w.until(ctx, "the CephOSD to be written", func() (bool, error) {
		c, err := w.cephOSDs.Get(ctx, w.cephOSD, metav1.GetOptions{})
		if err == nil {
			err = set(c)
		}
		if err != nil {
			return false, err
		}
		_, err = w.cephOSDs.Update(ctx, c, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil // its status was written meanwhile
		}
		return err == nil, err
	})
}

// setUpdate changes the value of the variable UPDATE, which means nothing to anybody.
func setUpdate(c *unstructured.Unstructured, value string) error {
	containers, _, err := unstructured.NestedSlice(c.Object, "spec", "podTemplate", "spec", "containers")
	if err != nil {
		return err
	}
	for _, container := range containers {
		fields, _ := container.(map[string]any)
		env, _ := fields["env"].([]any)
		for _, variable := range env {
			if v, ok := variable.(map[string]any); ok && v["name"] == "UPDATE" {
				v["value"] = value
				return unstructured.SetNestedSlice(c.Object, containers, "spec", "podTemplate", "spec", "containers")
			}
		}
	}
	return fmt.Errorf("CephOSD %s: spec.podTemplate has no variable UPDATE", c.GetName())
}

// awaitRest waits until every OSD is up to date, no rollout is under way, and the keeper has nothing left to do.
func (w *world) awaitRest(ctx context.Context) error {
	keeper := workflows.KeeperID(storage.ClusterKey{Namespace: w.namespace, Name: w.policy})
	return w.until(ctx, "rest", func() (bool, error) {
		c, err := w.cephOSDs.Get(ctx, w.cephOSD, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		seen, _, _ := unstructured.NestedInt64(c.Object, "status", "observedGeneration")
		reason, _, _ := unstructured.NestedString(c.Object, "status", "reason")
		if seen != c.GetGeneration() || reason != "UpToDate" {
			return false, nil
		}
		d, err := w.Temporal.DescribeWorkflowExecution(ctx, w.rolloutID(), "")
		if err != nil || d.WorkflowExecutionInfo.CloseTime == nil {
			return false, err
		}
		v, err := w.Temporal.QueryWorkflow(ctx, keeper, "", workflows.QueryStatus)
		if err != nil {
			return false, err
		}
		var s workflows.KeeperStatus
		if err := v.Get(&s); err != nil {
			return false, err
		}
		return s.Clean && len(s.Lease.Holders)+len(s.Lease.Queue)+len(s.Flags) == 0, nil
	})
}

// events are those in the histories of all runs of the rollout that began since.
func (w *world) events(ctx context.Context, since time.Time) (n int64, err error) {
	query := fmt.Sprintf("WorkflowId = '%s' AND StartTime >= '%s'", w.rolloutID(), since.UTC().Format(time.RFC3339Nano))
	request := &workflowservice.ListWorkflowExecutionsRequest{Query: query}
	for {
		page, err := w.Temporal.ListWorkflow(ctx, request)
		if err != nil {
			return 0, err
		}
		for _, run := range page.Executions {
			d, err := w.Temporal.DescribeWorkflowExecution(ctx, run.Execution.WorkflowId, run.Execution.RunId)
			if err != nil {
				return 0, err
			}
			n += d.WorkflowExecutionInfo.HistoryLength
		}
		if request.NextPageToken = page.NextPageToken; len(request.NextPageToken) == 0 {
			break
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("Temporal knows of no runs: %s", query)
	}
	return n, nil
}

func (w *world) rolloutID() string { return jobs.UpdateOSDs.ID(w.namespace, w.cephOSD) }

func (w *world) until(ctx context.Context, what string, done func() (bool, error)) error {
	return lab.Until(ctx, patience, 20*time.Millisecond, what, done)
}
