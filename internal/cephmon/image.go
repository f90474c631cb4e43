package cephmon

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephimage"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file judges the image of the spec before a mon gets it: one of an older release ends at each start, and one that
// leaves releases out does, too.

// settled tells whether a mon that lives has the spec's image: then it has shown that it starts.
func (w *world) settled(mons []monplan.Mon) bool {
	for _, mon := range mons {
		d := w.deployment(w.isMon(mon.Name))
		if mon.Alive && !mon.Renewing && d != nil && kube.DaemonImage(&d.Spec.Template.Spec) == w.image() {
			return true
		}
	}
	return false
}

func (w *world) image() string { return w.set.Spec.PodTemplate.Image }

// judged is a look with what speaks against the spec's image, if the next step gives it to a mon. asks: the image may
// be asked for its version, which makes a pod. No image is asked that a mon lives with already.
func (m *Mons) judged(ctx context.Context, w *world, look monplan.Seen, asks bool) (monplan.Seen, error) {
	next := monplan.Next(look)
	if !next.GivesImage() || w.settled(look.Mons) {
		return look, nil
	}
	if w.unasked = !asks && !m.knows(w); w.unasked {
		return look, nil
	}
	v, waits, err := m.version(ctx, w, *next.Work)
	switch {
	case err != nil:
		return look, err
	case waits != "":
		look.Image.Waits = w.aboutImage(waits)
		return look, nil
	}
	look.Image, err = m.judge(ctx, w, v)
	return look, err
}

// judge is what Ceph's rules have against a version of the spec's image.
func (m *Mons) judge(ctx context.Context, w *world, v upgrade.Version) (out monplan.Image, err error) {
	c, err := m.ceph(ctx, storage.ClusterKey{Namespace: w.policy.Namespace, Name: w.policy.Name})
	if err != nil {
		return out, err
	}
	osds, err := c.OSDDump(ctx)
	if err != nil {
		return out, err
	}
	against := upgrade.JudgeMon(upgrade.Cluster{Mons: w.release, RequiredOfOSDs: osds.RequireRelease}, v)
	if against.Refused != "" {
		out.Refused = w.aboutImage(against.Refused)
	}
	if against.Waits != "" {
		out.Waits = w.aboutImage(against.Waits)
	}
	return out, nil
}

func (w *world) aboutImage(what string) string {
	return fmt.Sprintf("spec.podTemplate.image %s: %s", w.image(), what)
}

// said is what a person says of the image's version. They may take it back.
func (w *world) said() string { return w.cephMon.Annotations[cephimage.SaidOnOwner] }

// imageKey is that of the spec's image among those whose version is remembered.
func (w *world) imageKey() string { return w.set.Namespace + "/" + w.image() }

func (m *Mons) knows(w *world) bool {
	_, known := m.images.Known(w.imageKey())
	return known || w.said() != ""
}

// version is that of the spec's image, or why it is not known.
func (m *Mons) version(ctx context.Context, w *world, work monplan.Work) (v upgrade.Version, waits string, err error) {
	if said := w.said(); said != "" {
		v, wrong := upgrade.ParseVersion(said)
		if wrong != nil {
			waits = fmt.Sprintf("annotation %s is %q, and must be its version, such as 18.2.7", cephimage.SaidOnOwner, said)
		}
		return v, waits, nil
	}
	if v, known := m.images.Known(w.imageKey()); known {
		return v, "", nil
	}
	orSay := fmt.Sprintf("; who knows its version can say so: kubectl -n %s annotate cephmon %s %s=18.2.7",
		w.set.Namespace, w.set.Name, cephimage.SaidOnOwner)
	v, waits, err = m.images.Ask(ctx, cephimage.Question{Pod: w.asking(work), Image: w.image(), OrSay: orSay})
	if err == nil && waits == "" {
		m.images.Remember(w.imageKey(), v)
	}
	return v, waits, err
}

// asking is a pod that asks the spec's image for its version where a mon is to have it: on the node of the one that
// restarts, or where a canary would run.
func (w *world) asking(work monplan.Work) *corev1.Pod {
	var d *appsv1.Deployment
	if work.Kind == monplan.Restart {
		d = w.deployment(w.isMon(work.Old))
	}
	if d == nil {
		d = w.set.Canary(monspec.Newcomer{Name: work.Newcomer, Zone: work.Zone, Avoid: work.Avoid})
	}
	spec := d.Spec.Template.Spec.DeepCopy()
	mon := kube.DaemonContainer(spec)
	mon.Name, mon.Image = "mon", w.image()
	owner := metav1.NewControllerRef(w.cephMon, v1alpha1.GroupVersion.WithKind("CephMon"))
	pod := cephimage.Pod(w.set.Namespace, cephimage.Hash(w.image()), spec, *owner)
	pod.Spec.ActiveDeadlineSeconds = new(int64(cephimage.AskedForAtMost))
	return pod
}

// mayHave answers whether a mon may get the spec's image now. The spec may be another one than at the look.
func (x act) mayHave(ctx context.Context, q ceph.QuorumStatus) (storage.Answer, error) {
	if x.settled(x.mons(q)) {
		return storage.Answer{OK: true}, nil
	}
	x.release = q.MonMap.MinRelease
	v, waits, err := x.version(ctx, x.world, x.work) // it may be another worker that has looked
	if err != nil {
		return storage.Answer{}, err
	}
	image := monplan.Image{}
	if waits != "" {
		image.Waits = x.aboutImage(waits)
	} else if image, err = x.judge(ctx, x.world, v); err != nil {
		return storage.Answer{}, err
	}
	return image.MayHave(x.work.Kind), nil
}
