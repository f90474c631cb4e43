package activities

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
)

// Error types. An error means that we do not know, or that the request makes no sense; an answer is a result.
const (
	// ClusterUnavailable is retried: a timeout, a 5xx, a conflict, no mon quorum.
	ClusterUnavailable = "ClusterUnavailable"
	// InvalidInput is final: it says which field, what was found, what is allowed.
	InvalidInput = "InvalidInput"
	// TargetChanged is final: the node or pod is not the one that was decided on.
	TargetChanged = "TargetChanged"
	// LeaseLost is final: somebody else holds the storage cluster now.
	LeaseLost = "LeaseLost"
)

// Unavailable wraps the cause of a failed request. It is retried.
func Unavailable(what string, err error) error {
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("%s: %v", what, err), ClusterUnavailable,
		temporal.ApplicationErrorOptions{Cause: err, NextRetryDelay: 0 * time.Second})
}

// Invalid says which field has which value, and what is allowed. It is not retried.
func Invalid(field, value, allowed string) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s: %q: %s", field, value, allowed), InvalidInput, nil)
}

// Changed says that the world is no longer the one that was decided on. It is not retried.
func Changed(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), TargetChanged, nil)
}

// Lost says that the lease is gone. It is not retried.
func Lost(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), LeaseLost, nil)
}
