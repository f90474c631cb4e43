package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file lets one pod go out of turn, on a person's word.

// GoNowAnnotation lets the guard of deletions pass one pod: "UID USER: REASON". Another policy sees to it that only who
// may sets it, and in his own name.
const GoNowAnnotation = "lockkeeper.io/go-now"

// PodRef is one pod, and no other of the same name.
type PodRef struct{ Namespace, Name, UID string }

// WhoAmI is the name of whoever asks, as the API server knows it.
func (c *Cluster) WhoAmI(ctx context.Context) (string, error) {
	review, err := c.typed.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// FindPods are the pods of a daemon, "osd.3" or "mon.a", that have not ended, as the policies of the namespace select
// them; or the one of a name, "pod/NAME".
func (c *Cluster) FindPods(ctx context.Context, namespace, what string) ([]PodRef, error) {
	opts := metav1.ListOptions{}
	is := func(*corev1.Pod) bool { return true }
	if name, ok := strings.CutPrefix(what, "pod/"); ok {
		opts.FieldSelector = metav1.ObjectNameField + "=" + name
	} else if kind, _, _ := strings.Cut(what, "."); kind == "osd" || kind == "mon" {
		policies, err := c.selecting(ctx, namespace)
		if err != nil {
			return nil, err
		}
		is = func(pod *corev1.Pod) bool { return daemonOf(policies, pod) == what }
	} else {
		return nil, fmt.Errorf("%q: must be osd.N, mon.X or pod/NAME", what)
	}
	list, err := c.typed.CoreV1().Pods(namespace).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	var out []PodRef
	for i := range list.Items {
		if pod := &list.Items[i]; !ended(pod) && is(pod) {
			out = append(out, PodRef{pod.Namespace, pod.Name, string(pod.UID)})
		}
	}
	return out, nil
}

// selecting are the policies by whose selectors the daemons of a namespace are known. Where there is none, or who asks
// may not see them, it is one that says nothing, whose selectors are Rook's.
func (c *Cluster) selecting(ctx context.Context, namespace string) ([]v1alpha1.MaintenancePolicy, error) {
	policies, err := c.MaintenancePolicies(ctx, namespace)
	if err != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the MaintenancePolicies of %s: %w", namespace, err)
	}
	if len(policies) == 0 {
		policies = []v1alpha1.MaintenancePolicy{{}}
	}
	return policies, nil
}

// daemonOf is what a pod runs, by the first policy whose guarded pods it is one of: "osd.3", "mon.a", or "".
func daemonOf(policies []v1alpha1.MaintenancePolicy, pod *corev1.Pod) string {
	for i := range policies {
		if guarded, err := GuardedPods(&policies[i], []corev1.Pod{*pod}); err == nil && len(guarded) > 0 {
			return DaemonOf(&policies[i], pod)
		}
	}
	return ""
}

// LetGo writes the word of a person on a pod.
func (c *Cluster) LetGo(ctx context.Context, pod PodRef, by, reason string) error {
	return c.say(ctx, pod, pod.UID+" "+by+": "+reason)
}

// TakeBack takes the word of a person from a pod. One that is gone has none.
func (c *Cluster) TakeBack(ctx context.Context, pod PodRef) error {
	err := c.say(ctx, pod, nil)
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) { // gone, or another one of this name: a UID does not change
		return nil
	}
	return err
}

// LetGo tells whether a person has let this very pod go out of turn, as the guard of deletions reads it.
func LetGo(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Annotations[GoNowAnnotation], string(pod.UID)+" ")
}

// TakeBackOverrides implements activities.Budgets.
func (c *Cluster) TakeBackOverrides(ctx context.Context, key storage.ClusterKey, all []storage.Override) error {
	for _, o := range all {
		if err := c.TakeBack(ctx, PodRef{key.Namespace, o.Pod, o.UID}); err != nil {
			return fmt.Errorf("pod %s: %w", o.Pod, err)
		}
	}
	return nil
}

// say writes GoNowAnnotation on this very pod; nil takes it away.
func (c *Cluster) say(ctx context.Context, pod PodRef, word any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]any{GoNowAnnotation: word},
	}})
	if err != nil {
		return err
	}
	_, err = c.typed.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: FieldOwner})
	return err
}

// DeletePod deletes a pod, if it still is the one that was seen.
func (c *Cluster) DeletePod(ctx context.Context, pod PodRef) error {
	uid := types.UID(pod.UID)
	return c.typed.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// NoteOverride leaves an event about the pod: it outlives the annotation, which goes with the pod.
func (c *Cluster) NoteOverride(ctx context.Context, pod PodRef, by, reason string) error {
	now := metav1.Now()
	_, err := c.typed.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
		},
		Reason: "LetGoOutOfTurn", Message: by + " lets it go whatever the budgets say: " + reason,
		Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: FieldOwner},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{FieldManager: FieldOwner})
	return err
}
