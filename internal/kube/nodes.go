package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// RemovalTaints are the taints by which an autoscaler announces that it is about to remove a node.
var RemovalTaints = []string{leaving.RemovalTaint, leaving.DisruptedTaint}

// StateOf is a node as far as jobs need it.
func StateOf(n *corev1.Node, now time.Time) activities.NodeState {
	var drivesOff []string
	for _, t := range leaving.DrivesOff(n) {
		drivesOff = append(drivesOff, t.Key)
	}
	return activities.NodeState{
		Found: true, UID: string(n.UID), BootID: n.Status.NodeInfo.BootID, Cordoned: n.Spec.Unschedulable,
		DrivesOff: drivesOff, Tainted: RemovalTaint(n, now), Ready: NodeReady(n), Leaving: leaving.Of(n),
	}
}

// RemovalTaint returns the key of the node's removal taint, or "". One that was forgotten does not count: for ever the
// node's failure domain would be opened in advance, and the node not be taken for one that is back.
func RemovalTaint(n *corev1.Node, now time.Time) string { return leaving.Of(n).Key(now, 0) }

// NodeReady tells whether the kubelet reports the node ready.
func NodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Node implements activities.Nodes.
func (c *Cluster) Node(ctx context.Context, name string) (activities.NodeState, error) {
	n, err := c.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return activities.NodeState{}, nil
	}
	if err != nil {
		return activities.NodeState{}, err
	}
	return c.stateOf(ctx, n)
}

// stateOf is StateOf, with the deadline that Karpenter has written on the node's NodeClaim. It is there before the node
// is deleted, so that each change of the node is a moment to look. Who may not read NodeClaims, because the rights are
// older than this program, is not told of deadlines: it is only a warning that is missing then.
func (c *Cluster) stateOf(ctx context.Context, n *corev1.Node) (activities.NodeState, error) {
	s := StateOf(n, time.Now())
	name := leaving.NodeClaim(n)
	if name == "" || !s.Leaving.Deleting && !s.Leaving.Disrupted {
		return s, nil
	}
	claim := &metav1.PartialObjectMetadata{}
	claim.SetGroupVersionKind(nodeClaims)
	err := c.api.Get(ctx, client.ObjectKey{Name: name}, claim)
	switch {
	case err == nil:
		s.Leaving.Until = claim.Annotations[leaving.DeadlineAnnotation]
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err):
		return activities.NodeState{}, fmt.Errorf("NodeClaim %s of node %s: %w", name, n.Name, err)
	}
	return s, nil
}

// nodeClaims is what Karpenter has for each of its nodes.
var nodeClaims = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"}

// awaitNodeFor bounds one watch. Another one follows.
const awaitNodeFor = 10 * time.Minute

// watchFor is how long to watch a node at most: when its removal taint stops to count, no event tells.
func watchFor(last activities.NodeState, now time.Time) time.Duration {
	at, ok := last.Leaving.Expires(0)
	if !ok || !at.After(now) {
		return awaitNodeFor
	}
	return min(max(at.Sub(now), time.Second), awaitNodeFor)
}

// AwaitNode implements activities.Nodes by watches on the one node.
func (c *Cluster) AwaitNode(
	ctx context.Context, name string, until func(activities.NodeState) bool,
) (activities.NodeState, error) {
	for {
		n, err := c.watchNode(ctx, name, until)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return activities.NodeState{}, err
		}
		if until(n) {
			return n, nil
		}
		select { // a watch that the API server ends at once must not become a list without end
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// watchNode returns the state that was waited for, or the last one when the watch has ended.
func (c *Cluster) watchNode(
	ctx context.Context, name string, until func(activities.NodeState) bool,
) (now activities.NodeState, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	// List before watch: the watch has to begin exactly where what was seen ends.
	list, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: one})
	if err != nil {
		return now, err
	}
	if len(list.Items) == 1 {
		if now, err = c.stateOf(ctx, &list.Items[0]); err != nil {
			return now, err
		}
	}
	if until(now) {
		return now, nil
	}
	w, err := c.typed.CoreV1().Nodes().Watch(ctx,
		metav1.ListOptions{FieldSelector: one, ResourceVersion: list.ResourceVersion})
	if err != nil {
		return now, err
	}
	defer w.Stop()
	end := time.NewTimer(watchFor(now, time.Now()))
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return now, nil
		case <-end.C:
			return now, nil
		case e, open := <-w.ResultChan():
			if !open {
				return now, nil
			}
			if now, err = c.told(ctx, e); err != nil || until(now) {
				return now, err
			}
			end.Reset(watchFor(now, time.Now()))
		}
	}
}

// told is what an event of a watch tells of its node.
func (c *Cluster) told(ctx context.Context, e watch.Event) (activities.NodeState, error) {
	switch n, ok := e.Object.(*corev1.Node); {
	case e.Type == watch.Error:
		return activities.NodeState{}, apierrors.FromObject(e.Object)
	case ok && e.Type != watch.Deleted:
		return c.stateOf(ctx, n)
	}
	return activities.NodeState{}, nil
}

// Cordon implements activities.Nodes with kubectl's own code, so that the result is what `kubectl cordon` leaves.
func (c *Cluster) Cordon(ctx context.Context, name, uid string, on bool) (same bool, err error) {
	n, err := c.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if uid != "" && string(n.UID) != uid {
		return false, nil
	}
	if !on && cordonedByAnother(n) {
		return true, nil // ours was lifted while nobody looked, and this one is not ours to lift
	}
	h := drain.NewCordonHelper(n)
	if !h.UpdateIfRequired(on) {
		return true, nil
	}
	if err, patchErr := h.PatchOrReplaceWithContext(ctx, c.typed, false); err != nil || patchErr != nil {
		return false, errors.Join(err, patchErr)
	}
	return true, nil
}

// cordonedByAnother tells whether somebody else wrote the cordon that a node has now, as far as the API server knows.
func cordonedByAnother(n *corev1.Node) bool {
	by := cordonedBy(n)
	return n.Spec.Unschedulable && by != "" && by != FieldOwner
}

// OwnCordon tells whether it was lockkeeper that cordoned a node, as far as the API server knows.
func OwnCordon(n *corev1.Node) bool { return n.Spec.Unschedulable && cordonedBy(n) == FieldOwner }

// CordonFields are what OwnCordon goes by.
var CordonFields = []metav1.ManagedFieldsEntry{{
	Manager: FieldOwner, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`),
}}

// cordonedBy is who wrote whether a node is schedulable: lockkeeper, if it is one of them; "" if nobody is known.
func cordonedBy(n *corev1.Node) (by string) {
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	for _, f := range n.ManagedFields {
		if f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, owns := fields.Spec["f:unschedulable"]; owns {
			if f.Manager == FieldOwner {
				return FieldOwner
			}
			by = f.Manager
		}
		fields.Spec = nil
	}
	return by
}

// PoliciesOf implements activities.Nodes.
func (c *Cluster) PoliciesOf(ctx context.Context, node string) ([]storage.ClusterKey, storage.Answer, error) {
	var list v1alpha1.MaintenancePolicyList
	if err := c.api.List(ctx, &list); err != nil {
		return nil, storage.Answer{}, err
	}
	var found []storage.ClusterKey
	for i := range list.Items {
		p := &list.Items[i]
		pods, err := c.StoragePods(ctx, p)
		if err != nil {
			return nil, storage.Answer{}, err
		}
		if !slices.ContainsFunc(pods, func(pod storageview.Pod) bool { return pod.Node == node }) {
			continue
		}
		charge, _, err := c.precedence(ctx, p, list.Items)
		if err != nil {
			return nil, storage.Answer{}, err
		}
		if charge.OK {
			found = append(found, storage.ClusterKey{Namespace: p.Namespace, Name: p.Name})
		}
	}
	if len(found) == 0 {
		return nil, storage.Answer{Reason: fmt.Sprintf(
			"hosts no storage of any of the %d MaintenancePolicies, so nothing has to be guarded; use `kubectl drain`",
			len(list.Items))}, nil
	}
	slices.SortFunc(found, func(a, b storage.ClusterKey) int { return strings.Compare(a.String(), b.String()) })
	return found, storage.Answer{OK: true}, nil
}

// FencingPolicies implements activities.Nodes.
func (c *Cluster) FencingPolicies(ctx context.Context) (found []storage.ClusterKey, err error) {
	var list v1alpha1.MaintenancePolicyList
	if err := c.api.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if api := p.Spec.Fencing.API; p.Status.Fencing != nil || api != "" && api != v1alpha1.FencingNone {
			found = append(found, storage.ClusterKey{Namespace: p.Namespace, Name: p.Name})
		}
	}
	return found, nil
}
