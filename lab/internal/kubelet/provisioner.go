package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
)

// The classes differ in where a volume may be used: a node's own disk only there, a zone's anywhere in its zone, as the
// disks of clouds. Volumes of the static class are there from the beginning, some in each zone, and nobody makes any;
// those of the immediate class are made before anybody knows where they will be used, in whichever zone.
const (
	provisionerName = "lab.lockkeeper.io/folder"
	noProvisioner   = "kubernetes.io/no-provisioner"
	zoneClass       = "zone-disk"
	nodeClass       = "node-disk"
	staticClass     = "static-disk"
	immediateClass  = "immediate-disk"
)

var classTopology = map[string]string{
	zoneClass: corev1.LabelTopologyZone, nodeClass: corev1.LabelHostname, staticClass: corev1.LabelTopologyZone,
	immediateClass: corev1.LabelTopologyZone,
}

const (
	annSelectedNode = "volume.kubernetes.io/selected-node"
	annProvisioner  = "volume.kubernetes.io/storage-provisioner"
	annProvisioned  = "pv.kubernetes.io/provisioned-by"
)

// startProvisioner makes volumes for claims of our classes once the scheduler has chosen a node, and removes released
// ones.
func (k *Kubelet) startProvisioner(ctx context.Context) error {
	for name := range classTopology {
		if err := k.createClass(ctx, name); err != nil {
			return err
		}
	}
	if err := k.createStaticVolumes(ctx); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(k.Client, 0)
	claims, volumes := factory.Core().V1().PersistentVolumeClaims().Informer(),
		factory.Core().V1().PersistentVolumes().Informer()
	provision := func(c *corev1.PersistentVolumeClaim) { k.tryToProvision(ctx, c) }
	k.broken.mended = func(class string) {
		for _, o := range claims.GetStore().List() {
			if c := o.(*corev1.PersistentVolumeClaim); classOf(c) == class {
				k.tryToProvision(ctx, c)
			}
		}
	}
	reclaim := func(v *corev1.PersistentVolume) {
		if err := k.reclaim(ctx, v); err != nil {
			slog.Warn("volume not removed", "volume", v.Name, "error", err)
		}
	}
	if _, err := claims.AddEventHandler(handler(provision, func(*corev1.PersistentVolumeClaim) {})); err != nil {
		return err
	}
	if _, err := volumes.AddEventHandler(handler(reclaim, func(*corev1.PersistentVolume) {})); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

func (k *Kubelet) createClass(ctx context.Context, name string) error {
	binding, policy := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name},
		Provisioner: provisionerName, VolumeBindingMode: &binding, ReclaimPolicy: &policy,
	}
	switch name {
	case staticClass:
		class.Provisioner, policy = noProvisioner, corev1.PersistentVolumeReclaimRetain
	case immediateClass:
		binding = storagev1.VolumeBindingImmediate
	case zoneClass:
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	_, err := k.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (k *Kubelet) tryToProvision(ctx context.Context, c *corev1.PersistentVolumeClaim) {
	if err := k.provision(ctx, c); err != nil {
		slog.Warn("volume not made", "claim", c.Namespace+"/"+c.Name, "error", err)
		k.events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
	}
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

func (k *Kubelet) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Annotations[annProvisioner] != provisionerName || claim.Spec.VolumeName != "" ||
		claim.DeletionTimestamp != nil {
		return nil
	}
	class, err := k.Client.StorageV1().StorageClasses().Get(ctx, classOf(claim), metav1.GetOptions{})
	if err != nil {
		return err
	}
	node, err := k.nodeFor(ctx, claim, class)
	if err != nil || node == nil {
		return err
	}
	if err := k.broken.check(class.Name); err != nil {
		return err
	}
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(k.Lab, "volumes", name)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	label, ok := classTopology[class.Name]
	if !ok { // somebody's own class of our provisioner
		label = corev1.LabelTopologyZone
	}
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	_, err = k.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annProvisioned: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			StorageClassName: class.Name, PersistentVolumeReclaimPolicy: policy,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity:           affinityTo(label, node.Labels[label]),
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// nodeFor is the node near which a volume is to be made: the one that the scheduler has chosen, or with immediate
// binding any; nil: none is chosen yet.
func (k *Kubelet) nodeFor(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*corev1.Node, error) {
	if name := claim.Annotations[annSelectedNode]; name != "" {
		return k.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode != storagev1.VolumeBindingImmediate {
		return nil, nil
	}
	nodes, err := k.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(nodes.Items) == 0 {
		return nil, errors.New("there is no node")
	}
	return &nodes.Items[0], nil
}

func affinityTo(label, value string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
		},
	}}}}
}

func (k *Kubelet) reclaim(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.Status.Phase != corev1.VolumeReleased || volume.Annotations[annProvisioned] != provisionerName ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if local := volume.Spec.Local; local != nil && filepath.Dir(local.Path) == filepath.Join(k.Lab, "volumes") {
		if err := os.RemoveAll(local.Path); err != nil {
			return fmt.Errorf("remove its folder: %w", err)
		}
	}
	err := k.Client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

const pollPeriod = 20 * time.Millisecond

// poll asks until the answer is yes.
func poll(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-time.After(pollPeriod):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
