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

// holdBack has autoscalers leave these nodes alone, and no others for the sake of this policy.
func (c *Cluster) holdBack(ctx context.Context, key storage.ClusterKey, from []string) (changed bool, err error) {
	nodes, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range nodes.Items {
		patch := heldBack(&nodes.Items[i], key.String(), slices.Contains(from, nodes.Items[i].Name))
		if len(patch) == 0 {
			continue
		}
		if err := c.patchNode(ctx, &nodes.Items[i], patch); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
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

// patchNode changes a node that is the one that was seen, with the annotations that were seen. One that has changed is
// for the next time.
func (c *Cluster) patchNode(ctx context.Context, n *corev1.Node, change []operation) error {
	patch, err := json.Marshal(append([]operation{{"test", "/metadata/uid", n.UID}}, change...))
	if err != nil {
		return err
	}
	_, err = c.typed.CoreV1().Nodes().Patch(ctx, n.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: FieldOwner})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("annotations of node %s: %w", n.Name, err)
	}
	return nil
}
