package cli

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/osdpod"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// This file makes of pods and Deployments the OSDs that a plan decides about. What the rollout asks Ceph (the number of an
// OSD, where it is, whether it is up) the labels and the readiness of its pod have to tell.

// cephOSDFleet are the OSDs of a CephOSD.
type cephOSDFleet struct {
	plan       *RolloutPlan
	hosts      map[string]string // nil: not known
	set        osdpod.Set
	desired    []osdpod.OSD
	classified osdpod.Classified
}

func (f cephOSDFleet) osds() (out []rollout.OSD) {
	seen := map[string]bool{}
	add := func(o osdpod.OSD, state rollout.State, pod *osdpod.Pod) {
		seen[o.Key()] = true
		out = append(out, f.osd(o, state, pod))
	}
	c := f.classified
	for _, group := range []struct {
		pods  []osdpod.Pod
		state rollout.State
	}{{c.UpToDate, rollout.UpToDate}, {c.OutOfDate, rollout.OutOfDate}, {c.Ready, rollout.Ready}, {c.Unready, rollout.Unready}} {
		for i := range group.pods {
			add(group.pods[i].OSD, group.state, &group.pods[i])
		}
	}
	for i := range c.Invalid { // to take it away takes down its OSD, so it goes like one that is out of date
		if p := &c.Invalid[i]; p.Serving && !seen[p.OSD.Key()] {
			add(p.OSD, rollout.OutOfDate, p)
		}
	}
	missing := map[string]bool{}
	for _, o := range c.Missing {
		missing[o.Key()] = true
	}
	for _, o := range f.desired {
		switch {
		case seen[o.Key()]:
		case missing[o.Key()] && f.away(o.Host) == "" && c.Busy[o.Key()] == "":
			add(o, rollout.Missing, nil)
		default:
			add(o, rollout.Unready, nil)
			out[len(out)-1].Away = join(c.Busy[o.Key()], f.away(o.Host))
		}
	}
	for _, p := range c.Superfluous {
		f.plan.Superfluous = append(f.plan.Superfluous, p.OSD.Key())
	}
	for _, p := range c.Foreign {
		f.plan.Foreign = append(f.plan.Foreign, p.Name+": "+p.Why)
	}
	return out
}

func (f cephOSDFleet) osd(o osdpod.OSD, state rollout.State, pod *osdpod.Pod) rollout.OSD {
	r := rollout.OSD{Key: o.Key(), Host: o.Host, State: state}
	if pod == nil {
		return r
	}
	k := osdpod.Known(pod.Pod)
	if k.ID != nil {
		r.Name = fmt.Sprintf("osd.%d", *k.ID)
	} else {
		f.plan.Unknown = appendOnce(f.plan.Unknown, fmt.Sprintf("the number of every OSD: pod %s has no label %s; Ceph tells it when the rollout begins", pod.Name, osdpod.IDLabel))
	}
	r.Serves, r.Excused = pod.Ready, pod.Overridden
	f.plan.place(&r, k.FailureDomains)
	if !r.Serves {
		r.Away = f.away(o.Host)
	}
	return r
}

func (f cephOSDFleet) away(host string) string {
	why, known := f.hosts[host]
	if !known && f.hosts != nil {
		return "its host " + host + " is no node"
	}
	return why
}

// deploymentFleet are OSDs that Deployments run.
type deploymentFleet struct {
	plan   *RolloutPlan
	hosts  map[string]string
	policy *v1alpha1.MaintenancePolicy
	list   []appsv1.Deployment
}

func (f deploymentFleet) osds() (out []rollout.OSD) {
	for i := range f.list {
		d := &f.list[i]
		id, err := strconv.Atoi(d.Spec.Template.Labels[kube.IDLabel(f.policy)])
		switch {
		case err != nil:
			f.plan.Refused = append(f.plan.Refused, fmt.Sprintf("--selector: must select OSDs only: Deployment %s has no pods with the label %s", d.Name, kube.IDLabel(f.policy)))
			continue
		case d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType:
			f.plan.Refused = append(f.plan.Refused, fmt.Sprintf("--selector: must select Deployments with the strategy Recreate: %s has %s, which would start a second daemon on its device", d.Name, d.Spec.Strategy.Type))
			continue
		case d.Spec.Replicas != nil && *d.Spec.Replicas == 0:
			continue // it stays as it is
		}
		host := kube.PodNode(&corev1.Pod{Spec: d.Spec.Template.Spec})
		s := d.Status
		o := rollout.OSD{
			Key: d.Name, Name: fmt.Sprintf("osd.%d", id), Host: host, State: rollout.OutOfDate,
			Serves: s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == 1 && s.AvailableReplicas == 1 && s.Replicas == 1,
		}
		if !o.Serves {
			o.Away = f.hosts[host]
		}
		f.plan.place(&o, f.location(d))
		out = append(out, o)
	}
	return out
}

// location is where an OSD is, by CRUSH type, as the policy's label has it.
func (f deploymentFleet) location(d *appsv1.Deployment) map[string]string {
	before, after, _ := strings.Cut(kube.FailureDomainLabel(f.policy), "{type}")
	out := map[string]string{}
	for _, labels := range []map[string]string{d.Labels, d.Spec.Template.Labels} {
		for label, value := range labels {
			crushType, ok := strings.CutPrefix(label, before)
			if crushType, is := strings.CutSuffix(crushType, after); ok && is && crushType != "" {
				out[crushType] = value
			}
		}
	}
	return out
}
