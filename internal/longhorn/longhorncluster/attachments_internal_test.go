package longhorncluster

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// attachments are one of a volume that somebody attached by hand to node a, one that a pod uses there, one that both
// do, and one that is attached by hand elsewhere.
const attachments = `
- {name: by-hand, tickets: {longhorn-ui: {type: longhorn-api, nodeID: a}}}
- {name: by-pod, tickets: {csi-1: {type: csi-attacher, nodeID: a}}}
- {name: by-both, tickets: {csi-2: {type: csi-attacher, nodeID: a}, "a/b~c": {type: longhorn-api, nodeID: a}}}
- {name: elsewhere, tickets: {longhorn-ui: {type: longhorn-api, nodeID: b}}}
`

func attached(t *testing.T) (all []client.Object) {
	t.Helper()
	var list []struct {
		Name    string
		Tickets map[string]any
	}
	require.NoError(t, yaml.Unmarshal([]byte(attachments), &list))
	for _, a := range list {
		o := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"volume": a.Name, "attachmentTickets": a.Tickets},
		}}
		o.SetGroupVersionKind(group.WithKind("VolumeAttachment"))
		o.SetNamespace("longhorn-system")
		o.SetName(a.Name)
		all = append(all, o)
	}
	return all
}

// forbidding refuses every change.
type forbidding struct{ client.Client }

func (forbidding) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	resource := schema.GroupResource{Group: "longhorn.io", Resource: "volumeattachments"}
	return apierrors.NewForbidden(resource, o.GetName(), nil)
}

// TestDetachByHand: only tickets that were written by hand, and for this node, are taken away.
func TestDetachByHand(t *testing.T) {
	api := fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(attached(t)...).Build()
	c := &cluster{api: api, reader: New(api, "longhorn-system")}
	volumes, a, err := c.DetachByHand(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, a.OK, a.Reason)
	require.Equal(t, []string{"by-both", "by-hand"}, volumes)
	left := map[string][]string{}
	all, err := c.reader.list(t.Context(), "VolumeAttachment")
	require.NoError(t, err)
	for i := range all {
		tickets, _, _ := unstructured.NestedMap(all[i].Object, "spec", "attachmentTickets")
		for id := range tickets {
			left[all[i].GetName()] = append(left[all[i].GetName()], id)
		}
	}
	require.Equal(t, map[string][]string{"by-pod": {"csi-1"}, "by-both": {"csi-2"}, "elsewhere": {"longhorn-ui"}}, left)

	volumes, a, err = c.DetachByHand(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, a.OK, a.Reason)
	require.Empty(t, volumes, "it may be repeated")
}

// older is an API server with a Longhorn that has no attachments of its own.
type older struct{ client.Client }

func (older) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return &meta.NoKindMatchError{GroupKind: list.GetObjectKind().GroupVersionKind().GroupKind()}
}

// An older Longhorn, and who may not take a ticket away, keep no job waiting: it says why nothing is detached.
func TestDetachByHandRefused(t *testing.T) {
	api := fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(attached(t)...).Build()
	for want, refusing := range map[string]client.Client{
		"storage-namespace-longhorn-detach.yaml": forbidding{api}, "from 1.5 on": older{api},
	} {
		c := &cluster{api: refusing, reader: New(refusing, "longhorn-system")}
		volumes, a, err := c.DetachByHand(t.Context(), "a")
		require.NoError(t, err)
		require.Empty(t, volumes)
		require.False(t, a.OK)
		require.Contains(t, a.Reason, want)
	}
}

// belated is an API server that tells of tickets that are others by now: patch is what it says to a change of them.
type belated struct {
	client.Client
	patch error
}

func (b belated) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return b.patch
}

// What somebody else detached meanwhile, or attached anew for another node, was not detached by us.
func TestDetachByHandTooLate(t *testing.T) {
	api := fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(attached(t)...).Build()
	resource := schema.GroupResource{Group: "longhorn.io", Resource: "volumeattachments"}
	for _, said := range []error{
		apierrors.NewNotFound(resource, "by-hand"),
		apierrors.NewInvalid(group.WithKind("VolumeAttachment").GroupKind(), "by-hand", nil),
	} {
		late := belated{api, said}
		c := &cluster{api: late, reader: New(late, "longhorn-system")}
		volumes, a, err := c.DetachByHand(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, a.OK, a.Reason)
		require.Empty(t, volumes)
	}
}
