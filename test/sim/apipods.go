package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is what the API server does with pods that have no controller.

func (w *World) podNamed(name string) *pod {
	if i := slices.IndexFunc(w.pods, func(p *pod) bool { return p.name == name }); i >= 0 {
		return w.pods[i]
	}
	return nil
}

// Create makes a pod, or only judges it.
func (a podsAPI) Create(ctx context.Context, made *corev1.Pod, o metav1.CreateOptions) (out *corev1.Pod, err error) {
	err = a.server.ask(ctx, "create pod", func() error {
		if len(made.Spec.Containers) == 0 || made.Spec.Containers[0].Image == "" {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, made.Name, nil)
		}
		if a.server.podNamed(made.Name) != nil || a.server.versions.asking[made.Name] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, made.Name)
		}
		if len(o.DryRun) > 0 {
			out = made.DeepCopy()
			return nil
		}
		if asks, is := a.server.makeAsking(made); is {
			out = asks
			return nil
		}
		p, err := a.server.create(made, a.server.user == byUs)
		if err != nil {
			return err
		}
		x := p.object()
		out = &x
		return nil
	})
	return out, err
}

// Delete begins the end of a pod, gracefully.
func (a podsAPI) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return a.server.ask(ctx, "delete pod", func() error {
		if a.server.versions.asking[name] != nil {
			delete(a.server.versions.asking, name)
			return nil
		}
		p := a.server.podNamed(name)
		if p == nil {
			return kubeapi.NotFound("pods", name)
		}
		if x := p.object(); o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != x.UID {
			return kubeapi.Conflict("pods", name)
		}
		if p.leaving() {
			return nil
		}
		a.server.tell("%s deletes pod %s", a.server.user, name)
		if a.server.user == byUs {
			a.server.judgeStop(p)
		}
		before := maps.Clone(a.server.disturbeds)
		if a.server.remove(p); a.server.user == byUs {
			a.server.disturbeds = before
		}
		return nil
	})
}

// Patch knows labels and annotations.
func (a podsAPI) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (out *corev1.Pod, err error) {
	err = a.server.ask(ctx, "annotate pod", func() error {
		p := a.server.podNamed(name)
		if p == nil {
			return kubeapi.NotFound("pods", name)
		}
		had, next := p.object(), &corev1.Pod{}
		if err := kubeapi.Patched(&had, next, kind, data); err != nil {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
		}
		if next.UID != had.UID {
			return kubeapi.Conflict("pods", name)
		}
		if !maps.Equal(next.Labels, had.Labels) || !maps.Equal(next.Annotations, had.Annotations) {
			p.writes++
		}
		a.server.judgeMark(p, next.Labels[storageview.MarkLabel], a.server.user)
		if p.made == nil {
			p.mark, p.word = next.Labels[storageview.MarkLabel], next.Annotations[kube.GoNowAnnotation]
		} else {
			after := p.made.DeepCopy()
			after.Labels, after.Annotations = next.Labels, next.Annotations
			a.server.wrote(p, after)
		}
		a.server.kubeChanged()
		x := p.object()
		out = &x
		return nil
	})
	return out, err
}

// Watch tells of pods, from now on.
func (a podsAPI) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	var last map[string]corev1.Pod
	var matches func(map[string]string, fields.Set) bool
	err := a.server.ask(ctx, "watch pods", func() (err error) {
		if matches, err = a.server.selectors.Parse(o); err == nil {
			last = a.server.podsLike(matches)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return kubeapi.Watch(ctx, func(ctx context.Context) (events []watch.Event) {
		a.server.await(ctx, func() bool {
			events, last = changesOf(last, a.server.podsLike(matches))
			return len(events) > 0
		})
		return events
	}), nil
}

func (w *World) podsLike(matches func(map[string]string, fields.Set) bool) map[string]corev1.Pod {
	out := map[string]corev1.Pod{}
	for _, p := range w.pods {
		if matches(p.labels(), fields.Set{metav1.ObjectNameField: p.name, "spec.nodeName": p.boundTo()}) {
			out[p.name] = p.object()
		}
	}
	return out
}

// changesOf are the events that lead from one look at pods to the next.
func changesOf(had, now map[string]corev1.Pod) (events []watch.Event, next map[string]corev1.Pod) {
	for _, name := range slices.Sorted(maps.Keys(had)) {
		if _, is := now[name]; !is {
			p := had[name]
			events = append(events, watch.Event{Type: watch.Deleted, Object: &p})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		p, before := now[name], corev1.Pod{}
		if was, is := had[name]; is {
			before = was
		}
		if mark(&before) != mark(&p) {
			events = append(events, watch.Event{Type: watch.Modified, Object: &p})
		}
	}
	return events, now
}

// mark is all of a pod that changes.
func mark(p *corev1.Pod) string {
	return fmt.Sprint(p.UID, p.DeletionTimestamp != nil, p.Spec.NodeName, p.Status.Phase, len(p.Status.Conditions),
		p.Annotations, p.Labels)
}

// backOff is after how long a container that crashed is started again.
const backOff = 2 * time.Second
