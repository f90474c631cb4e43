package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
)

// This file sets marks on pods and takes them away. One write each, and each may be repeated: whoever comes back from a
// crash goes on where it was, since a pod that has its mark needs no other.

// How fast marks are written: a cluster that is adopted has ten thousand pods, and the API server has other users.
const (
	marksAtOnce    = 8
	marksPerSecond = 200
)

// markWithin is how long one mark may take to be written. Its answer is waited for also when marking is cancelled: who
// goes on to take all marks away, and then the budgets that read them, has to find each that arrives. It is less than
// the activities' heartbeat timeout, since one that is cancelled heartbeats no more.
const markWithin = 7 * time.Second

// MarkPods marks pods that were proved, if they still are what they were when they were looked at. It returns how many
// it marked; a pod that has changed or is gone is none of them, and no error.
func (c *Cluster) MarkPods(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, pods []storageview.Pod, progress func(done int),
) (int, error) {
	return c.eachPod(ctx, pods, progress, func(ctx context.Context, pod storageview.Pod) (bool, error) {
		return c.patchLabel(ctx, p.Namespace, pod, operation{"add", markPath, pod.Mark()})
	})
}

// UnmarkPods takes the marks of these pods away, if they still have the marks that were seen.
func (c *Cluster) UnmarkPods(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, pods []storageview.Pod, progress func(done int),
) (int, error) {
	return c.eachPod(ctx, pods, progress, func(ctx context.Context, pod storageview.Pod) (bool, error) {
		return c.patchLabel(ctx, p.Namespace, pod, operation{"test", markPath, pod.Labels[storageview.MarkLabel]},
			operation{"remove", markPath, nil})
	})
}

// unmark takes the marks of all pods away that a selector selects. It looks again until there is none.
func (c *Cluster) unmark(ctx context.Context, namespace string, of *metav1.LabelSelector, progress func(int)) error {
	selector, err := metav1.LabelSelectorAsSelector(marked(of, true))
	if err != nil {
		return err
	}
	for {
		list, err := c.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return err
		}
		var pods []storageview.Pod
		for i := range list.Items {
			pod := &list.Items[i]
			pods = append(pods, storageview.Pod{
				Name: pod.Name, UID: string(pod.UID), Labels: pod.Labels,
				Version: pod.ResourceVersion,
			})
		}
		if len(pods) == 0 {
			return nil
		}
		if _, err := c.UnmarkPods(ctx, &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, pods,
			progress); err != nil {
			return err
		}
	}
}

// closedSelector is the selector of a budget of ours without what it leaves out because a failure domain is open.
func closedSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	out := s.DeepCopy()
	if out == nil {
		return &metav1.LabelSelector{}
	}
	out.MatchExpressions = slices.DeleteFunc(out.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == storageview.MarkLabel || r.Operator == metav1.LabelSelectorOpNotIn
	})
	return out
}

// eachPod writes to many pods, some at a time, and counts those that took it.
func (c *Cluster) eachPod(
	parent context.Context, pods []storageview.Pod, progress func(int),
	write func(context.Context, storageview.Pod) (bool, error),
) (int, error) {
	var done, took atomic.Int64
	pace := rate.NewLimiter(marksPerSecond, marksPerSecond)
	g, ctx := errgroup.WithContext(parent)
	g.SetLimit(marksAtOnce)
	for _, pod := range pods {
		if err := pace.Wait(ctx); err != nil {
			break // the group or its parent knows why
		}
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markWithin)
			defer cancel()
			ok, err := write(ctx, pod)
			if ok {
				took.Add(1)
			}
			progress(int(done.Add(1)))
			return err
		})
	}
	err := cmp.Or(g.Wait(), parent.Err())
	return int(took.Load()), err
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

var markPath = "/metadata/labels/" + escaped(storageview.MarkLabel)

// patchLabel changes a pod that is exactly the one that was seen: bare pods reuse their names, and a pod whose status
// has changed may have restarted. ok is false when it is another one by now.
func (c *Cluster) patchLabel(
	ctx context.Context, namespace string, pod storageview.Pod, change ...operation,
) (ok bool, err error) {
	patch, err := json.Marshal(append(
		[]operation{{"test", "/metadata/uid", pod.UID}, {"test", "/metadata/resourceVersion", pod.Version}}, change...))
	if err != nil {
		return false, err
	}
	_, err = c.typed.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: FieldOwner})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return false, nil // Invalid is what a test that fails is called
	default:
		return false, fmt.Errorf("mark of pod %s: %w", pod.Name, err)
	}
}
