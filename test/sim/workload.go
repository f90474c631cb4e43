package sim

import (
	"cmp"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// This file is a Deployment of one daemon, as the API server shows it.

// workload is a Deployment of one daemon.
type workload struct {
	namespace string            // "": that of Key
	kind, id  string            // "osd" "3", "mon" "a", "mgr" "a"
	pinned    string            // to this node; "": may run anywhere
	selector  map[string]string // what its pods say of that
	zone      string            // of an OSD
	replicas  int
	labels    map[string]string
	bare      bool // an OSD without a Deployment: its pods are a CephOSD's, and nobody but lockkeeper makes them

	// Of a Deployment: its annotations, those of its pods and their image, and how often those changed.
	annotations, template map[string]string
	image                 string
	generation, observed  int64
}

func (d *workload) name() string   { return "rook-ceph-" + d.kind + "-" + d.id }
func (d *workload) daemon() string { return d.kind + "." + d.id }

// label gives a workload and its pods Rook's labels.
func (d *workload) label() {
	d.labels = map[string]string{
		"app": "rook-ceph-" + d.kind, "ceph_daemon_id": d.id, "ceph_daemon_type": d.kind,
		d.kind: d.id,
	}
	if d.kind == "osd" {
		d.labels["ceph-osd-id"], d.labels["topology-location-zone"], d.labels["topology-location-host"] = d.id, d.zone,
			d.pinned
	}
}

func (d *workload) nodeSelector() map[string]string {
	if d.pinned != "" && d.selector == nil {
		d.selector = map[string]string{corev1.LabelHostname: d.pinned}
	}
	return d.selector
}

func (d *workload) object() appsv1.Deployment {
	replicas := int32(d.replicas) //nolint:gosec // 0 or 1
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(d.namespace, Key.Namespace), Name: d.name(), UID: types.UID(d.name()), Labels: d.labels,
			Annotations: maps.Clone(d.annotations), Generation: d.generation,
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: d.labels, Annotations: maps.Clone(d.template)},
				Spec: corev1.PodSpec{
					NodeSelector: d.nodeSelector(),
					Containers:   []corev1.Container{{Name: d.kind, Image: d.image}},
				},
			},
		},
	}
}
