package cephosd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// rendered is the pod of an OSD, with all that is known of it.
func (s *state) rendered(o podspec.OSD) *corev1.Pod {
	k := podspec.Knowledge{}
	if id, known := s.ids[o.Key()]; known {
		k.ID, k.FailureDomains = &id, s.byID[id].Location
	}
	pod := s.Render(o, k)
	if k.ID != nil {
		pod.Annotations[UpFromAnnotation] = strconv.FormatInt(s.byID[*k.ID].UpFrom, 10)
	}
	return pod
}

// atOnce is how many pods are changed side by side.
const atOnce = 16

func (c cephOSD) create(ctx context.Context, keys []string) (out activities.Created, err error) {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return out, nil // the next look says what is to be done
	}
	if err != nil {
		return out, err
	}
	wanted := sets.New(keys...)
	missing := slices.DeleteFunc(slices.Clone(s.Missing),
		func(o podspec.OSD) bool { return !wanted.Has(o.Key()) || !s.MayGetPod(o, s.nodes) })
	gate, against, err := c.gate(ctx, s, missing)
	if err != nil || against.Refused != nil {
		return activities.Created{Refused: against.Refused}, err
	}
	missing = slices.DeleteFunc(missing, func(o podspec.OSD) bool {
		why := against.Waits
		if why == "" {
			why = gate.mayReturn(o)
		}
		if why != "" {
			out.Hindered = append(out.Hindered, activities.Superfluous{Key: o.Key(), Why: why})
		}
		return why != ""
	})
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, o := range missing {
		pod := s.rendered(o)
		g.Go(func() error {
			err := c.make(ctx, pod)
			hindered, err := c.hinders(ctx, pod, err)
			refused, err := s.judgement(err)
			mu.Lock()
			defer mu.Unlock()
			if refused != nil {
				out.Refused = refused
			}
			if hindered != "" {
				out.Hindered = append(out.Hindered, activities.Superfluous{Key: o.Key(), Why: hindered})
			}
			return err
		})
	}
	err = g.Wait()
	slices.SortFunc(out.Hindered, func(a, b activities.Superfluous) int { return cmp.Compare(a.Key, b.Key) })
	return out, err
}

func (f *OSDSets) make(ctx context.Context, pod *corev1.Pod) error {
	_, err := f.typed.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: kube.FieldOwner})
	return err
}

// hinders says who has the name of a pod that could not be made since there is one of that name. One of this CephOSD's
// is the same OSD's, and whoever made it was faster: the next look judges it.
func (c cephOSD) hinders(ctx context.Context, pod *corev1.Pod, err error) (string, error) {
	if !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	there, err := c.typed.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	owner := there.Labels[podspec.OwnerLabel]
	if owner == pod.Labels[podspec.OwnerLabel] {
		return "", nil
	}
	todo := fmt.Sprintf("delete it, or label it %s=%s if it is this OSD's", podspec.OwnerLabel,
		pod.Labels[podspec.OwnerLabel])
	if other, is := strings.CutPrefix(owner, cephv1alpha1.Kind+"-"); is {
		todo = fmt.Sprintf("it belongs to CephOSD %s: take the device out of one of the two", other)
	}
	return fmt.Sprintf("pod %s exists already and is not one of CephOSD %s: %s", pod.Name, c.ref.Name, todo), nil
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
	s := &state{Classified: set.Classify(desired, pods)}
	may, _ := s.discardable(time.Now())
	var gone []*corev1.Pod
	for _, p := range s.Invalid {
		if slices.Contains(may, p.Name) {
			gone = append(gone, p.Pod)
		}
	}
	s.Set = set
	asked, err := c.askedInVain(ctx, s)
	if err != nil {
		return err
	}
	wanted := sets.New(names...)
	for _, p := range append(gone, asked...) {
		if wanted.Has(p.Name) {
			if err := c.delete(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// delete deletes this very pod, and not another one that has its name by now.
func (f *OSDSets) delete(ctx context.Context, p *corev1.Pod) error {
	err := f.typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if isGone(err) {
		return nil
	}
	return err
}

// rehearse lets the API server judge the new pods, and asks whether the storage cluster takes their version.
func (c cephOSD) rehearse(ctx context.Context, in activities.Replacement) (out activities.Rehearsal, err error) {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) || err == nil && s.Hash != in.Template {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	batch := s.wanted(in.OSDs)
	if len(batch) == 0 {
		return out, nil
	}
	gate, against, err := c.gate(ctx, s, batch)
	switch {
	case err != nil || against != (activities.Rehearsal{}):
		return against, err
	case gate == nil:
		out.Refused, err = c.dryRun(ctx, s, batch[0])
		return out, err
	}
	return gate.mayReplace(batch), nil
}

// dryRun lets the API server judge the pod of an OSD, which it does before it notices that there is one of that name.
func (c cephOSD) dryRun(ctx context.Context, s *state, o podspec.OSD) (*input.Error, error) {
	_, err := c.typed.CoreV1().Pods(s.Namespace).Create(ctx, s.rendered(o),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: kube.FieldOwner})
	return s.judgement(err)
}

// wanted are those of a batch that are in the spec.
func (s *state) wanted(batch []rollout.OSD) []podspec.OSD {
	goes := map[string]bool{}
	for _, o := range batch {
		goes[o.Key] = true
	}
	return slices.DeleteFunc(slices.Clone(s.desired), func(o podspec.OSD) bool { return !goes[o.Key()] })
}

// judgement is that of the API server, with the field where people find it in the template.
func (s *state) judgement(err error) (*input.Error, error) {
	wrong, err := judgement(err)
	if field, is := strings.CutPrefix(wrongField(wrong), templatePath); is {
		wrong.Field = templatePath + s.TemplateField(field)
	}
	return wrong, err
}

func wrongField(e *input.Error) string {
	if e == nil {
		return ""
	}
	return e.Field
}

const templatePath = "spec.podTemplate."

// judgement tells what the API server finds wrong with a pod from its not answering.
func judgement(err error) (*input.Error, error) {
	if apierrors.IsAlreadyExists(err) {
		return nil, nil
	}
	path, message, rejected := kube.Rejection(err)
	if !rejected {
		return nil, err
	}
	field := "spec.podTemplate"
	if path != "" {
		field = templatePath + path
	}
	return input.Wrong(field, "", "the API server rejects the pod: "+clip(message)), nil
}
