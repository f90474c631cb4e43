package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// staticPerZone is how many volumes of class static-disk each zone has.
const staticPerZone = 3

// createStaticVolumes makes what a person would have made by hand. A volume that was released stays so, with the data
// of whoever had it, until a person has looked at it.
func (k *Kubelet) createStaticVolumes(ctx context.Context) error {
	for _, zone := range k.Zones {
		for i := range staticPerZone {
			v := k.staticVolume(zone, i)
			if err := os.MkdirAll(v.Spec.Local.Path, 0o777); err != nil {
				return err
			}
			_, err := k.Client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	}
	return nil
}

func (k *Kubelet) staticVolume(zone string, i int) *corev1.PersistentVolume {
	name := fmt.Sprintf("static-%s-%d", zone, i)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: staticClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: filepath.Join(k.Lab, "volumes", name)},
			},
			NodeAffinity: affinityTo(classTopology[staticClass], zone),
		},
	}
}
