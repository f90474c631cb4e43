package cephosd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephimage"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file keeps an OSD from being started with a version of Ceph that its cluster cannot take. Which version an
// image has is what an OSD runs that serves with it, or else what its program says (program.go).

// gate is what decides whether OSDs may be started as a template says; nil: it changes no image, and they may.
type gate struct {
	*state
	seen cephcluster.Versions
	next upgrade.Version
}

// gate learns what has to be known about these OSDs. What speaks against any of them, whichever it is, it says itself.
func (c cephOSD) gate(
	ctx context.Context, s *state, osds []podspec.OSD,
) (g *gate, against activities.Rehearsal, err error) {
	image := s.image()
	if image == "" || len(osds) == 0 || !s.changesImage(osds, image) {
		return nil, against, nil
	}
	if against.Refused, err = c.dryRun(ctx, s, osds[0]); against.Refused != nil || err != nil {
		return nil, against, err // a pod that the API server rejects needs no version
	}
	g = &gate{state: s}
	if g.seen, err = c.ceph.Versions(ctx, s.cluster); err != nil {
		return nil, against, err
	}
	if against.Waits = g.seen.Unavailable; against.Waits != "" {
		return nil, against, nil
	}
	g.next, against, err = c.version(ctx, s, g.seen, osds[0])
	return g, against, err
}

// mayReplace judges OSDs that run, and that nobody has to stop now.
func (g *gate) mayReplace(osds []podspec.OSD) (out activities.Rehearsal) {
	if g == nil {
		return out
	}
	verdict := upgrade.Judge(g.versions(g.seen, osds), g.next)
	if verdict.Refused != "" {
		out.Refused = g.wrongImage(verdict.Refused)
	}
	out.Waits = verdict.Waits
	return out
}

// mayReturn says why an OSD that is down must not be started; "": it may. Its data is missed, so that it waits for
// nothing but what would harm it: another one's verdict and somebody else's upgrade keep it from nothing.
func (g *gate) mayReturn(o podspec.OSD) string {
	if g == nil {
		return ""
	}
	about := g.versions(g.seen, []podspec.OSD{o})
	about.Elsewhere = ""
	verdict := upgrade.Judge(about, g.next)
	return cmp.Or(verdict.Refused, verdict.Waits)
}

// image is that of the OSD's own container: the one that Rook calls "osd", or the first.
func (s *state) image() string { return kube.DaemonImage(&s.Spec.PodTemplate.Spec) }

// changesImage tells whether any of these OSDs was last started with another image. Of one without a pod nobody knows;
// when all others run with this image, and one of them serves, it is no other.
func (s *state) changesImage(osds []podspec.OSD, image string) bool {
	others, serves := false, false
	last := map[string]string{}
	for _, p := range s.all() {
		is := kube.DaemonImage(&p.Pod.Spec)
		last[p.OSD.Key()] = is
		others = others || is != image
		serves = serves || is == image && p.Ready
	}
	return slices.ContainsFunc(osds, func(o podspec.OSD) bool {
		is, has := last[o.Key()]
		return has && is != image || !has && (others || !serves)
	})
}

// all are the pods that are OSDs of the set.
func (s *state) all() []podspec.Pod {
	return slices.Concat(s.UpToDate, s.OutOfDate, s.Ready, s.Unready, s.Superfluous)
}

// versions are those of the cluster, for a batch.
func (s *state) versions(seen cephcluster.Versions, osds []podspec.OSD) upgrade.Cluster {
	var ids []int
	for _, o := range osds {
		if id, known := s.ids[o.Key()]; known {
			ids = append(ids, id)
		}
	}
	return about(seen, func(id int) bool { return s.byID[id].Up }, ids)
}

// version is that of the template's image, or what speaks against it that it is not known.
func (c cephOSD) version(
	ctx context.Context, s *state, seen cephcluster.Versions, o podspec.OSD,
) (v upgrade.Version, against activities.Rehearsal, err error) {
	template := c.ref.Namespace + "/" + s.Hash
	if v, known := c.images.Known(template); known {
		return v, against, nil
	}
	if v, known := s.runs(seen); known {
		c.images.Remember(template, v)
		return v, against, nil
	}
	if s.said() != "" { // not remembered: who said it may take it back
		if v, err = upgrade.ParseVersion(s.said()); err != nil {
			allowed := "the version of Ceph that the template's image has, such as 18.2.7"
			against.Refused = input.Wrong("metadata.annotations["+s.saidIn()+"]", s.said(), allowed)
		}
		return v, against, nil
	}
	v, against.Waits, err = c.images.Ask(ctx, cephimage.Question{Pod: s.asking(o), Image: s.image(), OrSay: s.orSay()})
	if err == nil && against.Waits == "" {
		c.images.Remember(template, v)
	}
	return v, against, err
}

// said is what a person says of the template's image, and saidIn the annotation where they say it.
func (s *state) said() string { return s.Annotations[s.saidIn()] }

func (s *state) saidIn() string { return podspec.VersionAnnotation + s.Hash }

// orSay tells a person what else they can do.
func (s *state) orSay() string {
	const how = "; who knows its version can say so: kubectl -n %s annotate cephosd %s %s=18.2.7"
	return fmt.Sprintf(how, s.Namespace, s.Name, s.saidIn())
}

// runs is the version of an OSD that serves with this very template.
func (s *state) runs(seen cephcluster.Versions) (upgrade.Version, bool) {
	for i := range s.UpToDate {
		p := &s.UpToDate[i]
		id, known := s.ids[p.OSD.Key()]
		if v, said := seen.OSDs[id]; known && said && s.osd(p.OSD, p).Serves {
			return v, true
		}
	}
	return upgrade.Version{}, false
}

// asking is a pod that asks the template's image for its version.
func (s *state) asking(o podspec.OSD) *corev1.Pod {
	owner := metav1.NewControllerRef(s.CephOSD, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	return cephimage.Pod(s.Namespace, s.Hash, &s.rendered(o).Spec, *owner)
}

// askedInVain are the pods that ask for a version which nobody has to know any more: the template is another one by
// now, or the version is known otherwise.
func (c cephOSD) askedInVain(ctx context.Context, s *state) (pods []*corev1.Pod, err error) {
	list, err := c.typed.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: podspec.VersionLabel})
	if err != nil {
		return nil, err
	}
	_, known := c.images.Known(s.Namespace + "/" + s.Hash)
	for i := range list.Items {
		p := &list.Items[i]
		if metav1.IsControlledBy(p, s.CephOSD) && (known || s.said() != "" || p.Labels[podspec.VersionLabel] != s.Hash) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// troubleOf is what Ceph has against an OSD that went first.
func (c cephOSD) troubleOf(ctx context.Context, s *state, key string) (string, error) {
	id, known := s.ids[key]
	if key == "" || !known {
		return "", nil
	}
	has, _ := c.images.Known(c.ref.Namespace + "/" + s.Hash)
	return c.hasAgainst(ctx, s.cluster, s.byID[id], s.image(), has)
}

// wrongImage says why the template's image can never be these OSDs'.
func (s *state) wrongImage(why string) *input.Error {
	containers := s.Spec.PodTemplate.Spec.Containers
	i := max(slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "osd" }), 0)
	return input.Wrong(fmt.Sprintf("%sspec.containers[%d].image", templatePath, i), s.image(), why)
}
