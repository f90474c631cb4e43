package sim

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is the API server for the one CephOSD.

func (c policyClient) getCephOSD(ctx context.Context, key client.ObjectKey, into client.Object) error {
	return c.ask(ctx, "read CephOSD", func() error {
		if c.cr == nil || key.Name != CephOSDName || key.Namespace != c.key.Namespace {
			return kubeapi.NotFound("cephosds", key.Name)
		}
		switch into := into.(type) {
		case *unstructured.Unstructured:
			into.Object = c.cr.DeepCopy().Object
			return nil
		case *v1alpha1.CephOSD:
			text, err := c.cr.MarshalJSON()
			if err != nil {
				return err
			}
			return json.Unmarshal(text, into)
		default:
			return fmt.Errorf("the simulated API server does not read %T", into)
		}
	})
}

func (c policyClient) reportCephOSD(ctx context.Context, from *v1alpha1.CephOSD) error {
	text, err := json.Marshal(from.Status)
	if err != nil {
		return err
	}
	var status map[string]any
	if err := json.Unmarshal(text, &status); err != nil {
		return err
	}
	return c.ask(ctx, "report rollout", func() error {
		switch {
		case c.cr == nil:
			return kubeapi.NotFound("cephosds", from.Name)
		case from.ResourceVersion != c.cr.GetResourceVersion():
			return kubeapi.Conflict("cephosds", from.Name)
		}
		c.judgeProgress(&from.Status)
		next := c.cr.DeepCopy()
		next.Object["status"] = status
		c.putCephOSD(next)
		return nil
	})
}
