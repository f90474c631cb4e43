package cephosd

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephimage"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file gives OSDs that Deployments run another image, where no operator does so. What has to be known before is
// the same as of a CephOSD (release.go).

// withImage has those containers of a pod that have the OSD's own image, each with another image. Rook's init
// containers run the OSD's program, too.
func withImage(spec *corev1.PodSpec, image string) (out corev1.PodSpec) {
	is := kube.DaemonImage(spec)
	change := func(all []corev1.Container) (out []corev1.Container) {
		for i := range all {
			if all[i].Image == is {
				out = append(out, corev1.Container{Name: all[i].Name, Image: image})
			}
		}
		return out
	}
	out.InitContainers, out.Containers = change(spec.InitContainers), change(spec.Containers)
	return out
}

// takenBack tells whether somebody changed the image that this restart gave a Deployment. Whoever it is would do so
// again, and each time an OSD would stop.
func (d deployments) takenBack(x *appsv1.Deployment) bool {
	return d.ref.Image != "" && d.restarted(x) && !d.done(x)
}

func (d deployments) somebodyElse(x *appsv1.Deployment) *input.Error {
	const why = "somebody else sets the image, too: this restart gave it to Deployment %s, which has %s now. " +
		"If that is Rook's operator, change spec.cephVersion.image of its CephCluster instead"
	return input.Wrong("image", d.ref.Image, fmt.Sprintf(why, x.Name, kube.DaemonImage(&x.Spec.Template.Spec)))
}

// isNew tells whether no OSD serves yet with the image: then one of them goes first, alone.
func (d deployments) isNew(r *restarting, osds []rollout.OSD) bool {
	return d.ref.Image != "" && !slices.ContainsFunc(r.list, func(x appsv1.Deployment) bool {
		return d.done(&x) && slices.ContainsFunc(osds, func(o rollout.OSD) bool { return o.Key == x.Name && o.Serves })
	})
}

// rehearse asks what speaks against the image. Without one only an annotation changes, and the API server has nothing
// to judge but our right to write it.
func (d deployments) rehearse(ctx context.Context, in activities.Replacement) (out activities.Rehearsal, err error) {
	if d.ref.Image == "" {
		return out, nil
	}
	r, err := d.look(ctx)
	if err != nil || len(r.refuse) > 0 {
		return out, err // the next look says what is wrong
	}
	var batch []*appsv1.Deployment
	var ids []int
	for i := range r.list {
		x := &r.list[i]
		if !d.done(x) && slices.ContainsFunc(in.OSDs, func(o rollout.OSD) bool { return o.Key == x.Name }) {
			batch, ids = append(batch, x), append(ids, r.ids[x.Name])
		}
	}
	if len(batch) == 0 {
		return out, nil
	}
	err = d.write(ctx, batch[0], nil, d.change(batch[0]), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	rejected, err := judgement(err)
	if rejected != nil { // by a webhook, say, which may think otherwise the next time: that ends no restart of hours
		out.Waits = fmt.Sprintf("the API server does not take %s in Deployment %s: %s", d.ref.Image, batch[0].Name,
			rejected.Allowed)
	}
	if err != nil || rejected != nil {
		return out, err
	}
	osds, err := d.ceph.OSDs(ctx, r.key, false)
	if out.Waits = osds.Unavailable; err != nil || out.Waits != "" {
		return out, err
	}
	seen, err := d.ceph.Versions(ctx, r.key)
	if out.Waits = seen.Unavailable; err != nil || out.Waits != "" {
		return out, err
	}
	up := map[int]bool{}
	for _, o := range osds.OSDs {
		up[o.ID] = o.Up
	}
	isUp := func(id int) bool { return up[id] }
	next, out, err := d.version(ctx, batch[0])
	if err != nil || out != (activities.Rehearsal{}) {
		return out, err
	}
	verdict := upgrade.Judge(about(seen, isUp, ids), next)
	if verdict.Refused != "" {
		out.Refused = input.Wrong("image", d.ref.Image, verdict.Refused)
	}
	out.Waits = verdict.Waits
	return out, nil
}

// version is that of the image, or what speaks against it that it is not known.
// What an OSD that has the image said when it started does not count: it may have been an older one of that number,
// which Ceph has not missed yet.
func (d deployments) version(
	ctx context.Context, x *appsv1.Deployment,
) (v upgrade.Version, against activities.Rehearsal, err error) {
	if d.ref.CephVersion != "" {
		if v, err = upgrade.ParseVersion(d.ref.CephVersion); err != nil {
			const allowed = "must be the version of Ceph that the image has, such as 18.2.7"
			against.Refused = input.Wrong("cephVersion", d.ref.CephVersion, allowed)
		}
		return v, against, nil
	}
	if v, known := d.images.Known(d.imageKey()); known {
		return v, against, nil
	}
	v, against.Waits, err = d.images.Ask(ctx, cephimage.Question{Pod: d.asking(x), Image: d.ref.Image, OrSay: d.orSay()})
	if err == nil && against.Waits == "" {
		d.images.Remember(d.imageKey(), v)
	}
	return v, against, err
}

// imageKey is that of the image's version among those that are remembered.
func (d deployments) imageKey() string { return d.ref.Namespace + "/" + cephimage.Hash(d.ref.Image) }

// orSay tells a person what else they can do.
func (d deployments) orSay() string {
	const how = "; who knows its version can say so: `lockkeeper abort restart-osds/%s`, " +
		"and then restart-osds with --ceph-version, such as 18.2.7"
	return fmt.Sprintf(how, d.ref.Namespace)
}

// asking is a pod that asks the image for its version where the OSD of a Deployment is to run.
func (d deployments) asking(x *appsv1.Deployment) *corev1.Pod {
	spec := x.Spec.Template.Spec.DeepCopy()
	kube.DaemonContainer(spec).Image = d.ref.Image
	// As one that is managed it is in nobody's way who drains the node.
	owner := metav1.OwnerReference{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: x.Name, UID: x.UID, Controller: new(true),
	}
	pod := cephimage.Pod(x.Namespace, cephimage.Hash(d.ref.Image), spec, owner)
	pod.Spec.ActiveDeadlineSeconds = new(int64(cephimage.AskedForAtMost))
	return pod
}

// troubleOf is what Ceph has against an OSD that went first.
func (d deployments) troubleOf(ctx context.Context, r *restarting, seen cephcluster.OSDs, key string) (string, error) {
	at := slices.IndexFunc(seen.OSDs, func(o cephcluster.OSD) bool { return key != "" && o.ID == r.ids[key] })
	if at < 0 {
		return "", nil
	}
	has, _ := d.images.Known(d.imageKey())
	if said, err := upgrade.ParseVersion(d.ref.CephVersion); err == nil {
		has = said
	}
	return d.hasAgainst(ctx, r.key, seen.OSDs[at], d.ref.Image, has)
}
