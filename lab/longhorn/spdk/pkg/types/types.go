// Package types has the words of data engine v2.
package types

// Mode is how a replica takes part in a volume.
type Mode string

const (
	ModeWO  Mode = "WO"
	ModeRW  Mode = "RW"
	ModeERR Mode = "ERR"
)

// ProgressStateInProgress is the state of a rebuilding that goes on.
const ProgressStateInProgress = "in_progress"
