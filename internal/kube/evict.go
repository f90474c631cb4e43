package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/drain"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

// This file evicts the pods of a node, as kubectl drain does.

// EvictOnce implements activities.Nodes: kubectl's filters choose the pods, kubectl's request evicts them, and every
// refusal is told apart. Waiting and retrying is the caller's, who must look at the lease in between.
func (c *Cluster) EvictOnce(ctx context.Context, in activities.Eviction) (activities.EvictionProgress, error) {
	var namespaces []string
	for _, s := range in.Storage {
		namespaces = append(namespaces, s.Namespace)
	}
	h := c.drainHelper(ctx, in.Options, namespaces)
	pods, blocked, err := c.toGo(ctx, h, in)
	if err != nil {
		return activities.EvictionProgress{}, err
	}
	if blocked != "" {
		return activities.EvictionProgress{Total: 1, Remaining: 1, Blocked: []string{blocked}}, nil
	}
	version, err := c.evictionVersion()
	if err != nil {
		return activities.EvictionProgress{}, err
	}
	last, err := lastToGo(pods, in)
	if err != nil {
		return activities.EvictionProgress{}, err
	}
	p := activities.EvictionProgress{Total: len(pods), Remaining: len(pods)}
	for i := range pods {
		pod := &pods[i]
		name := pod.Namespace + "/" + pod.Name
		if last(pod) {
			p.Blocked = append(p.Blocked, name+" goes when the OSDs of the node have stopped")
			continue
		}
		if pod.DeletionTimestamp != nil {
			p.Blocked = append(p.Blocked, name+" is terminating")
			continue
		}
		err := h.EvictPod(*pod, version)
		switch {
		case err == nil:
		case apierrors.IsNotFound(err):
			p.Remaining--
		case apierrors.IsTooManyRequests(err):
			p.Refused++
			p.Blocked = append(p.Blocked, name+": "+err.Error())
		case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			p.Remaining-- // its namespace is going, and the pod with it
		default:
			return p, fmt.Errorf("evict %s: %w", name, err)
		}
	}
	return p, nil
}

// toGo are the pods that have to go, or blocked says which may not be evicted as things stand (bare, or with local
// data): a person has to choose, and nothing is lost by waiting.
func (c *Cluster) toGo(
	ctx context.Context, h *drain.Helper, in activities.Eviction,
) (pods []corev1.Pod, blocked string, err error) {
	if in.Taint != "" {
		pods, err = c.drivenOff(ctx, in)
		return pods, "", err
	}
	list, errs := h.GetPodsForDeletion(in.Node)
	if len(errs) > 0 {
		return nil, errors.Join(errs...).Error(), nil
	}
	return list.Pods(), "", nil
}

// drivenOff are the pods that a taint of their node drives off, a DaemonSet's too.
func (c *Cluster) drivenOff(ctx context.Context, in activities.Eviction) ([]corev1.Pod, error) {
	n, err := c.typed.CoreV1().Nodes().Get(ctx, in.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := c.typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", in.Node).String(),
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return wish.DrivenOff(&p, n, in.Taint) == "" }), nil
}

// evictionVersion is the version of the eviction API that the API server has, which is asked for once.
func (c *Cluster) evictionVersion() (schema.GroupVersion, error) {
	if known := c.evictions.Load(); known != nil {
		return *known, nil
	}
	version, err := drain.CheckEvictionSupport(c.typed)
	if err == nil && !version.Empty() {
		c.evictions.Store(&version)
	}
	return version, err
}

// PodsGone implements activities.Nodes by a watch on the node's pods.
func (c *Cluster) PodsGone(ctx context.Context, node string) (<-chan struct{}, error) {
	w, err := c.typed.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, err
	}
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		defer w.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-w.ResultChan():
				if !open {
					return
				}
				if e.Type != watch.Deleted {
					continue
				}
			}
			select {
			case out <- struct{}{}:
			default: // one that nobody has received yet says the same
			}
		}
	}()
	return out, nil
}

// lastToGo tells which pods have to wait for others of the node, which are of the same storage cluster.
func lastToGo(pods []corev1.Pod, in activities.Eviction) (func(*corev1.Pod) bool, error) {
	var all []func(*corev1.Pod) bool
	for _, s := range in.Storage {
		last, err := lastOf(pods, s)
		if err != nil {
			return nil, err
		}
		all = append(all, last)
	}
	return func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(all, func(last func(*corev1.Pod) bool) bool { return last(pod) })
	}, nil
}

func lastOf(pods []corev1.Pod, in activities.StoragePods) (func(*corev1.Pod) bool, error) {
	nobody := func(*corev1.Pod) bool { return false }
	if in.Daemons == "" {
		return nobody, nil
	}
	var selectors []labels.Selector
	for _, s := range []struct{ field, selector string }{
		{"osds.selector", in.Daemons},
		{"daemons.mon", in.Mons},
		{"daemons.mgr", in.Managers},
	} {
		parsed, err := labels.Parse(s.selector)
		if err != nil {
			return nil, fmt.Errorf("spec.ceph.%s: %w", s.field, err)
		}
		if s.selector == "" {
			parsed = labels.Nothing()
		}
		selectors = append(selectors, parsed)
	}
	daemons, others := selectors[0], selectors[1:]
	is := func(s labels.Selector, pod *corev1.Pod) bool {
		return pod.Namespace == in.Namespace && s.Matches(labels.Set(pod.Labels))
	}
	if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return is(daemons, &pod) }) {
		return nobody, nil
	}
	return func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(others, func(s labels.Selector) bool { return is(s, pod) })
	}, nil
}

// drainHelper is kubectl's, with its filters: DaemonSets stay, bare pods need Force. What it says about emptyDirs it
// says of all pods alike, so that one filter is ours.
func (c *Cluster) drainHelper(
	ctx context.Context, opts activities.EvictionOptions, storageNamespaces []string,
) *drain.Helper {
	h := &drain.Helper{
		Ctx: ctx, Client: c.typed, Force: opts.Force, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		GracePeriodSeconds: -1, PodSelector: opts.PodSelector, Out: discard{}, ErrOut: discard{},
	}
	if opts.GracePeriodSeconds != nil {
		h.GracePeriodSeconds = *opts.GracePeriodSeconds
	}
	h.AdditionalFilters = []drain.PodFilter{func(pod corev1.Pod) drain.PodDeleteStatus {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if opts.DeleteEmptyDirData || ended || slices.Contains(storageNamespaces, pod.Namespace) ||
			metav1.GetControllerOf(&pod) == nil || !hasEmptyDir(&pod) {
			return drain.MakePodDeleteStatusOkay()
		}
		if o := metav1.GetControllerOf(&pod); o.Kind == "DaemonSet" {
			return drain.MakePodDeleteStatusOkay() // it stays anyway
		}
		return drain.MakePodDeleteStatusWithError("pods with emptyDir data need deleteEmptyDirData (--delete-emptydir-data)")
	}}
	return h
}

func hasEmptyDir(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
