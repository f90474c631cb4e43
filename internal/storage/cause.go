package storage

import "errors"

// Cause is what a person can mend so that a storage cluster answers; "" where its own governors have to be helped.
type Cause string

// The causes. Each is found where the failure is: nobody reads it out of the words in which people are told.
const (
	CauseLibrary     Cause = "Library"     // lockkeeper's library of the storage cannot read its key
	CauseAccess      Cause = "Access"      // Kubernetes does not let the worker read what the policy names
	CauseAddress     Cause = "Address"     // the object that has the governors' addresses
	CauseCredentials Cause = "Credentials" // the object that has the user and the key
	CauseRights      Cause = "Rights"      // the storage cluster refuses the user
)

// UnreachableError is a failure to reach a storage cluster of which the cause is known.
type UnreachableError struct {
	Cause Cause
	Err   error
}

func (e *UnreachableError) Error() string { return e.Err.Error() }

func (e *UnreachableError) Unwrap() error { return e.Err }

// CauseOf returns the cause of a failure; "" for one of which it is not known.
func CauseOf(err error) Cause {
	var e *UnreachableError
	if errors.As(err, &e) {
		return e.Cause
	}
	return ""
}
