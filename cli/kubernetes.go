package cli

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Kubernetes is what the command asks of the API server. *kube.Cluster satisfies it.
type Kubernetes interface {
	Node(ctx context.Context, name string) (activities.NodeState, error)
	// PoliciesOf finds the policies whose storage the node hosts, in the order of their keys. With none the answer says
	// so.
	PoliciesOf(ctx context.Context, node string) ([]storage.ClusterKey, storage.Answer, error)
	MaintenancePolicy(ctx context.Context, key storage.ClusterKey) (*v1alpha1.MaintenancePolicy, error)
	// MaintenancePolicies lists the policies of a namespace, or, with "", of all.
	MaintenancePolicies(ctx context.Context, namespace string) ([]v1alpha1.MaintenancePolicy, error)
	StoragePods(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]storageview.Pod, error)
	// Watcher reads the Lease of the watcher that runs in a namespace.
	Watcher(ctx context.Context, namespace string) (kube.Watcher, error)
	// DrainOutlook tells which pods a drain of the node would evict. What is in emptyDirs of pods in the storage
	// namespaces is no data.
	DrainOutlook(
		ctx context.Context, node string, opts activities.EvictionOptions, storageNamespaces []string,
	) (kube.Outlook, error)
	// CephOSD reads a CephOSD, or returns activities.ErrNotFound; CephOSDPods are those with its owner label.
	CephOSD(ctx context.Context, namespace, name string) (podspec.Set, error)
	CephOSDPods(ctx context.Context, namespace, name string) ([]*corev1.Pod, error)
	// CephMon reads a CephMon, or returns activities.ErrNotFound.
	CephMon(ctx context.Context, namespace, name string) (*v1alpha1.CephMon, error)
	// CephMons lists those of a namespace. Where there is no such kind there are none.
	CephMons(ctx context.Context, namespace string) ([]v1alpha1.CephMon, error)
	// DeleteMonClaim deletes the volume claim of a mon that has gone. One that is another mon's is an error.
	DeleteMonClaim(ctx context.Context, namespace, claim, mon string) error
	// ForgetMonStorage writes which storage of gone mons is left into the CephMon's status.
	ForgetMonStorage(ctx context.Context, m *v1alpha1.CephMon, left []v1alpha1.MonStorageLeft) error
	// Deployments are those of a namespace that a selector selects.
	Deployments(ctx context.Context, namespace, selector string) ([]appsv1.Deployment, error)
	// Hosts says of every node, by its hostname, why its OSDs may not serve; "" if it is in service.
	Hosts(ctx context.Context) (map[string]string, error)
	// TryDelete asks by a dry run whether whoever asks may delete a pod.
	TryDelete(ctx context.Context, namespace, pod string) (kube.Deletion, error)
	// StorageWishes are the OSDs and mons of a policy that a controller wants gone.
	StorageWishes(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]kube.StorageWish, error)
	// DrivenOff are the OSDs and mons of a policy that taints of their nodes are to drive off.
	DrivenOff(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]kube.DrivenDaemon, error)
	// May tells whether an account may do something.
	May(ctx context.Context, who kube.Account, r kube.Right) (bool, error)
}

var _ Kubernetes = (*kube.Cluster)(nil)
