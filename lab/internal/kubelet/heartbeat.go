package kubelet

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/version"
)

const (
	// leaseRenewal is shorter than the kubelet's 10 s, as the grace period of the controller manager is.
	leaseRenewal  = time.Second
	leaseDuration = 40 // seconds, as the kubelet's
	statusRefresh = 30 * time.Second
)

// heartbeat registers the node, renews its lease and refreshes its status until ctx ends, as long as it is running.
func (n *node) heartbeat(ctx context.Context) {
	var refreshed time.Time
	for ctx.Err() == nil {
		pause := leaseRenewal
		if !n.silent() {
			if err := n.beat(ctx, &refreshed); err != nil && ctx.Err() == nil {
				slog.Warn("heartbeat failed", "node", n.name, "error", err)
				pause = leaseRenewal / 4
			}
		}
		select {
		case <-ctx.Done():
		case <-n.wake:
			refreshed = time.Time{}
		case <-time.After(pause):
		}
	}
}

func (n *node) beat(ctx context.Context, refreshed *time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n.mu.Lock()
	registered, bootID, since := n.registered, n.bootID, n.since
	n.mu.Unlock()
	if !registered {
		if err := n.register(ctx); err != nil {
			return err
		}
		*refreshed = time.Time{}
	}
	if time.Since(*refreshed) > statusRefresh {
		// The conditions are merged by type, and controllers may have said Unknown in the meantime.
		patch, err := json.Marshal(map[string]any{"status": n.status(bootID, since)})
		if err != nil {
			return err
		}
		if _, err := n.kubelet.Client.CoreV1().Nodes().PatchStatus(ctx, n.name, patch); err != nil {
			return err
		}
		*refreshed = time.Now()
	}
	return n.renewLease(ctx)
}

// register creates the Node object, or takes over the one from before a restart.
func (n *node) register(ctx context.Context) error {
	nodes := n.kubelet.Client.CoreV1().Nodes()
	object, err := nodes.Create(ctx, n.object(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		object, err = nodes.Get(ctx, n.name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.uid, n.registered = object.UID, true
	n.mu.Unlock()
	return nil
}

func (n *node) renewLease(ctx context.Context) error {
	leases := n.kubelet.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	n.mu.Lock()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.uid}
	n.mu.Unlock()
	duration := int32(leaseDuration)
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &duration, RenewTime: &now},
	}, metav1.CreateOptions{})
	return err
}

func (n *node) object() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
			corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
			corev1.LabelTopologyZone: n.zone, corev1.LabelTopologyRegion: "lab",
		}},
		Spec: corev1.NodeSpec{ProviderID: ProviderID(n.zone, n.name)},
	}
}

// ProviderID is by what a Machine and its node know each other.
func ProviderID(zone, name string) string { return "lab:///" + zone + "/" + name }

func (n *node) status(bootID string, since metav1.Time) corev1.NodeStatus {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now,
			LastTransitionTime: since,
		}
	}
	// Made up: what pods ask for decides where they go, and nobody enforces it.
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(n.kubelet.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods:   resource.MustParse("250"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	if n.resources != nil {
		capacity = n.resources
	}
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: hostIP},
			{Type: corev1.NodeHostName, Address: n.name},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(n.kubelet.Port)}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: n.name, SystemUUID: n.name, BootID: bootID, KernelVersion: kernelVersion(), OSImage: "lab",
			OperatingSystem: "linux", Architecture: runtime.GOARCH, KubeletVersion: version.Get().GitVersion,
			ContainerRuntimeVersion: "process://1",
		},
		Conditions: []corev1.NodeCondition{
			condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
			condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
			condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
			condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		},
	}
}

func kernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
