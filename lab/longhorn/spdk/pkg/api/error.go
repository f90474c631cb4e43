package api

import "errors"

// ErrNotBuiltIn is the answer to everything.
var ErrNotBuiltIn = errors.New("SPDK is not built in")
