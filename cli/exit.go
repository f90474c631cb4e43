package cli

import "errors"

// Exit codes of the command.
const (
	ExitOK        = 0
	ExitFailed    = 1 // what was asked for was not done; the message says why
	ExitUsage     = 2 // wrong flags or arguments
	ExitNotDone   = 3 // --wait, --follow: the job ended otherwise than as it should
	ExitStillRuns = 4 // --wait, --follow: the job goes on without us
	ExitNo        = 5 // explain: the answer is no; doctor: something is broken
	ExitHalted    = 6 // --wait, --follow: the rollout goes no further before somebody mends something
)

// ExitError is an error with an exit code of its own.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// ErrNo is returned after an answer that was given in full, and is no.
var ErrNo = &ExitError{Code: ExitNo, Err: errors.New("")}

// ExitCode is the exit code for what a command returned.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code
	}
	return ExitFailed
}
