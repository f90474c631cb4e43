package monspec

import _ "embed" // for makeStore

// makeStore is what the init container of a mon runs, with `sh -c`.
//
//go:embed make-store.sh
var makeStore string
