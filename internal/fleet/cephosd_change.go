package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/osdpod"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// UpFromAnnotation on a pod is the epoch since which its OSD was up before the pod was made: the OSD is up again when Ceph
// tells of a later one. Without it a map that has not noticed yet would be taken for a start.
const UpFromAnnotation = "lockkeeper.io/up-from-before"

func upFromBefore(p *corev1.Pod) int64 {
	epoch, err := strconv.ParseInt(p.Annotations[UpFromAnnotation], 10, 64)
	if err != nil {
		return -1
	}
	return epoch
}

// now is the fleet at this moment, for a change that was decided a moment ago.
func (c cephOSD) now(ctx context.Context) (*state, error) {
	set, found, err := c.spec(ctx)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errMoved
	}
	var seen activities.Survey
	s, err := c.look(ctx, set, &seen)
	switch {
	case err != nil:
		return nil, err
	case len(s.refused) > 0:
		return nil, errMoved
	case seen.Unavailable != "":
		return nil, errors.New(seen.Unavailable)
	}
	return s, nil
}

// rendered is the pod of an OSD, with all that is known of it.
func (s *state) rendered(o osdpod.OSD) *corev1.Pod {
	k := osdpod.Knowledge{}
	if id, known := s.ids[o.Key()]; known {
		k.ID, k.FailureDomains = &id, s.byID[id].Location
	}
	pod := s.Render(o, k)
	if k.ID != nil {
		pod.Annotations[UpFromAnnotation] = strconv.FormatInt(s.byID[*k.ID].UpFrom, 10)
	}
	return pod
}

func (c cephOSD) create(ctx context.Context, keys []string) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return nil // the next look says what is to be done
	}
	if err != nil {
		return err
	}
	wanted := setOf(keys)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, o := range s.Missing {
		if !s.creatable(o, wanted) {
			continue
		}
		pod := s.rendered(o)
		g.Go(func() error { return c.make(ctx, pod) })
	}
	return g.Wait()
}

// atOnce is how many pods are changed side by side.
const atOnce = 16

// make creates a pod. One of that name is the same OSD's, and whoever made it was faster.
func (c cephOSD) make(ctx context.Context, pod *corev1.Pod) error {
	_, err := c.typed.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: kube.FieldOwner})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c cephOSD) discard(ctx context.Context, names []string) error {
	set, found, err := c.spec(ctx)
	if err != nil || !found {
		return err
	}
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	desired, _ := set.Desired()
	wanted := setOf(names)
	for _, p := range set.Classify(desired, pods).Invalid {
		if wanted[p.Name] && !p.Serving {
			if err := c.delete(ctx, p.Pod); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c cephOSD) remove(ctx context.Context, names []string) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	cluster, _, err := c.policy(ctx, s.Namespace, s.Spec.Policy)
	if err != nil {
		return err
	}
	wanted := setOf(names)
	for _, p := range s.Superfluous {
		if !wanted[p.Name] {
			continue
		}
		if id, known := s.ids[p.OSD.Key()]; p.Pod.Annotations[RemoveAnnotation] != "true" {
			a, err := storage.Answer{}, error(nil)
			if known {
				a, err = c.ceph.SafeToDestroy(ctx, cluster, []int{id})
			}
			if err != nil || !a.OK {
				return err
			}
		}
		if err := c.delete(ctx, p.Pod); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes this very pod, and not another one that has its name by now.
func (c cephOSD) delete(ctx context.Context, p *corev1.Pod) error {
	err := c.typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if isGone(err) {
		return nil
	}
	return err
}

func (c cephOSD) rehearse(ctx context.Context, in activities.Replacement) (*input.Error, error) {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) || err == nil && s.Hash != in.Template {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, o := range s.desired {
		if o.Key() != in.OSDs[0].Key {
			continue
		}
		// The API server judges a pod before it notices that there is one of that name.
		_, err := c.typed.CoreV1().Pods(s.Namespace).Create(ctx, s.rendered(o), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: kube.FieldOwner})
		return judgement(err)
	}
	return nil, nil
}

// judgement tells what the API server finds wrong with a pod from its not answering.
func judgement(err error) (*input.Error, error) {
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil, nil
	case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err), !errors.As(err, &status):
		return nil, err
	}
	field, message := "spec.podTemplate", status.Status().Message
	if d := status.Status().Details; d != nil && len(d.Causes) > 0 {
		field, message = "spec.podTemplate."+d.Causes[0].Field, d.Causes[0].Message
	}
	return input.Wrong(field, "", "the API server rejects the pod: "+clip(message)), nil
}

func (c cephOSD) running(ctx context.Context, in activities.Replacement) ([]rollout.OSD, storage.Answer, error) {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) || err == nil && s.Hash != in.Template {
		return nil, storage.Answer{Reason: errMoved.Error()}, nil
	}
	if err != nil {
		return nil, storage.Answer{}, err
	}
	old := s.old()
	var out []rollout.OSD
	for _, o := range in.OSDs {
		if old[o.Key] != nil {
			out = append(out, o)
		}
	}
	return out, storage.Answer{OK: true}, nil
}

// old are the pods that are to be replaced, by the key of their OSD.
func (s *state) old() map[string]*osdpod.Pod {
	out := map[string]*osdpod.Pod{}
	for i := range s.OutOfDate {
		out[s.OutOfDate[i].OSD.Key()] = &s.OutOfDate[i]
	}
	for i := range s.Invalid {
		if p := &s.Invalid[i]; p.Serving {
			out[p.OSD.Key()] = p
		}
	}
	return out
}

// replace deletes the old pods, sees each gone, and makes its successor: two daemons on one device destroy it.
func (c cephOSD) replace(ctx context.Context, in activities.Replacement) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	old := s.old()
	desired := map[string]osdpod.OSD{}
	for _, o := range s.desired {
		desired[o.Key()] = o
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(len(in.OSDs))
	for _, o := range in.OSDs {
		want, ok := desired[o.Key]
		if !ok {
			continue
		}
		successor := s.rendered(want)
		g.Go(func() error {
			if p := old[o.Key]; p != nil {
				if err := c.delete(ctx, p.Pod); err != nil {
					return fmt.Errorf("delete pod %s: %w", p.Name, err)
				}
			}
			return c.succeed(ctx, want, successor)
		})
	}
	return g.Wait()
}

// succeed makes the successor of a pod when nobody has the OSD's device any more: the old pod may have been evicted by somebody
// else just before, and still be ending. On a node that is being emptied it is not made at all; it comes back with the node.
func (c cephOSD) succeed(ctx context.Context, o osdpod.OSD, successor *corev1.Pod) error {
	err := poll(ctx, func() (bool, error) {
		pods, err := c.pods(ctx)
		return err == nil && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			mine := p.Annotations[osdpod.HostAnnotation] == o.Host && p.Annotations[osdpod.DataAnnotation] == o.Data
			return mine && (p.Name != successor.Name || p.DeletionTimestamp != nil)
		}), err
	})
	if err != nil {
		return err
	}
	hosts, away, err := c.nodes(ctx)
	if err != nil || !hosts[o.Host] || away[o.Host] != "" {
		return err
	}
	return c.makeSoon(ctx, successor)
}

// makeSoon creates a pod as soon as no other one of its name is left.
func (c cephOSD) makeSoon(ctx context.Context, pod *corev1.Pod) error {
	return poll(ctx, func() (bool, error) {
		_, err := c.typed.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: kube.FieldOwner})
		if !apierrors.IsAlreadyExists(err) {
			return err == nil, err
		}
		now, err := c.typed.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && now.DeletionTimestamp == nil, client.IgnoreNotFound(err) // an attempt before this one made it
	})
}

// poll asks again and again until the answer is yes.
func poll(ctx context.Context, done func() (bool, error)) error {
	const pauseMin, pauseMax = 50 * time.Millisecond, time.Second
	for pause := pauseMin; ; pause = min(pause*3/2, pauseMax) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (c cephOSD) confirm(ctx context.Context, in activities.AwaitInput) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.write(ctx, s.released(setOf(in.Keys), time.Now()))
}

// note writes on the pods what is known of them: state, number, failure domains.
func (c cephOSD) note(ctx context.Context) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
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
func (s *state) released(keys map[string]bool, at time.Time) (notes []note) {
	for _, pods := range [][]osdpod.Pod{s.Ready, s.UpToDate} {
		for i := range pods {
			p := &pods[i]
			if keys[p.OSD.Key()] && p.Ready {
				notes = append(notes, note{pod: p.Pod, annotations: osdpod.Release(at), labels: s.missingLabels(p)})
			}
		}
	}
	return notes
}

// unnoted are pods that do not say what is known of them.
func (s *state) unnoted(at time.Time) (notes []note) {
	disowned := map[types.UID]bool{}
	for _, p := range s.Disowned {
		disowned[p.UID] = true
	}
	for _, pods := range [][]osdpod.Pod{s.UpToDate, s.OutOfDate, s.Unready} { // ready ones are released in a moment
		for i := range pods {
			p := &pods[i]
			n := note{pod: p.Pod, labels: s.missingLabels(p), annotations: p.Annotations(at), owners: s.OwnerReferences(), disowned: disowned[p.UID]}
			if len(n.labels)+len(n.annotations) > 0 || n.disowned {
				notes = append(notes, n)
			}
		}
	}
	return notes
}

// missingLabels are those that the pod should have and has not. The OSD that it was before it moved keeps nobody from a budget.
func (s *state) missingLabels(p *osdpod.Pod) map[string]string {
	id, known := s.ids[p.OSD.Key()]
	if !known {
		return nil
	}
	out := map[string]string{}
	for label, value := range (osdpod.Knowledge{ID: &id, FailureDomains: s.byID[id].Location}).Labels() {
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
			_, err = c.typed.CoreV1().Pods(n.pod.Namespace).Patch(ctx, n.pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: kube.FieldOwner})
			if isGone(err) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// patch is the note as a merge patch. A field that is null in one is removed as a whole, so what is empty must not be in it.
func (n note) patch() ([]byte, error) {
	metadata := map[string]any{"uid": n.pod.UID}
	if len(n.labels) > 0 {
		metadata["labels"] = n.labels
	}
	if len(n.annotations) > 0 {
		metadata["annotations"] = n.annotations
	}
	if n.disowned {
		metadata["ownerReferences"] = n.owners // null: none
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

func setOf(names []string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}
