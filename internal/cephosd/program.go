package cephosd

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

	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file learns which version of Ceph an image has: its program says it, in a pod that does nothing but ask it.

// programs remembers what programs said.
type programs struct {
	mu    sync.Mutex
	known map[string]upgrade.Version // by namespace, and the hash of what they are started with
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

// question is put to the program of an image.
type question struct {
	pod   *corev1.Pod // that asks
	image string
	orSay string // how a person says the answer instead
	said  string // what counts where such a pod is rejected; "": nothing does
}

// askFor is how long the program may take; an image that has to be fetched takes minutes.
const askFor = 20 * time.Second

// ask asks an OSD's program itself, in a pod that has nothing of the OSD's: no volume, no device, no label of its
// budget. While its image is being fetched the answer is why it waits; the next call finds the pod. That a person can
// say the answer is told only where the image may well be good: with one that never comes an OSD would stop for
// nothing.
func (f *OSDSets) ask(ctx context.Context, q question) (v upgrade.Version, waits string, err error) {
	pods, pod := f.typed.CoreV1().Pods(q.pod.Namespace), q.pod
	program := pod.Spec.Containers[0].Name
	asks := fmt.Sprintf("pod %s, which asks %s for its version: ", pod.Name, q.image)
	if rejected, err := judgement(f.make(ctx, pod)); err != nil {
		return v, "", fmt.Errorf("make pod %s, to learn which version of Ceph the image has: %w", pod.Name, err)
	} else if rejected != nil {
		if v, err := upgrade.ParseVersion(q.said); err == nil {
			return v, "", nil
		}
		return v, asks + clipTo(rejected.Allowed, 150) + q.orSay, nil
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
		waits = asks + cmp.Or(podspec.Trouble(is), "it has not ended yet")
		if is.Spec.NodeName == "" { // the next batch may be on a node that takes it
			return v, waits + q.orSay, f.delete(context.WithoutCancel(ctx), is)
		}
		return v, waits, nil
	}
	said := ""
	if last := lastWords(is, program); last != nil {
		said = last.Message
	}
	// It is asked anew the next time, since what it says may have been mended: an entrypoint, a node.
	if err := f.delete(context.WithoutCancel(ctx), is); err != nil {
		return v, "", err
	}
	if v, err = upgrade.ParseVersion(said); err != nil {
		waits = fmt.Sprintf("%s to say which version it is: `ceph-osd --version` says %q", q.image, clipTo(said, 120))
		return v, waits + q.orSay, nil
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

// askingPod ends with the version of the OSD's program as its last word. It runs where the OSD is to run: it may have
// to be allowed there, and the image may be there already. It goes with its owner at the latest.
func askingPod(namespace, hash string, osd *corev1.PodSpec, owner metav1.OwnerReference) *corev1.Pod {
	program := kube.DaemonContainer(osd).DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "version-of-" + hash, Namespace: namespace,
			Labels:          map[string]string{podspec.VersionLabel: hash, kube.LabelManagedBy: kube.FieldOwner},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: program.Name, Image: program.Image, ImagePullPolicy: program.ImagePullPolicy,
				SecurityContext: program.SecurityContext,
				Command:         []string{"sh", "-c", "ceph-osd --version >/dev/termination-log 2>&1"}, Resources: askingTakes(),
			}},
			RestartPolicy: corev1.RestartPolicyNever, Affinity: osd.Affinity, NodeSelector: osd.NodeSelector,
			Tolerations: osd.Tolerations, ImagePullSecrets: osd.ImagePullSecrets, ServiceAccountName: osd.ServiceAccountName,
			AutomountServiceAccountToken: new(bool), SecurityContext: osd.SecurityContext,
			RuntimeClassName: osd.RuntimeClassName, PriorityClassName: osd.PriorityClassName, EnableServiceLinks: new(bool),
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

// about is what upgrade.Judge has to know of the storage cluster for some OSDs.
func about(seen cephcluster.Versions, up func(osd int) bool, osds []int) upgrade.Cluster {
	out := upgrade.Cluster{
		Mons: seen.Mons, RequiredOfOSDs: seen.Required, Elsewhere: seen.Elsewhere,
		OSDs: map[string]upgrade.Version{},
	}
	for id, v := range seen.OSDs {
		if !up(id) {
			continue // it may have died long ago
		}
		if out.Oldest == (upgrade.Version{}) || v.Compare(out.Oldest) < 0 {
			out.Oldest = v
		}
	}
	for _, id := range osds {
		if v, said := seen.OSDs[id]; said {
			out.OSDs[osdName(id)] = v
		}
	}
	return out
}

// hasAgainst is what Ceph has against an OSD that went first: slow operations, or another version than its image has.
// A version of zero is not known.
func (f *OSDSets) hasAgainst(
	ctx context.Context, cluster storage.ClusterKey, o cephcluster.OSD, image string, has upgrade.Version,
) (string, error) {
	switch {
	case o.Slow:
		return osdName(o.ID) + " has slow operations", nil
	case has == upgrade.Version{}:
		return "", nil
	}
	seen, err := f.ceph.Versions(ctx, cluster)
	if err != nil {
		return "", err
	}
	if runs, said := seen.OSDs[o.ID]; said && runs != has {
		return fmt.Sprintf("%s runs Ceph %s, and %s has %s", osdName(o.ID), runs, image, has), nil
	}
	return "", nil
}
