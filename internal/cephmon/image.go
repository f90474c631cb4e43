package cephmon

import (
	"context"
	"fmt"
	"slices"

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

func (w *world) image() string { return w.set.Spec.PodTemplate.Image }

// has tells whether a mon is to run the spec's image by its Deployment.
func (w *world) has(mon string) bool {
	d := w.deployment(w.isMon(mon))
	return d != nil && kube.DaemonImage(&d.Spec.Template.Spec) == w.image()
}

// shows is a mon that lives with the spec's image; "": none does.
func (w *world) shows(mons []monplan.Mon) string {
	for _, mon := range mons {
		if mon.Alive && !mon.Renewing && w.has(mon.Name) {
			return mon.Name
		}
	}
	return ""
}

// judged is a look with what speaks against the spec's image, if the next step gives it to a mon. asks: the image may
// be asked for its version, which makes a pod.
func (m *Mons) judged(ctx context.Context, w *world, look monplan.Seen, asks bool) (monplan.Seen, error) {
	next := monplan.Next(look)
	if !next.GivesImage() {
		return look, nil
	}
	w.silent = !asks
	if w.unasked = w.silent && !m.knows(w) && w.shows(look.Mons) == ""; w.unasked {
		return look, nil
	}
	var err error
	look.Image, err = m.judge(ctx, w, look.Mons, *next.Work)
	return look, err
}

// judge is what Ceph's rules have against giving the spec's image to the mon of a step. Where every mon has it, it is
// judged already, and nobody is asked.
func (m *Mons) judge(
	ctx context.Context, w *world, mons []monplan.Mon, work monplan.Work,
) (out monplan.Image, err error) {
	if !slices.ContainsFunc(mons, func(mon monplan.Mon) bool { return !w.has(mon.Name) }) {
		return out, nil
	}
	c, err := m.ceph(ctx, storage.ClusterKey{Namespace: w.policy.Namespace, Name: w.policy.Name})
	if err != nil {
		return out, err
	}
	said, err := c.MonVersions(ctx)
	if why := ceph.Lacks(err); why != "" {
		return w.imageWaits(why), nil
	} else if err != nil {
		return out, err
	}
	runs := upgrade.ParseVersions(said)
	v, shown := runs[w.shows(mons)]
	if !shown {
		var waits string
		if v, waits, err = m.version(ctx, w, work); err != nil || waits != "" {
			return w.imageWaits(waits), err
		}
	}
	osds, err := c.OSDDump(ctx)
	if err != nil {
		return out, err
	}
	is := upgrade.Cluster{Mons: w.release, RequiredOfOSDs: osds.RequireRelease, MonsAre: map[string]upgrade.Version{}}
	if work.Kind == monplan.Restart {
		if is.MonsAre[work.Old], err = m.newest(ctx, w, mons, work, runs[work.Old]); err != nil {
			return out, err
		}
	}
	against := upgrade.JudgeMon(is, v)
	if against.Refused != "" {
		out.Refused = w.aboutImage(against.Refused)
		return out, nil
	}
	return w.imageWaits(against.Waits), nil
}

// newest is the newest version that a mon may have had: the one that it said, or that of the image which it was given
// last, if it has not come into quorum with that yet. What cannot be asked it cannot have started with either.
func (m *Mons) newest(
	ctx context.Context, w *world, mons []monplan.Mon, work monplan.Work, said upgrade.Version,
) (upgrade.Version, error) {
	i := slices.IndexFunc(mons, func(mon monplan.Mon) bool { return mon.Name == work.Old })
	d := w.deployment(w.isMon(work.Old))
	if d == nil || i >= 0 && mons[i].Alive && !mons[i].Renewing {
		return said, nil
	}
	image := kube.DaemonImage(&d.Spec.Template.Spec)
	given, waits, err := m.ask(ctx, w, work, image, "")
	if err == nil && waits == "" && given.Compare(said) > 0 {
		return given, nil
	}
	return said, err
}

func (w *world) imageWaits(why string) (out monplan.Image) {
	if why != "" {
		out.Waits = w.aboutImage(why)
	}
	return out
}

func (w *world) aboutImage(what string) string {
	return fmt.Sprintf("spec.podTemplate.image %s: %s", w.image(), what)
}

// said is what a person says of the image's version. They may take it back.
func (w *world) said() string { return w.cephMon.Annotations[cephimage.SaidOnOwner] }

// imageKey is that of an image among those whose version is remembered.
func (w *world) imageKey(image string) string { return w.set.Namespace + "/" + image }

func (m *Mons) knows(w *world) bool {
	_, known := m.images.Known(w.imageKey(w.image()))
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
	orSay := fmt.Sprintf("; who knows its version can say so: kubectl -n %s annotate cephmon %s %s=18.2.7",
		w.set.Namespace, w.set.Name, cephimage.SaidOnOwner)
	return m.ask(ctx, w, work, w.image(), orSay)
}

// ask asks an image, once.
func (m *Mons) ask(
	ctx context.Context, w *world, work monplan.Work, image, orSay string,
) (v upgrade.Version, waits string, err error) {
	if v, known := m.images.Known(w.imageKey(image)); known {
		return v, "", nil
	}
	if w.silent {
		return v, "nobody asks it for its version now", nil
	}
	v, waits, err = m.images.Ask(ctx, cephimage.Question{Pod: w.asking(work, image), Image: image, OrSay: orSay})
	if err == nil && waits == "" {
		m.images.Remember(w.imageKey(image), v)
	}
	return v, waits, err
}

// asking is a pod that asks an image for its version where a mon is to have it: on the node of the one that restarts,
// or where a canary would run.
func (w *world) asking(work monplan.Work, image string) *corev1.Pod {
	var d *appsv1.Deployment
	if work.Kind == monplan.Restart {
		d = w.deployment(w.isMon(work.Old))
	}
	if d == nil {
		d = w.set.Canary(monspec.Newcomer{Name: work.Newcomer, Zone: work.Zone, Avoid: work.Avoid})
	}
	spec := d.Spec.Template.Spec.DeepCopy()
	mon := kube.DaemonContainer(spec)
	mon.Name, mon.Image = "mon", image
	owner := metav1.NewControllerRef(w.cephMon, v1alpha1.GroupVersion.WithKind("CephMon"))
	pod := cephimage.Pod(w.set.Namespace, cephimage.Hash(image), spec, *owner)
	pod.Spec.ActiveDeadlineSeconds = new(int64(cephimage.AskedForAtMost))
	return pod
}

// mayHave answers whether the mon of a step may get the spec's image now. The spec may be another one than at the look.
func (x act) mayHave(ctx context.Context, q ceph.QuorumStatus) (storage.Answer, error) {
	x.release = q.MonMap.MinRelease
	image, err := x.judge(ctx, x.world, x.mons(q), x.work) // it may be another worker that has looked
	if err != nil {
		return storage.Answer{}, err
	}
	return image.MayHave(x.work.Kind), nil
}
