package starter

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// OSDSetSnapshot is what matters to the rollout of a CephOSD of everything that Kubernetes knows. How its pods are is
// not in it: the rollout watches them itself, for as long as it waits for them.
type OSDSetSnapshot struct {
	UID        types.UID
	Generation int64
	Deleting   bool
	// Looked: the last rollout has seen this generation. Settled: and it left nothing to do.
	Looked, Settled bool

	Pods     map[string]OSDSetPod // by name, but for those that have ended: nobody's OSD runs in them
	Away     map[string]Node      // the hosts that are not simply in service, by hostname
	Policies string               // the names of those of its namespace: a CephOSD needs one
	// Lost are the OSDs whose pod is gone, by key.
	Lost map[string]Loss
}

// OSDSetPod is one of a CephOSD's pods.
type OSDSetPod struct {
	Key    string // of its OSD; the pod's name if it does not say
	UID    types.UID
	Ours   bool   // lockkeeper made it
	State  Note   // an administrator overrides a halt with it
	Number Note   // of the OSD
	Made   Note   // the hash of the template that it was made from
	Remove string // a person's word that the OSD may go
}

// Note is what is written on a pod, and whether lockkeeper wrote it. To remove a note is to write "", and lockkeeper
// never removes one.
type Note struct {
	Value string
	Ours  bool
}

// Loss is an OSD whose pod is gone.
type Loss struct {
	Since time.Time
	// Due: the rollout has to hear of it. It deletes pods itself and makes their successors a moment later, so that while
	// it is at work only a pod that stays away is news.
	Due bool
}

// lossGrace is how long a rollout at work may need to make a pod's successor.
const lossGrace = 3 * time.Second

// OSDSetObjects are the cached objects that a snapshot is taken of. They are shared with the cache and only read.
type OSDSetObjects struct {
	CephOSD  *cephv1alpha1.CephOSD
	Pods     []corev1.Pod // those with its owner label
	Nodes    []corev1.Node
	Policies []v1alpha1.MaintenancePolicy // of its namespace
}

// TakeOSDSet makes a snapshot at a time. before, if any, remembers which OSDs had a pod.
func TakeOSDSet(o OSDSetObjects, before *OSDSetSnapshot, at time.Time) OSDSetSnapshot {
	cr := o.CephOSD
	s := OSDSetSnapshot{
		UID: cr.UID, Generation: cr.Generation, Deleting: !cr.DeletionTimestamp.IsZero(),
		Looked: cr.Status.ObservedGeneration == cr.Generation, Pods: make(map[string]OSDSetPod, len(o.Pods)),
	}
	s.Settled = s.Looked && meta.IsStatusConditionTrue(cr.Status.Conditions, cephv1alpha1.ConditionUpToDate)
	for i := range o.Pods {
		if p := &o.Pods[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			s.Pods[p.Name] = osdSetPod(p)
		}
	}
	var policies []string
	for i := range o.Policies {
		policies = append(policies, o.Policies[i].Name)
	}
	slices.Sort(policies)
	s.Policies = strings.Join(policies, ", ")
	s.Away = awayHosts(cr, o.Nodes, at)
	s.Lost = losses(cr, s, before, at)
	return s
}

func osdSetPod(p *corev1.Pod) OSDSetPod {
	wrote := ours(p)
	_, state := wrote.Metadata.Annotations["f:"+podspec.StateAnnotation]
	_, number := wrote.Metadata.Labels["f:"+podspec.IDLabel]
	_, made := wrote.Metadata.Annotations["f:"+podspec.HashAnnotation]
	out := OSDSetPod{
		Key: p.Name, UID: p.UID, Ours: len(wrote.Spec) > 0,
		State:  Note{Value: p.Annotations[podspec.StateAnnotation], Ours: state},
		Number: Note{Value: p.Labels[podspec.IDLabel], Ours: number},
		Made:   Note{Value: p.Annotations[podspec.HashAnnotation], Ours: made},
		Remove: p.Annotations[podspec.RemoveAnnotation],
	}
	if osd := (podspec.OSD{
		Host: p.Annotations[podspec.HostAnnotation],
		Data: p.Annotations[podspec.DataAnnotation],
	}); osd.Host != "" && osd.Data != "" {
		out.Key = osd.Key()
	}
	return out
}

// awayHosts takes those of the spec's hosts that are not simply in service.
func awayHosts(cr *cephv1alpha1.CephOSD, nodes []corev1.Node, at time.Time) map[string]Node {
	byHostname := make(map[string]*corev1.Node, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		host := n.Labels[corev1.LabelHostname]
		if host == "" {
			host = n.Name
		}
		byHostname[host] = n
	}
	out := map[string]Node{}
	for _, storage := range cr.Spec.Storage {
		for _, host := range storage.Hosts {
			if n := nodeOf(byHostname[host], at, 0); n != (Node{}) {
				out[host] = n
			}
		}
	}
	return out
}

// losses are the OSDs that have no pod and had one. Who begins to watch knows only which ought to have one.
func losses(cr *cephv1alpha1.CephOSD, now OSDSetSnapshot, before *OSDSetSnapshot, at time.Time) map[string]Loss {
	desired, has := map[string]bool{}, map[string]bool{}
	for _, storage := range cr.Spec.Storage {
		for _, host := range storage.Hosts {
			for _, devices := range storage.OSDs {
				desired[podspec.OSD{Host: host, Data: devices.Data}.Key()] = true
			}
		}
	}
	for _, p := range now.Pods {
		has[p.Key] = true
	}
	out := map[string]Loss{}
	if before == nil {
		for key := range desired {
			if !has[key] {
				out[key] = Loss{Since: at, Due: true}
			}
		}
		return out
	}
	for key, loss := range before.Lost {
		if !has[key] && (desired[key] || !loss.Due) { // what nobody wants back need not be remembered once it was told
			loss.Due = loss.Due || now.Settled || at.Sub(loss.Since) >= lossGrace
			out[key] = loss
		}
	}
	for _, p := range before.Pods {
		if _, known := out[p.Key]; !known && !has[p.Key] {
			out[p.Key] = Loss{Since: at, Due: now.Settled}
		}
	}
	return out
}
