package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
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

// FindPods are the pods of a daemon, "osd.3" or "mon.a", by Rook's labels, that have not ended; or the one of a name,
// "pod/NAME".
func (c *Cluster) FindPods(ctx context.Context, namespace, what string) ([]PodRef, error) {
	opts := metav1.ListOptions{}
	if name, ok := strings.CutPrefix(what, "pod/"); ok {
		opts.FieldSelector = metav1.ObjectNameField + "=" + name
	} else if id, ok := strings.CutPrefix(what, "osd."); ok {
		opts.LabelSelector = labels.Set{podspec.IDLabel: id}.String()
	} else if id, ok := strings.CutPrefix(what, "mon."); ok {
		opts.LabelSelector = labels.Set{"app": "rook-ceph-mon", MonLabel: id}.String()
	} else {
		return nil, fmt.Errorf("%q: must be osd.N, mon.X or pod/NAME", what)
	}
	list, err := c.typed.CoreV1().Pods(namespace).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	var out []PodRef
	for i := range list.Items {
		if pod := &list.Items[i]; !ended(pod) {
			out = append(out, PodRef{pod.Namespace, pod.Name, string(pod.UID)})
		}
	}
	return out, nil
}

// LetGo writes the word of a person on a pod.
func (c *Cluster) LetGo(ctx context.Context, pod PodRef, by, reason string) error {
	word := pod.UID + " " + by + ": " + reason
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{GoNowAnnotation: word},
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
