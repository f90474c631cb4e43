// Package cephimage learns which version of Ceph an image has: its program says it, in a pod that does nothing but ask
// it.
package cephimage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// Images asks images, and remembers what they said.
type Images struct {
	typed kubernetes.Interface

	mu    sync.Mutex
	known map[string]upgrade.Version // by whatever the caller tells images apart
}

// New makes Images, which make their pods by a client.
func New(typed kubernetes.Interface) *Images { return &Images{typed: typed} }

// Known is what was remembered.
func (i *Images) Known(key string) (upgrade.Version, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	version, known := i.known[key]
	return version, known
}

// Remember keeps a version for as long as the program runs.
func (i *Images) Remember(key string, version upgrade.Version) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil {
		i.known = map[string]upgrade.Version{}
	}
	i.known[key] = version
}

// Hash stands for an image in names and labels.
func Hash(image string) string {
	sum := sha256.Sum256([]byte(image))
	return "image-" + hex.EncodeToString(sum[:8])
}

// Question is put to the program of an image.
type Question struct {
	Pod   *corev1.Pod // that asks
	Image string
	OrSay string // how a person says the answer instead
	Said  string // what counts where such a pod is rejected; "": nothing does
}

// SaidOnOwner is the annotation of whatever a daemon's pods are made of (a Deployment, a StatefulSet, a DaemonSet, a
// CephMon) by which a person says which version of Ceph its image has.
const SaidOnOwner = "lockkeeper.io/version-of-image"

// AskedForAtMost is how long a pod that asks may wait for its image when its job has ended meanwhile, in seconds.
const AskedForAtMost = 60 * 60

// askFor is how long the program may take; an image that has to be fetched takes minutes.
const askFor = 20 * time.Second

// askAgain is how soon it is looked again whether the program has ended.
const askAgain = 100 * time.Millisecond

// Ask asks a daemon's program itself, in a pod that has nothing of the daemon's: no volume, no device, no label of its
// budget. While its image is being fetched the answer is why it waits; the next call finds the pod. That a person can
// say the answer is told only where the image may well be good: with one that never comes a daemon would stop for
// nothing.
func (i *Images) Ask(ctx context.Context, q Question) (v upgrade.Version, waits string, err error) {
	pods, pod := i.typed.CoreV1().Pods(q.Pod.Namespace), q.Pod
	program := pod.Spec.Containers[0].Name
	asks := fmt.Sprintf("pod %s, which asks %s for its version: ", pod.Name, q.Image)
	_, err = pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: kube.FieldOwner})
	if _, why, rejected := kube.Rejection(err); rejected {
		if v, err := upgrade.ParseVersion(q.Said); err == nil {
			return v, "", nil
		}
		return v, asks + input.Clip("the API server rejects the pod: "+why, 150) + q.OrSay, nil
	} else if err != nil && !apierrors.IsAlreadyExists(err) {
		return v, "", fmt.Errorf("make pod %s, to learn which version of Ceph the image has: %w", pod.Name, err)
	}
	var is *corev1.Pod
	patience, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	err = wait.PollUntilContextCancel(patience, askAgain, true, func(ctx context.Context) (bool, error) {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			is = now
		}
		return err == nil && (is.Status.Phase == corev1.PodFailed || lastWords(is, program) != nil), err
	})
	switch {
	case is == nil || err != nil && patience.Err() == nil:
		return v, "", err
	case err != nil:
		waits = asks + cmp.Or(podspec.Trouble(is), "it has not ended yet")
		if is.Spec.NodeName == "" { // the next batch may be on a node that takes it
			return v, waits + q.OrSay, i.delete(context.WithoutCancel(ctx), is)
		}
		return v, waits, nil
	}
	said := ""
	if last := lastWords(is, program); last != nil {
		said = last.Message
	}
	// It is asked anew the next time, since what it says may have been mended: an entrypoint, a node.
	if err := i.delete(context.WithoutCancel(ctx), is); err != nil {
		return v, "", err
	}
	if v, err = upgrade.ParseVersion(said); err != nil {
		waits = fmt.Sprintf("%s to say which version it is: `%s --version` says %q", q.Image, programOf(program),
			input.Clip(said, 120))
		return v, waits + q.OrSay, nil
	}
	return v, "", nil
}

// delete deletes this very pod, and not another one that has its name by now.
func (i *Images) delete(ctx context.Context, p *corev1.Pod) error {
	err := i.typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
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

// Pod ends with the version of a daemon's program as its last word. It runs where the daemon is to run: it may have to
// be allowed there, and the image may be there already. It keeps away from no pod, since the daemon itself still runs
// there. It goes with its owner at the latest.
func Pod(namespace, hash string, daemon *corev1.PodSpec, owner metav1.OwnerReference) *corev1.Pod {
	program := kube.DaemonContainer(daemon).DeepCopy()
	asks := programOf(program.Name) + " --version >/dev/termination-log 2>&1"
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
				Command:         []string{"sh", "-c", asks}, Resources: takes(),
			}},
			RestartPolicy: corev1.RestartPolicyNever, Affinity: onNodes(daemon.Affinity), NodeSelector: daemon.NodeSelector,
			Tolerations: daemon.Tolerations, ImagePullSecrets: daemon.ImagePullSecrets,
			ServiceAccountName:           daemon.ServiceAccountName,
			AutomountServiceAccountToken: new(bool), SecurityContext: daemon.SecurityContext,
			RuntimeClassName: daemon.RuntimeClassName, PriorityClassName: daemon.PriorityClassName,
			EnableServiceLinks: new(bool),
		},
	}
}

// onNodes is what an affinity says of nodes.
func onNodes(all *corev1.Affinity) *corev1.Affinity {
	if all == nil || all.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: all.NodeAffinity}
}

// takes is little, and said, since a namespace's quota may reject pods that say nothing.
func takes() corev1.ResourceRequirements {
	of := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	return corev1.ResourceRequirements{Requests: of("10m", "64Mi"), Limits: of("500m", "512Mi")}
}

// programOf is the program in a container of that name.
func programOf(container string) string {
	if container == "mon" {
		return "ceph-mon"
	}
	return "ceph-osd"
}
