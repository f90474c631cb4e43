package longhorncluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file ends attachments that somebody made by hand. For each volume Longhorn keeps a VolumeAttachment with a
// ticket for everybody who wants it attached; the volume is detached when no ticket for its node is left.

// byHand is the type of a ticket that Longhorn's UI and API write. All others are written, and ended, by controllers.
const byHand = "longhorn-api"

var _ activities.Detacher = (*cluster)(nil)

// DetachByHand implements activities.Detacher.
func (c *cluster) DetachByHand(ctx context.Context, node string) (volumes []string, a storage.Answer, err error) {
	all, err := c.reader.list(ctx, "VolumeAttachment")
	for i := 0; err == nil && i < len(all); i++ {
		for _, ticket := range tickets(&all[i], node) {
			ended, failed := c.end(ctx, &all[i], ticket, node)
			if err = failed; err != nil {
				break
			}
			if ended {
				volumes = append(volumes, all[i].GetName())
			}
		}
	}
	volumes = slices.Compact(volumes)
	switch {
	case apierrors.IsForbidden(err):
		return volumes, storage.Answer{Reason: fmt.Sprintf("it takes the rights of "+
			"deploy/storage-namespace-longhorn-detach.yaml: %v", err)}, nil
	case errors.Is(err, ErrNotInstalled):
		return nil, storage.Answer{Reason: "this Longhorn has no volumeattachments.longhorn.io: " +
			"Longhorn has them from 1.5 on"}, nil
	}
	return volumes, storage.Answer{OK: err == nil}, err
}

// tickets are those of a VolumeAttachment that were written by hand for a node.
func tickets(attachment *unstructured.Unstructured, node string) (ids []string) {
	all, _, _ := unstructured.NestedMap(attachment.Object, "spec", "attachmentTickets")
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if t, is := all[id].(map[string]any); is && t["type"] == byHand && t["nodeID"] == node {
			ids = append(ids, id)
		}
	}
	return ids
}

// end takes a ticket away, unless it is another one by now, and tells whether it did.
func (c *cluster) end(
	ctx context.Context, attachment *unstructured.Unstructured, ticket, node string,
) (ended bool, err error) {
	path := "/spec/attachmentTickets/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(ticket)
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	patch, err := json.Marshal([]operation{
		{"test", path + "/type", byHand}, {"test", path + "/nodeID", node}, {"remove", path, ""},
	})
	if err != nil {
		return false, err
	}
	err = c.api.Patch(ctx, attachment, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(kube.FieldOwner))
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return false, nil
	}
	return err == nil, err
}
