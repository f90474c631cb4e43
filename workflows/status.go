package workflows

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
)

// QueryStatus is the query that every workflow of ours answers: the keeper with a KeeperStatus, a job with a JobStatus.
const QueryStatus = "status"

// JobStatus is where a job stands.
type JobStatus struct {
	Phase string `json:"phase"`
	Step  int    `json:"step"` // 1-based
	Steps int    `json:"steps"`
	// WaitsFor says what it waits for now, and since when; empty while it is working.
	WaitsFor string    `json:"waitsFor,omitempty"`
	Since    time.Time `json:"since"`
	Started  time.Time `json:"started"`
	Paused   bool      `json:"paused,omitempty"`
	Aborted  bool      `json:"aborted,omitempty"`
	// NextTimer is when something happens by itself, and what.
	NextTimer     time.Time `json:"nextTimer,omitzero"`
	NextTimerDoes string    `json:"nextTimerDoes,omitempty"`
}

// message is the innermost reason of an error, without the SDK's wrapping.
func message(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		if cause := errors.Unwrap(timeout); cause != nil {
			return message(cause)
		}
		return "no worker answered in time"
	}
	return err.Error()
}

// clip keeps a summary within what Temporal takes.
func clip(s string) string {
	const most = 180
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// sortedKeys ranges over a map in an order that replay repeats.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m)) //workflowcheck:ignore sorted before anybody sees the order
}
