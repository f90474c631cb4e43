// Package kubeapi is what the simulated API servers have in common.
package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
)

// Discovery knows the one thing that kubectl wants to know before it evicts.
type Discovery struct{ discovery.DiscoveryInterfaces }

// ServerResourcesForGroupVersion implements discovery.DiscoveryInterface.
func (Discovery) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{
		APIResources: []metav1.APIResource{{Name: "pods/eviction", Kind: "Eviction", Group: "policy", Version: "v1"}},
	}, nil
}

// Patched makes next what becomes of had by a patch.
func Patched(had, next any, kind types.PatchType, data []byte) error {
	text, err := json.Marshal(had)
	if err != nil {
		return err
	}
	if kind == types.JSONPatchType {
		p, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return err
		}
		if text, err = p.Apply(text); err != nil {
			return err
		}
	} else if text, err = jsonpatch.MergePatch(text, data); err != nil {
		return err
	}
	return json.Unmarshal(text, next)
}

// NotFound is the answer about an object that is not there.
func NotFound(resource, name string) *apierrors.StatusError {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

// Conflict is the answer to a change of an object that is another one by now.
func Conflict(resource, name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, name,
		errors.New("the object has been modified"))
}

// TooManyRequests is the answer to an eviction that a budget does not allow.
func TooManyRequests(b *policyv1.PodDisruptionBudget) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name,
			b.Status.DesiredHealthy, b.Status.CurrentHealthy),
	})
	return err
}

// TwoBudgets is the answer to the eviction of a pod that two budgets cover.
func TwoBudgets() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
}
