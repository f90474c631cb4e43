package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/osdpod"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file keeps an OSD from being started with a version of Ceph that its cluster cannot take. Which version an image has its program
// says: in an OSD that serves with it, or else in a pod that does nothing but ask it.

// programs remembers what the programs of a template said.
type programs struct {
	mu    sync.Mutex
	known map[string]upgrade.Version // by namespace and hash of the template
}

func (p *programs) of(template string) (upgrade.Version, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	version, known := p.known[template]
	return version, known
}

func (p *programs) remember(template string, version upgrade.Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[string]upgrade.Version{}
	}
	p.known[template] = version
}

// gate is what decides whether OSDs may be started as a template says; nil: it changes no image, and they may.
type gate struct {
	*state
	seen cephcluster.Versions
	next upgrade.Version
}

// gate learns what has to be known about these OSDs. What speaks against any of them, whichever it is, it says itself.
func (c cephOSD) gate(ctx context.Context, s *state, osds []osdpod.OSD) (g *gate, against activities.Rehearsal, err error) {
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
func (g *gate) mayReplace(osds []osdpod.OSD) (out activities.Rehearsal) {
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

// mayReturn says why an OSD that is down must not be started; "": it may. Its data is missed, so that it waits for nothing but what would
// harm it: another one's verdict and somebody else's upgrade keep it from nothing.
func (g *gate) mayReturn(o osdpod.OSD) string {
	if g == nil {
		return ""
	}
	about := g.versions(g.seen, []osdpod.OSD{o})
	about.Elsewhere = ""
	verdict := upgrade.Judge(about, g.next)
	return cmp.Or(verdict.Refused, verdict.Waits)
}

// image is that of the OSD's own container: the one that Rook calls "osd", or the first.
func (s *state) image() string { return imageOf(&s.Spec.PodTemplate.Spec) }

func imageOf(spec *corev1.PodSpec) string {
	if c := osdContainer(spec); c != nil {
		return c.Image
	}
	return ""
}

func osdContainer(spec *corev1.PodSpec) *corev1.Container {
	if len(spec.Containers) == 0 {
		return nil
	}
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == "osd" })
	return &spec.Containers[max(i, 0)]
}

// changesImage tells whether any of these OSDs was last started with another image. Of one without a pod nobody knows; when all others
// run with this image, and one of them serves, it is no other.
func (s *state) changesImage(osds []osdpod.OSD, image string) bool {
	others, serves := false, false
	last := map[string]string{}
	for _, p := range s.all() {
		is := imageOf(&p.Pod.Spec)
		last[p.OSD.Key()] = is
		others = others || is != image
		serves = serves || is == image && p.Ready
	}
	return slices.ContainsFunc(osds, func(o osdpod.OSD) bool {
		is, has := last[o.Key()]
		return has && is != image || !has && (others || !serves)
	})
}

// all are the pods that are OSDs of the fleet.
func (s *state) all() []osdpod.Pod {
	return slices.Concat(s.UpToDate, s.OutOfDate, s.Ready, s.Unready, s.Superfluous)
}

// versions are those of the cluster, for a batch.
func (s *state) versions(seen cephcluster.Versions, osds []osdpod.OSD) upgrade.Cluster {
	out := upgrade.Cluster{Mons: seen.Mons, RequiredOfOSDs: seen.Required, Elsewhere: seen.Elsewhere, OSDs: map[string]upgrade.Version{}}
	for id, v := range seen.OSDs {
		if !s.byID[id].Up {
			continue // it may have died long ago
		}
		if out.Oldest == (upgrade.Version{}) || v.Compare(out.Oldest) < 0 {
			out.Oldest = v
		}
	}
	for _, o := range osds {
		id, known := s.ids[o.Key()]
		if v, said := seen.OSDs[id]; known && said {
			out.OSDs[osdName(id)] = v
		}
	}
	return out
}

// version is that of the template's image, or what speaks against it that it is not known.
func (c cephOSD) version(
	ctx context.Context, s *state, seen cephcluster.Versions, o osdpod.OSD,
) (v upgrade.Version, against activities.Rehearsal, err error) {
	template := c.ref.Namespace + "/" + s.Hash
	if v, known := c.programs.of(template); known {
		return v, against, nil
	}
	if v, known := s.runs(seen); known {
		c.programs.remember(template, v)
		return v, against, nil
	}
	if s.said() != "" { // not remembered: who said it may take it back
		if v, err = upgrade.ParseVersion(s.said()); err != nil {
			allowed := "the version of Ceph that the template's image has, such as 18.2.7"
			against.Refused = input.Wrong("metadata.annotations["+s.saidIn()+"]", s.said(), allowed)
		}
		return v, against, nil
	}
	v, against.Waits, err = c.askProgram(ctx, s, o)
	if err == nil && against.Waits == "" {
		c.programs.remember(template, v)
	}
	return v, against, err
}

// said is what a person says of the template's image, and saidIn the annotation where they say it.
func (s *state) said() string { return s.Annotations[s.saidIn()] }

func (s *state) saidIn() string { return osdpod.VersionAnnotation + s.Hash }

// orSay tells a person what else they can do. Only where the image may well be good: one that never comes would take an OSD
// down.
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

// askFor is how long the program may take; an image that has to be fetched takes minutes.
const askFor = 20 * time.Second

// askProgram asks the OSD's program itself, in a pod that has nothing of the OSD's: no volume, no device, no label of its budget. While its
// image is being fetched the answer is why it waits; then the next one finds the pod.
func (c cephOSD) askProgram(ctx context.Context, s *state, o osdpod.OSD) (v upgrade.Version, waits string, err error) {
	pods, pod := c.typed.CoreV1().Pods(c.ref.Namespace), s.asking(o)
	program := pod.Spec.Containers[0].Name
	asks := fmt.Sprintf("pod %s, which asks %s for its version: ", pod.Name, s.image())
	if rejected, err := judgement(c.make(ctx, pod)); err != nil {
		return v, "", fmt.Errorf("make pod %s, to learn which version of Ceph the image has: %w", pod.Name, err)
	} else if rejected != nil {
		return v, asks + clipTo(rejected.Allowed, 150) + s.orSay(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var is *corev1.Pod
	err = poll(ctx, func() (bool, error) {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			is = now
		}
		return err == nil && (is.Status.Phase == corev1.PodFailed || lastWords(is, program) != nil), err
	})
	switch {
	case is == nil || err != nil && ctx.Err() == nil:
		return v, "", err
	case err != nil:
		waits = asks + cmp.Or(osdpod.Trouble(is), "it has not ended yet")
		if is.Spec.NodeName == "" { // the next batch may be on a node that takes it
			return v, waits + s.orSay(), c.delete(context.WithoutCancel(ctx), is)
		}
		return v, waits, nil
	}
	said := ""
	if last := lastWords(is, program); last != nil {
		said = last.Message
	}
	// It is asked anew the next time, since what it says may have been mended: an entrypoint, a node.
	if err := c.delete(context.WithoutCancel(ctx), is); err != nil {
		return v, "", err
	}
	if v, err = upgrade.ParseVersion(said); err != nil {
		waits = fmt.Sprintf("%s to say which version it is: `ceph-osd --version` says %q", s.image(), clipTo(said, 120))
		return v, waits + s.orSay(), nil
	}
	return v, "", nil
}

// lastWords are those of the program; nil: it has not ended. A container that somebody else put into the pod may never
// end.
func lastWords(asking *corev1.Pod, program string) *corev1.ContainerStateTerminated {
	statuses := asking.Status.ContainerStatuses
	if i := slices.IndexFunc(statuses, func(c corev1.ContainerStatus) bool { return c.Name == program }); i >= 0 {
		return statuses[i].State.Terminated
	}
	return nil
}

// asking is a pod that ends with the version of the OSD's program as its last word. It runs where the OSD is to run, as it may have to be
// allowed there, and the image may be there already.
func (s *state) asking(o osdpod.OSD) *corev1.Pod {
	spec := s.rendered(o).Spec
	program := osdContainer(&spec).DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "version-of-" + s.Hash, Namespace: s.Namespace, Labels: map[string]string{osdpod.VersionLabel: s.Hash, kube.LabelManagedBy: kube.FieldOwner},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.CephOSD, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: program.Name, Image: program.Image, ImagePullPolicy: program.ImagePullPolicy, SecurityContext: program.SecurityContext,
				Command:   []string{"sh", "-c", "ceph-osd --version >/dev/termination-log 2>&1"},
				Resources: askingTakes(),
			}},
			RestartPolicy: corev1.RestartPolicyNever, Affinity: spec.Affinity, NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations,
			ImagePullSecrets: spec.ImagePullSecrets, ServiceAccountName: spec.ServiceAccountName, AutomountServiceAccountToken: new(bool),
			SecurityContext: spec.SecurityContext, RuntimeClassName: spec.RuntimeClassName, PriorityClassName: spec.PriorityClassName, EnableServiceLinks: new(bool),
		},
	}
}

// askingTakes is little, and said, since a namespace's quota may reject pods that say nothing.
func askingTakes() corev1.ResourceRequirements {
	of := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	return corev1.ResourceRequirements{Requests: of("10m", "64Mi"), Limits: of("500m", "512Mi")}
}

// askedInVain are the pods that ask for a version which nobody has to know any more: the template is another one by now,
// or the version is known otherwise.
func (c cephOSD) askedInVain(ctx context.Context, s *state) (pods []*corev1.Pod, err error) {
	list, err := c.typed.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: osdpod.VersionLabel})
	if err != nil {
		return nil, err
	}
	_, known := c.programs.of(s.Namespace + "/" + s.Hash)
	for i := range list.Items {
		p := &list.Items[i]
		if metav1.IsControlledBy(p, s.CephOSD) && (known || s.said() != "" || p.Labels[osdpod.VersionLabel] != s.Hash) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// troubleOf is what Ceph has against an OSD that went first: slow operations, or a version that is not its image's.
func (c cephOSD) troubleOf(ctx context.Context, s *state, key string) (string, error) {
	id, known := s.ids[key]
	if key == "" || !known {
		return "", nil
	}
	if s.byID[id].Slow {
		return osdName(id) + " has slow operations", nil
	}
	image, known := c.programs.of(c.ref.Namespace + "/" + s.Hash)
	if !known {
		return "", nil
	}
	seen, err := c.ceph.Versions(ctx, s.cluster)
	if err != nil {
		return "", err
	}
	if runs, said := seen.OSDs[id]; said && runs != image {
		return fmt.Sprintf("%s runs Ceph %s, and %s has %s", osdName(id), runs, s.image(), image), nil
	}
	return "", nil
}

// wrongImage says why the template's image can never be these OSDs'.
func (s *state) wrongImage(why string) *input.Error {
	containers := s.Spec.PodTemplate.Spec.Containers
	i := max(slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "osd" }), 0)
	return input.Wrong(fmt.Sprintf("%sspec.containers[%d].image", templatePath, i), s.image(), why)
}
