package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file holds autoscalers back from nodes that must not go: a budget alone lets them begin, which disturbs the
// workloads of the node again and again. What is ours says so on the node itself, in the same write.

// Annotations of nodes by which autoscalers leave a node alone.
const (
	scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	doNotDisrupt      = "karpenter.sh/do-not-disrupt"
)

// holds are the annotations by which lockkeeper holds autoscalers back, one for each of them.
var holds = []string{scaleDownDisabled, doNotDisrupt}

// HeldBack is the annotation of a node from which lockkeeper holds autoscalers back: for which policy, and by which of
// the annotations for autoscalers if not by all of them, since the others are a person's: "NAMESPACE/NAME ANNOTATION".
const HeldBack = "lockkeeper.io/held-back"

// holdOn is the policy for which a node is held back, and which annotations are lockkeeper's own; "": it is not.
func holdOn(n *corev1.Node) (policy string, ours []string) {
	policy, by, some := strings.Cut(n.Annotations[HeldBack], " ")
	switch {
	case policy == "":
		return "", nil
	case some:
		return policy, strings.Fields(by)
	}
	return policy, holds
}

// PinnedByPerson tells whether somebody else holds the Cluster Autoscaler back from a node.
func PinnedByPerson(n *corev1.Node) bool {
	_, ours := holdOn(n)
	return n.Annotations[scaleDownDisabled] == "true" && !slices.Contains(ours, scaleDownDisabled)
}

// Unheld tells whether autoscalers are not held back from a node as they would be for the sake of a policy: somebody
// took away what held them.
func Unheld(n *corev1.Node, policy storage.ClusterKey) bool {
	return len(heldBack(n, policy.String(), true)) > 0
}

// SameHolds tells whether autoscalers are held back from two nodes by the same people.
func SameHolds(a, b *corev1.Node) bool {
	return !slices.ContainsFunc(append([]string{HeldBack}, holds...), func(key string) bool {
		return a.Annotations[key] != b.Annotations[key]
	})
}

// holdBack has autoscalers leave these nodes alone, and no others for the sake of this policy.
func (c *Cluster) holdBack(ctx context.Context, key storage.ClusterKey, from []string) (changed bool, err error) {
	nodes, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range nodes.Items {
		did, err := c.holdBackFrom(ctx, &nodes.Items[i], key.String(), slices.Contains(from, nodes.Items[i].Name))
		if changed = changed || did; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// holdBackFrom holds autoscalers back from a node, or does so no longer. A node that has changed since it was read is
// read again: nobody comes back to it before its turn changes.
func (c *Cluster) holdBackFrom(ctx context.Context, n *corev1.Node, policy string, wanted bool) (did bool, err error) {
	err = retry.OnError(retry.DefaultRetry, apierrors.IsInvalid, func() error {
		patch := heldBack(n, policy, wanted)
		if len(patch) == 0 {
			return nil
		}
		err := c.patchNode(ctx, n, patch)
		if did = err == nil; !apierrors.IsInvalid(err) {
			return err
		}
		now, notRead := c.typed.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if notRead != nil {
			return notRead
		}
		n = now
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return did, nil
	case err != nil:
		return did, fmt.Errorf("annotations of node %s: %w", n.Name, err)
	}
	return did, nil
}

// heldBack is what has to change on a node. What somebody else has set stays as it is, and what somebody took away is
// set again as long as it is wanted.
func heldBack(n *corev1.Node, policy string, wanted bool) (patch []operation) {
	of, ours := holdOn(n)
	switch {
	case of != "" && of != policy: // another policy's hold does for this one, too
		return nil
	case wanted:
		return hold(n, policy, ours)
	case of == "":
		return nil
	}
	for _, key := range ours {
		if n.Annotations[key] == "true" {
			patch = append(patch, operation{"test", annotationPath(key), "true"}, operation{"remove", annotationPath(key), nil})
		}
	}
	return append(patch, operation{"remove", annotationPath(HeldBack), nil})
}

// hold sets the annotations about which nobody has said anything: whoever holds one autoscaler back does not speak of
// the other.
func hold(n *corev1.Node, policy string, ours []string) (patch []operation) {
	mine := slices.Clone(ours)
	var missing []operation
	for _, key := range holds {
		if n.Annotations[key] != "" {
			continue
		}
		missing = append(missing, annotate(key, "true"))
		if !slices.Contains(mine, key) {
			mine = append(mine, key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	value := policy
	if len(mine) < len(holds) {
		value += " " + strings.Join(mine, " ")
	}
	if len(n.Annotations) == 0 {
		patch = append(patch, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	return append(append(patch, annotate(HeldBack, value)), missing...)
}

func annotationPath(key string) string { return "/metadata/annotations/" + escaped(key) }

func annotate(key, value string) operation { return operation{"add", annotationPath(key), value} }

// patchNode changes a node that is exactly the one that was seen: a change that arrives late, after it was taken back,
// must not come into force.
func (c *Cluster) patchNode(ctx context.Context, n *corev1.Node, change []operation) error {
	patch, err := json.Marshal(append([]operation{
		{"test", "/metadata/uid", n.UID}, {"test", "/metadata/resourceVersion", n.ResourceVersion},
	}, change...))
	if err != nil {
		return err
	}
	_, err = c.typed.CoreV1().Nodes().Patch(ctx, n.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: FieldOwner})
	return err
}
