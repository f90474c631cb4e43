package cephmon

import (
	"cmp"
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// This file is about the volumes of mons' claims: a local one binds its mon to a node as a path does, and is lost with
// that node.

// readVolumes reads the volumes if a mon is out of quorum whose claim may be bound to a node: while it is in quorum, or
// its pod is on a node that there is, nothing depends on them.
func (m *Mons) readVolumes(ctx context.Context, w *world, q ceph.QuorumStatus) error {
	asked := slices.ContainsFunc(q.MonMap.Mons, func(mon ceph.Mon) bool {
		d := w.deployment(w.isMon(mon.Name))
		return d != nil && !slices.Contains(q.QuorumNames, mon.Name) && claimOf(d) != "" && w.node(w.nodeOf(mon.Name)) == nil
	})
	if !asked {
		return nil
	}
	list, err := m.typed.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	w.volumes = list.Items
	return nil
}

// claimOf is the claim of a mon's Deployment; "": its store is a path.
func claimOf(d *appsv1.Deployment) string {
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// storeNode is the node to which a mon is bound, by its Deployment or by the volume of its claim, as far as the volumes
// were read; "": to none. A volume that is bound to a zone is bound to no node, also where a zone has only one.
func (w *world) storeNode(d *appsv1.Deployment) string {
	return cmp.Or(w.boundTo(d.Spec.Template.Spec), w.volumeNode(d))
}

func (w *world) volumeNode(d *appsv1.Deployment) string {
	c := w.claim(claimOf(d))
	if c == nil || c.Spec.VolumeName == "" {
		return ""
	}
	i := slices.IndexFunc(w.volumes, func(v corev1.PersistentVolume) bool { return v.Name == c.Spec.VolumeName })
	if i < 0 || w.volumes[i].Spec.NodeAffinity == nil {
		return ""
	}
	return w.boundTo(corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: w.volumes[i].Spec.NodeAffinity.Required,
	}}})
}
