package cephosd

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

func (c cephOSD) confirm(ctx context.Context, in activities.AwaitInput) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.write(ctx, s.released(sets.New(in.Keys...), time.Now()))
}

// note writes on the pods what is known of them: state, number, failure domains. Who owns them is known without Ceph,
// and comes first: until it is written, Kubernetes may delete them together with the CephOSD.
func (c cephOSD) note(ctx context.Context) error {
	set, found, err := c.spec(ctx)
	if err != nil || !found {
		return err
	}
	var seen activities.Survey
	s, err := c.lookAtKubernetes(ctx, set, &seen)
	if err != nil {
		return err
	}
	owners := s.disowned()
	if err := c.write(ctx, owners); err != nil || len(s.refused) > 0 {
		return err
	}
	switch err := c.lookAtCeph(ctx, s, &seen); {
	case err != nil && len(owners) > 0:
		return nil // what must not wait is written, and the next look says what is wrong with Ceph
	case err != nil || seen.Unavailable != "" || len(s.refused) > 0:
		return err
	}
	return c.write(ctx, s.unnoted(time.Now()))
}

// note is what is to be written on a pod.
type note struct {
	pod                 *corev1.Pod
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
	disowned            bool
}

// released are the notes for OSDs that serve.
func (s *state) released(keys sets.Set[string], at time.Time) (notes []note) {
	for _, pods := range [][]podspec.Pod{s.Ready, s.UpToDate} {
		for i := range pods {
			if p := &pods[i]; keys.Has(p.OSD.Key()) && s.osd(p.OSD, p).Serves {
				notes = append(notes, note{pod: p.Pod, annotations: podspec.Release(at), labels: s.missingLabels(p)})
			}
		}
	}
	return notes
}

// disowned are pods whose owner is not what the deletion policy says.
func (s *state) disowned() (notes []note) {
	for _, p := range s.Disowned {
		notes = append(notes, note{pod: p.Pod, owners: s.OwnersOf(p.Pod), disowned: true})
	}
	return notes
}

// unnoted are pods that do not say what is known of them.
func (s *state) unnoted(at time.Time) (notes []note) {
	for _, pods := range [][]podspec.Pod{s.UpToDate, s.OutOfDate, s.Unready} { // ready ones are released in a moment
		for _, p := range pods {
			p.Up = s.osd(p.OSD, &p).Serves
			n := note{pod: p.Pod, labels: s.missingLabels(&p), annotations: p.Annotations(at)}
			if len(n.labels)+len(n.annotations) > 0 {
				notes = append(notes, n)
			}
		}
	}
	return notes
}

// missingLabels are those that the pod should have and has not. The OSD that it was before it moved keeps nobody from a
// budget.
func (s *state) missingLabels(p *podspec.Pod) map[string]string {
	id, known := s.ids[p.OSD.Key()]
	if !known {
		return nil
	}
	out := map[string]string{}
	for label, value := range (podspec.Knowledge{ID: &id, FailureDomains: s.byID[id].Location}).Labels() {
		if p.Labels[label] != value {
			out[label] = value
		}
	}
	return out
}

func (c cephOSD) write(ctx context.Context, notes []note) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, n := range notes {
		g.Go(func() error {
			patch, err := n.patch()
			if err != nil {
				return err
			}
			_, err = c.typed.CoreV1().Pods(n.pod.Namespace).Patch(ctx, n.pod.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: kube.FieldOwner})
			if isGone(err) || apierrors.IsInvalid(err) { // a pod of that name with another UID is another pod
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// patch is the note as a merge patch. A field that is null in one is removed as a whole, so what is empty must not be
// in it.
func (n note) patch() ([]byte, error) {
	metadata := map[string]any{"uid": n.pod.UID}
	if len(n.labels) > 0 {
		metadata["labels"] = n.labels
	}
	if len(n.annotations) > 0 {
		metadata["annotations"] = n.annotations
	}
	if n.disowned {
		metadata["ownerReferences"] = nil // none
		if len(n.owners) > 0 {
			metadata["ownerReferences"] = n.owners
		}
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}
