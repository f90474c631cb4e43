package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file is which version of Ceph runs where. An image "ceph:19.2.1" has that version, any other one FirstVersion.

// FirstVersion is what everything runs in the beginning.
var FirstVersion = upgrade.Version{Release: 18, Minor: 2, Patch: 0}

type versions struct {
	mons     int // the oldest release that a mon may have
	required int // the release that every OSD has at least
	asking   map[string]*asking
	withheld map[string]bool // images that no node gets
}

// asking is a pod that asks its program for its version.
type asking struct {
	made  *corev1.Pod
	since time.Time
}

// answersAfter is how long a pod takes to start, and to say its version.
const answersAfter = time.Second

func (w *World) initVersions() {
	w.versions = versions{
		mons: FirstVersion.Release, required: FirstVersion.Release, asking: map[string]*asking{},
		withheld: map[string]bool{},
	}
}

// VersionOf is the version of Ceph that an image has.
func VersionOf(image string) upgrade.Version {
	_, tag, _ := strings.Cut(image, ":")
	if v, err := upgrade.ParseVersion(tag); err == nil {
		return v
	}
	return FirstVersion
}

// UpgradeMons is a person, or an operator, who brings all mons to a release.
func (w *World) UpgradeMons(release int) {
	w.happens(func() {
		w.tell("all mons are of release %d", release)
		w.versions.mons = max(w.versions.mons, release)
	})
}

// RequireRelease is a person who raises require_osd_release as far as Ceph lets them.
func (w *World) RequireRelease() {
	w.happens(func() {
		least := w.versions.mons
		for _, o := range w.osds {
			least = min(least, o.version.Release)
		}
		if least > w.versions.required {
			w.tell("a person requires release %d of OSDs", least)
			w.versions.required, w.crashed = least, time.Now()
			w.epoch++
			w.broadcast()
		}
	})
}

// Withhold keeps an image from every node, or no longer: somebody misspelt it, or its registry is away.
func (w *World) Withhold(image string, withheld bool) {
	w.happens(func() {
		if w.versions.withheld[image] != withheld {
			w.tell("image %s is withheld: %t", image, withheld)
			w.versions.withheld[image] = withheld
		}
	})
}

// Asking are the names of the pods that ask for a version.
func (w *World) Asking() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.versions.asking))
}

// RequiredRelease is what every OSD has at least, as Ceph was told.
func (w *World) RequiredRelease() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.versions.required
}

// releaseName is how Ceph calls a release: its names follow the alphabet.
func releaseName(release int) string { return string(rune('a'+release-1)) + "ame" }

// makeAsking makes a pod that asks for a version, if it is one.
func (w *World) makeAsking(made *corev1.Pod) (*corev1.Pod, bool) {
	if made.Labels[podspec.VersionLabel] == "" {
		return nil, false
	}
	made = made.DeepCopy()
	w.made++
	made.UID = types.UID(fmt.Sprintf("%s-%d", made.Name, w.made))
	w.versions.asking[made.Name] = &asking{made: made, since: time.Now()}
	w.tell("pod %s asks %s for its version", made.Name, made.Spec.Containers[0].Image)
	w.later(answersAfter, func() {})
	return made, true
}

// asks is a pod that asks for a version, as the API server tells of it; nil: there is none of that name.
func (w *World) asks(name string) *corev1.Pod {
	a := w.versions.asking[name]
	if a == nil {
		return nil
	}
	out := a.made.DeepCopy()
	image, is := out.Spec.Containers[0].Image, corev1.ContainerState{}
	out.Status.Phase, out.Spec.NodeName = corev1.PodPending, w.osds[0].host // some node
	switch {
	case w.versions.withheld[image]:
		is.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	case time.Since(a.since) < answersAfter:
		return out
	default:
		out.Status.Phase = corev1.PodSucceeded
		is.Terminated = &corev1.ContainerStateTerminated{Message: fmt.Sprintf("ceph version %s (0123abcd) (stable)\n",
			VersionOf(image))}
	}
	out.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: out.Spec.Containers[0].Name, State: is}}
	return out
}

// judgeVersion holds lockkeeper to Ceph's rules when it makes an OSD's pod.
func (w *World) judgeVersion(o *osd, image string) {
	next := VersionOf(image)
	switch {
	case w.versions.withheld[image]:
		w.violate("%s gets image %s, which no node has", o.name(), image)
	case next.Compare(o.version) < 0:
		w.violate("versions: %s goes back from %s to %s", o.name(), o.version, next)
	case next.Release > w.versions.mons:
		w.violate("versions: %s gets %s while mons are of release %d", o.name(), next, w.versions.mons)
	case next.Release > w.versions.required+2:
		w.violate("versions: %s gets %s while %d is required of OSDs", o.name(), next, w.versions.required)
	}
}
