package rookceph

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// This file is what the first monitors have that other daemons do not: a Service, and a volume claim or a folder of
// their node. All of it is made once, and then belongs to whoever looks after the monitors.

// Where a monitor's volume comes from.
const (
	monVolumeSize  = "10Gi"
	monVolumeClass = "zone-disk"
	// provisioner is that of the lab's own volumes, which removes them when they are released.
	annProvisioned, provisioner = "pv.kubernetes.io/provisioned-by", "lab.lockkeeper.io/folder"
)

// monDir is where a monitor's store is, as the machine sees it: in Rook's place on its node, in the folder of its
// volume, or in the lab's folder alone.
func (c cluster) monDir(m mon) string {
	switch c.topo.MonStorage {
	case instance.MonStorageHostPath:
		return filepath.Join(c.inst.NodeDisk(m.node), monHostPath(m))
	case instance.MonStoragePVC:
		return filepath.Join(c.monVolume(m), "data")
	default:
		return c.path("mon-" + m.id)
	}
}

func monHostPath(m mon) string { return "/var/lib/rook/mon-" + m.id + "/data" }

func (c cluster) monVolume(m mon) string { return c.inst.Path("volumes", monResource(m)) }

func monResource(m mon) string { return "rook-ceph-mon-" + m.id }

// makeMonDir makes the folder of a store, which the machine finds among the rest of the cluster, too.
func (c cluster) makeMonDir(m mon) error {
	dir, link := c.monDir(m), c.path("mon-"+m.id)
	if err := os.RemoveAll(dir); err != nil { // of a Prepare that was interrupted
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil || dir == link {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(link), dir)
	if err != nil {
		return err
	}
	return os.Symlink(target, link)
}

// deployMons makes those of the first monitors that are still in use. What is there is left as it is.
func (c cluster) deployMons(ctx context.Context, client kubernetes.Interface, known map[string]bool) error {
	for _, m := range c.mons() {
		if !known[m.id] {
			continue
		}
		if err := c.deployMon(ctx, client, m); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("mon.%s: %w", m.id, err)
		}
	}
	return nil
}

// deployMon makes a monitor. The Deployment comes last: where it is, all is.
func (c cluster) deployMon(ctx context.Context, client kubernetes.Interface, m mon) error {
	core, create := client.CoreV1(), metav1.CreateOptions{}
	unlessThere := func(err error) error {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	if m.service != "" {
		if _, err := core.Services(Namespace).Create(ctx, c.monService(m), create); unlessThere(err) != nil {
			return err
		}
	}
	if c.topo.MonStorage == instance.MonStoragePVC {
		claim, volume := c.monClaim(m)
		if _, err := core.PersistentVolumes().Create(ctx, volume, create); unlessThere(err) != nil {
			return err
		}
		if _, err := core.PersistentVolumeClaims(Namespace).Create(ctx, claim, create); unlessThere(err) != nil {
			return err
		}
	}
	_, err := client.AppsV1().Deployments(Namespace).Create(ctx, c.deployment(c.monDaemon(m)), create)
	return err
}

// monService is as Rook makes it: monitors look for each other before any of them is ready.
func (c cluster) monService(m mon) *corev1.Service {
	labels := c.labels(c.monDaemon(m))
	return &corev1.Service{
		ObjectMeta: meta(monResource(m), labels),
		Spec: corev1.ServiceSpec{
			ClusterIP: m.service, PublishNotReadyAddresses: true,
			Selector: map[string]string{"app": labels["app"], "mon": m.id, "rook_cluster": Namespace},
			Ports: []corev1.ServicePort{
				{Name: "tcp-msgr1", Port: portV1, TargetPort: intstr.FromInt32(portV1), Protocol: corev1.ProtocolTCP},
				{Name: "tcp-msgr2", Port: portV2, TargetPort: intstr.FromInt32(portV2), Protocol: corev1.ProtocolTCP},
			},
		},
	}
}

// monClaim is a claim and the volume that it is bound to, in which the store has been made already.
func (c cluster) monClaim(m mon) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	class, modes := monVolumeClass, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(monVolumeSize)}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: monResource(m), Annotations: map[string]string{annProvisioned: provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: Namespace, Name: monResource(m)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: c.monVolume(m)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{m.zone}},
				}}},
			}},
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(monResource(m), c.labels(c.monDaemon(m))),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &class, VolumeName: volume.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	return claim, volume
}
