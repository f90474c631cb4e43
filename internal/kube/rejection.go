package kube

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Rejection tells whether the API server has answered that it does not take an object as it is: then why, and which
// field it means ("": none in particular).
func Rejection(err error) (field, why string, rejected bool) {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) ||
		!errors.As(err, &status) {
		return "", "", false
	}
	if d := status.Status().Details; d != nil && len(d.Causes) > 0 {
		return d.Causes[0].Field, d.Causes[0].Message, true
	}
	return "", status.Status().Message, true
}
