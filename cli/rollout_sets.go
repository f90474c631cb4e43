package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// This file makes of pods and Deployments the OSDs that a plan decides about. What the rollout asks Ceph (the number of
// an OSD, where it is, whether it is up) the labels and the readiness of its pod have to tell.

// cephOSDSet are the OSDs of a CephOSD.
type cephOSDSet struct {
	plan       *RolloutPlan
	nodes      podspec.Nodes
	desired    []podspec.OSD
	classified podspec.Classified
}

func (f cephOSDSet) osds() (out []rollout.OSD) {
	for _, x := range f.classified.Standings(f.desired, f.nodes) {
		r := f.osd(x.OSD, x.Pod)
		r.State, r.Away = rollout.State(x.State), cmp.Or(r.Away, x.Away)
		out = append(out, r)
	}
	if waiting := slices.Sorted(maps.Keys(f.classified.Holders)); len(waiting) > 0 {
		first := f.classified.Holders[waiting[0]][0]
		f.plan.Unknown = append(f.plan.Unknown,
			fmt.Sprintf("when %s will go: %s. It goes after that one, or together with it", some(waiting, mostTroubles),
				first.Why))
	}
	for _, p := range f.classified.Superfluous {
		f.plan.Superfluous = append(f.plan.Superfluous, p.OSD.Key())
	}
	for i := range f.classified.Foreign {
		f.plan.Foreign = append(f.plan.Foreign, f.classified.Foreign[i].LeftAlone())
	}
	return out
}

func (f cephOSDSet) osd(o podspec.OSD, pod *podspec.Pod) rollout.OSD {
	r := rollout.OSD{Key: o.Key(), Host: o.Host}
	if pod == nil {
		return r
	}
	k := podspec.Known(pod.Pod)
	if k.ID != nil {
		r.Name = fmt.Sprintf("osd.%d", *k.ID)
	} else {
		f.plan.Unknown = appendOnce(f.plan.Unknown,
			fmt.Sprintf("the number of every OSD: pod %s has no label %s; Ceph tells it when the rollout begins",
				pod.Name, podspec.IDLabel))
	}
	r.Serves, r.Excused = pod.Ready, pod.Overridden
	f.plan.place(&r, k.FailureDomains)
	if !r.Serves {
		r.Away = f.nodes.Away(o.Host)
	}
	return r
}

// deploymentSet are OSDs that Deployments run.
type deploymentSet struct {
	plan   *RolloutPlan
	nodes  podspec.Nodes
	policy *v1alpha1.MaintenancePolicy
	list   []appsv1.Deployment
	image  string // that they are to have; "": the one that they have
}

func (f deploymentSet) osds() (out []rollout.OSD) {
	for i := range f.list {
		d := &f.list[i]
		id, wrong := kube.OSDOf(d, f.policy)
		switch {
		case wrong != "":
			f.plan.Refused = append(f.plan.Refused, "--selector: "+wrong)
			continue
		case d.Spec.Replicas != nil && *d.Spec.Replicas == 0:
			continue // it stays as it is
		}
		host := kube.PodNode(&corev1.Pod{Spec: d.Spec.Template.Spec})
		o := rollout.OSD{
			Key: d.Name, Name: fmt.Sprintf("osd.%d", id), Host: host, State: rollout.OutOfDate,
			Serves: kube.OSDAvailable(d),
		}
		if !o.Serves {
			o.Away = f.nodes[host]
		}
		f.judge(&o, kube.DaemonImage(&d.Spec.Template.Spec))
		f.plan.place(&o, locationOf(f.policy, d.Labels, d.Spec.Template.Labels))
		out = append(out, o)
	}
	return out
}

// judge leaves an OSD as it is that has the image already, and says of the others which one they have.
func (f deploymentSet) judge(o *rollout.OSD, has string) {
	switch {
	case f.image == "":
	case has != f.image:
		f.plan.outOfDate("image "+has, o.Name)
	case o.Serves:
		o.State = rollout.UpToDate
	default:
		o.State = rollout.Unready
	}
}

// locationOf is where an OSD is, by CRUSH type, as the policy's label has it.
func locationOf(policy *v1alpha1.MaintenancePolicy, all ...map[string]string) map[string]string {
	before, after, _ := strings.Cut(kube.FailureDomainLabel(policy), "{type}")
	out := map[string]string{}
	for _, labels := range all {
		for label, value := range labels {
			crushType, ok := strings.CutPrefix(label, before)
			if crushType, is := strings.CutSuffix(crushType, after); ok && is && crushType != "" {
				out[crushType] = value
			}
		}
	}
	return out
}
