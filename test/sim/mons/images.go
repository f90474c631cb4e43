package mons

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephimage"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// This file is which release of Ceph a mon's image has, and the pods that ask an image. An image "ceph:20.2.4" has that
// version, any other one sim.FirstVersion.

type images struct {
	release  int                        // the oldest that a mon may have: it rises when all of them are newer
	said     map[string]upgrade.Version // by mons, when they last came into quorum
	asking   map[string]*corev1.Pod
	withheld map[string]bool // images that no node gets
}

func newImages() images {
	return images{
		release: sim.FirstVersion.Release, said: map[string]upgrade.Version{}, asking: map[string]*corev1.Pod{},
		withheld: map[string]bool{},
	}
}

// saysAfter is how long a pod that asks takes to start, and to say its version.
const saysAfter = time.Second

// Withhold has no node get an image any more, or again.
func (w *World) Withhold(image string, withheld bool) {
	w.luck(fmt.Sprintf("image %s is withheld: %t", image, withheld), nil, func() { w.withheld[image] = withheld })
}

// Say has a person say which version the spec's image has.
func (w *World) Say(version string) {
	w.luck("somebody says that the image is "+version, nil, func() {
		w.cephMon.Annotations = map[string]string{cephimage.SaidOnOwner: version}
		w.stamped(w.cephMon)
	})
}

// Asking are the names of the pods that ask for a version.
func (w *World) Asking() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sorted(w.asking)
}

// FitImage changes the spec's image if no mon may have it.
func (w *World) FitImage() {
	w.mu.Lock()
	image, newest, release := w.cephMon.Spec.PodTemplate.Image, w.release, w.release
	for _, name := range w.names() {
		newest = max(newest, w.said[name].Release)
	}
	w.mu.Unlock()
	if is := sim.VersionOf(image).Release; is < newest || is > release+2 {
		fit := fmt.Sprintf("ceph:%d.2.9", newest)
		w.Spec("image "+fit, func(s *v1alpha1.CephMonSpec) { s.PodTemplate.Image = fit })
	}
}

// raises has the mons be what all of them are.
func (w *World) raises() {
	least := 0
	for _, name := range w.names() {
		p := w.podOf(name)
		if p == nil || !w.alive(name) {
			least = -1
			continue
		}
		w.said[name] = sim.VersionOf(p.Spec.Containers[0].Image)
		w.stores[w.storeOf(p)].version = w.said[name]
		if r := w.said[name].Release; least == 0 || r < least {
			least = r // of −1 it stays
		}
	}
	w.release = max(w.release, least)
}

// mayStart holds lockkeeper to Ceph's rule: a mon never goes back a release, nor leaves one out.
func (w *World) mayStart(p *pod, disk *store) {
	v := sim.VersionOf(p.Spec.Containers[0].Image)
	if disk != nil && v.Release < disk.version.Release {
		w.violate("mon.%s is started with Ceph %s on a store of %s", p.mon(), v, disk.version)
	}
	if v.Release < w.release || v.Release > w.release+2 {
		w.violate("mon.%s is started with Ceph %s, while the others are of release %d at least", p.mon(), v, w.release)
	}
}

// versionOn is that of the last program that came into quorum with a store.
func (w *World) versionOn(place string) (v upgrade.Version) {
	if disk := w.stores[place]; disk != nil {
		v = disk.version
	}
	return v
}

// monMetadata is what the mons have said of themselves when they last came.
func (w *World) monMetadata() ([]byte, error) {
	out := []map[string]string{}
	for _, name := range w.names() {
		if v, known := w.said[name]; known {
			out = append(out, map[string]string{"name": name, "ceph_version_short": v.String()})
		}
	}
	return json.Marshal(out)
}

// osdDump is what Ceph says about OSDs, as far as it is about releases.
func osdDump() ([]byte, error) {
	return json.Marshal(map[string]string{"require_osd_release": "reef"})
}

func (a podsAPI) Create(ctx context.Context, p *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	return p, a.ask(ctx, "create pod "+p.Name, true, func() error {
		switch {
		case p.Labels[podspec.VersionLabel] == "":
			a.violate("pod %s is made, which asks no image", p.Name)
		case a.asking[p.Name] != nil:
			return alreadyThere("pods", p.Name)
		}
		p := p.DeepCopy()
		a.stamped(p)
		a.asking[p.Name] = p
		a.tell("pod %s asks %s for its version", p.Name, p.Spec.Containers[0].Image)
		return nil
	})
}

func (a podsAPI) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *corev1.Pod, err error) {
	return out, a.ask(ctx, "get pod "+name, false, func() error {
		p := a.asking[name]
		if p == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
		}
		out = p.DeepCopy()
		image, is := out.Spec.Containers[0].Image, corev1.ContainerState{}
		out.Status.Phase, out.Spec.NodeName = corev1.PodPending, sorted(a.nodes)[0] // some node
		switch {
		case a.withheld[image]:
			is.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
		case time.Since(p.CreationTimestamp.Time) < saysAfter:
			return nil
		default:
			out.Status.Phase = corev1.PodSucceeded
			is.Terminated = &corev1.ContainerStateTerminated{
				Message: fmt.Sprintf("ceph version %s (0123abcd) (stable)\n", sim.VersionOf(image)),
			}
		}
		out.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: out.Spec.Containers[0].Name, State: is}}
		return nil
	})
}

func (a podsAPI) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return a.ask(ctx, "delete pod "+name, true, func() error {
		p := a.asking[name]
		if p == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
		}
		if o.Preconditions == nil || *o.Preconditions.UID != p.UID {
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, fmt.Errorf("it is another one"))
		}
		delete(a.asking, name)
		return nil
	})
}
