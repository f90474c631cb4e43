package cephosd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephimage"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file lets pods go that somebody wants gone, and sees their daemons back.

// running implements kind. A pod on a node that somebody takes is left to him. A daemon whose pod is gone was let go by
// an attempt before this one. One whose pod runs and is not wanted gone any more was taken back: then nothing of the
// batch goes, and the next look says what is left.
func (w waiting) running(ctx context.Context, in activities.Replacement) (standing, storage.Answer, error) {
	s, err := w.look(ctx)
	if err != nil {
		return standing{}, storage.Answer{}, err
	}
	if s.refuse != nil {
		return standing{}, storage.Answer{Reason: s.refuse.Allowed}, nil //nolint:nilerr // as in survey
	}
	var out []rollout.OSD
	homeless := s.homeless()
	for _, o := range in.OSDs {
		// Since the look: whoever took the node has taken the pod along, or will.
		if why := cmp.Or(s.away[o.Host], homeless[o.Name]); why != "" {
			return standing{}, storage.Answer{Reason: why}, nil
		}
		pods := s.pods(o.Name)
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == types.UID(o.Pod) }) {
			continue
		}
		if x, wanted := s.wish(o.Name); !wanted || x.UID != types.UID(o.Pod) || x.Newer == o.ForGood {
			return standing{}, storage.Answer{Reason: o.Name + " is not to go any more, or in another way"}, nil
		}
		out = append(out, o)
	}
	return standing{running: out}, w.quorum(ctx, in, out), nil
}

// quorum answers whether the mons of a batch may stop: there is one at a time.
func (w waiting) quorum(ctx context.Context, in activities.Replacement, running []rollout.OSD) storage.Answer {
	for _, o := range running {
		if !rollout.IsMon(o.Name) || o.ForGood {
			continue
		}
		mons, err := w.ceph.Mons(ctx, in.Cluster)
		switch {
		case err != nil:
			return storage.Answer{Reason: "the mons: " + err.Error()}
		case mons.Unavailable != "":
			return storage.Answer{Reason: mons.Unavailable}
		}
		if a := mons.Map.EveryZoneUp(); !a.OK { // one at a time, and only while all others are there
			return a
		}
		if a := mons.Map.MayStop(strings.TrimPrefix(o.Name, "mon.")); !a.OK {
			return a
		}
	}
	return storage.Answer{OK: true}
}

// A budget may refuse for a moment after its failure domain has opened.
const (
	letGoWithin = 20 * time.Second
	askAgainMin = 50 * time.Millisecond
	askAgainMax = time.Second
)

// replace implements kind: it evicts the pods of a batch, all of them again and again until each of them terminates. An
// eviction works whoever wants the pod gone, is asked of the budgets by the API server, and names the very pod.
func (w waiting) replace(ctx context.Context, in activities.Replacement) error {
	ctx, cancel := context.WithTimeout(ctx, letGoWithin)
	defer cancel()
	s, err := w.look(ctx)
	if err != nil {
		return err
	}
	left := slices.Clone(in.OSDs)
	for pause := askAgainMin; ; pause = min(2*pause, askAgainMax) {
		var refused error
		left = slices.DeleteFunc(left, func(o rollout.OSD) bool {
			err := w.evict(ctx, s, o)
			if err != nil {
				refused = fmt.Errorf("let %s go: %w", o, err)
			}
			return err == nil
		})
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return refused
		case <-time.After(pause):
		}
	}
}

func (w waiting) evict(ctx context.Context, s *waits, o rollout.OSD) error {
	i := slices.IndexFunc(s.objects.Pods, func(p corev1.Pod) bool { return p.UID == types.UID(o.Pod) })
	if i < 0 || s.objects.Pods[i].DeletionTimestamp != nil {
		return nil // it has gone
	}
	uid := s.objects.Pods[i].UID
	err := w.typed.CoreV1().Pods(w.ref.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: s.objects.Pods[i].Name, Namespace: w.ref.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another pod has the name by now
		return nil
	}
	return err
}

// rehearse implements kind: a daemon that is to have another image has to be one that its cluster can take.
func (w waiting) rehearse(ctx context.Context, in activities.Replacement) (out activities.Rehearsal, err error) {
	s, err := w.look(ctx)
	if err != nil || s.refuse != nil {
		return out, err
	}
	images := map[string]*imageChange{}
	for _, o := range in.OSDs {
		x, wanted := s.wish(o.Name)
		if !wanted || !x.Newer {
			continue
		}
		wants, known := s.owner(x)
		if !known {
			continue
		}
		image := kube.DaemonImage(&wants.template.Spec)
		if image == s.image(x) {
			continue
		}
		if images[image] == nil {
			images[image] = &imageChange{image: image, owner: wants}
		}
		if rollout.IsMon(o.Name) {
			images[image].mons = append(images[image].mons, strings.TrimPrefix(o.Name, "mon."))
		} else {
			images[image].osds = append(images[image].osds, osdID(o.Name))
		}
	}
	for _, image := range images {
		if out, err = w.judge(ctx, s, image); err != nil || out != (activities.Rehearsal{}) {
			return out, err
		}
	}
	return out, nil
}

// imageChange is an image that daemons of a batch are to have, and who they are.
type imageChange struct {
	image string
	owner owner // of one of them
	osds  []int
	mons  []string
}

// verdict is what Ceph's rules say about starting them with a version.
func (n *imageChange) verdict(is upgrade.Cluster, v upgrade.Version) upgrade.Verdict {
	if len(n.mons) > 0 {
		if against := upgrade.JudgeMon(is, v); against != (upgrade.Verdict{}) {
			return against
		}
	}
	if len(n.osds) > 0 {
		return upgrade.Judge(is, v)
	}
	return upgrade.Verdict{}
}

// owner is whose template the next pod of a daemon is made of.
type owner struct {
	ref      metav1.OwnerReference
	template corev1.PodTemplateSpec
	said     string // of its image's version, by a person
	rook     string // and by Rook
}

func (s *waits) owner(x kube.StorageWish) (owner, bool) {
	kind, name, _ := strings.Cut(x.Owner, "/")
	of := func(m *metav1.ObjectMeta, t corev1.PodTemplateSpec) (owner, bool) {
		return owner{
			ref:      metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: m.UID, Controller: new(true)},
			template: t, said: m.Annotations[cephimage.SaidOnOwner], rook: kube.RookVersion(m, &t.Spec),
		}, true
	}
	for i := range s.objects.Deployments {
		if d := &s.objects.Deployments[i]; kind == "Deployment" && d.Name == name {
			return of(&d.ObjectMeta, d.Spec.Template)
		}
	}
	for i := range s.objects.StatefulSets {
		if d := &s.objects.StatefulSets[i]; kind == "StatefulSet" && d.Name == name {
			return of(&d.ObjectMeta, d.Spec.Template)
		}
	}
	for i := range s.objects.DaemonSets {
		if d := &s.objects.DaemonSets[i]; kind == "DaemonSet" && d.Name == name {
			return of(&d.ObjectMeta, d.Spec.Template)
		}
	}
	return owner{}, false
}

// image is that of the pod which waits.
func (s *waits) image(x kube.StorageWish) string {
	for i := range s.objects.Pods {
		if s.objects.Pods[i].UID == x.UID {
			return kube.DaemonImage(&s.objects.Pods[i].Spec)
		}
	}
	return ""
}

// only are those of some mons.
func only(all map[string]upgrade.Version, mons []string) map[string]upgrade.Version {
	out := map[string]upgrade.Version{}
	for _, mon := range mons {
		if v, known := all[mon]; known {
			out[mon] = v
		}
	}
	return out
}

// judge asks what speaks against an image.
func (w waiting) judge(ctx context.Context, s *waits, n *imageChange) (out activities.Rehearsal, err error) {
	wants, image := n.owner, n.image
	c, unavailable, err := w.ask(ctx, s.key, false)
	if out.Waits = unavailable; err != nil || out.Waits != "" {
		return out, err
	}
	seen, err := w.ceph.Versions(ctx, s.key)
	if out.Waits = seen.Unavailable; err != nil || out.Waits != "" {
		return out, err
	}
	field := fmt.Sprintf("image of %s %s", wants.ref.Kind, wants.ref.Name)
	key := w.ref.Namespace + "/" + cephimage.Hash(image)
	v, known := w.images.Known(key)
	switch {
	case wants.said != "":
		if v, err = upgrade.ParseVersion(wants.said); err != nil {
			out.Refused = input.Wrong("metadata.annotations["+cephimage.SaidOnOwner+"] of "+wants.ref.Name, wants.said,
				"must be the version of Ceph that the image has, such as 18.2.7")
			return out, nil //nolint:nilerr // a refusal is an answer
		}
	case !known:
		spec := wants.template.Spec.DeepCopy()
		pod := cephimage.Pod(w.ref.Namespace, cephimage.Hash(image), spec, wants.ref)
		pod.Spec.ActiveDeadlineSeconds = new(int64(cephimage.AskedForAtMost))
		orSay := fmt.Sprintf("; who knows its version can say so: kubectl -n %s annotate %s %s %s=18.2.7", w.ref.Namespace,
			strings.ToLower(wants.ref.Kind), wants.ref.Name, cephimage.SaidOnOwner)
		asks := cephimage.Question{Pod: pod, Image: image, OrSay: orSay, Said: wants.rook}
		if v, out.Waits, err = w.images.Ask(ctx, asks); err != nil || out.Waits != "" {
			return out, err
		}
		w.images.Remember(key, v)
	}
	is := about(seen, func(id int) bool { return c.byID[osdName(id)].Up }, n.osds)
	if len(n.mons) > 0 {
		runs, unavailable, err := w.ceph.MonVersions(ctx, s.key)
		if out.Waits = unavailable; err != nil || out.Waits != "" {
			return out, err
		}
		is.MonsAre = only(runs, n.mons)
	}
	verdict := n.verdict(is, v)
	if verdict.Refused != "" {
		out.Refused = input.Wrong(field, image, verdict.Refused)
	}
	out.Waits = verdict.Waits
	return out, nil
}

// await implements kind.
func (w waiting) await(
	ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival),
) (activities.Arrival, error) {
	awaited := slices.DeleteFunc(slices.Clone(in.LetGo), func(g activities.LetGo) bool {
		return !slices.Contains(in.Keys, g.Key)
	})
	for pause := askCephAtFirst; ; pause = min(pause*5/4, askCephAtLeast) {
		s, err := w.look(ctx)
		if err != nil || s.refuse != nil {
			return activities.Arrival{Moved: true}, err
		}
		c, unavailable, err := w.ask(ctx, s.key, s.concernsMons(awaited))
		if err != nil {
			return activities.Arrival{}, err
		}
		a := arrivalOf(s, c, unavailable, awaited)
		if len(a.Waiting) == 0 {
			return a, nil
		}
		beat(a)
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// arrivalOf tells who is not back. Who went for good will not be, and is not waited for.
func arrivalOf(s *waits, c cluster, unavailable string, awaited []activities.LetGo) (a activities.Arrival) {
	for _, g := range awaited {
		why := unavailable
		if why == "" {
			why = s.back(g, c)
		}
		switch {
		case why != "" && len(a.Waiting) < progressWaited:
			a.Waiting = append(a.Waiting, activities.Superfluous{Key: g.Key, Why: why})
		case why == "" && g.ForGood:
			a.Excused = append(a.Excused, g.Key)
		}
	}
	return a
}

// confirm implements kind. That they are back the job itself notes.
func (w waiting) confirm(context.Context, activities.AwaitInput) error { return nil }
