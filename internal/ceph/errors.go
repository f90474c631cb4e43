package ceph

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// CommandError is a command that Ceph refused, or that nobody answered in time.
type CommandError struct {
	Command string // its prefix: "osd dump"
	Code    int    // Ceph's return code, a negative errno; 0 when the failure had none, a cancelled context say
	Text    string // Ceph's own words, if it had any
	Err     error  // what the Commander returned
}

func newCommandError(command, status string, err error) *CommandError {
	e := &CommandError{Command: command, Text: strings.TrimSpace(status), Err: err}
	var coded interface{ ErrorCode() int }
	if errors.As(err, &coded) {
		e.Code = coded.ErrorCode()
	}
	return e
}

func (e *CommandError) Error() string {
	text := e.Text
	if text == "" {
		text = e.Err.Error()
	}
	if e.Code == 0 {
		return fmt.Sprintf("ceph %s: %s", e.Command, text)
	}
	return fmt.Sprintf("ceph %s: %s (%s)", e.Command, text, syscall.Errno(-e.Code))
}

func (e *CommandError) Unwrap() error { return e.Err }

// IsTimeout tells whether nobody answered: no quorum, no manager behind a relayed command, or a context that ended.
func IsTimeout(err error) bool {
	return hasCode(err, syscall.ETIMEDOUT) || errors.Is(err, context.DeadlineExceeded)
}

// IsBusy tells whether Ceph said EBUSY: what was asked for would be unsafe now.
func IsBusy(err error) bool { return hasCode(err, syscall.EBUSY) }

// IsInvalid tells whether Ceph said EINVAL: it does not know what the command speaks of.
func IsInvalid(err error) bool { return hasCode(err, syscall.EINVAL) }

// IsAgain tells whether Ceph said EAGAIN: it does not know enough yet to answer.
func IsAgain(err error) bool { return hasCode(err, syscall.EAGAIN) }

// IsUnknown tells whether Ceph said ENOENT: when connecting, that it has no such user.
func IsUnknown(err error) bool { return hasCode(err, syscall.ENOENT) }

// IsDenied tells whether the Ceph user lacks the right to send the command; when connecting, that its key is wrong.
func IsDenied(err error) bool { return hasCode(err, syscall.EACCES) || hasCode(err, syscall.EPERM) }

// Lacks says which right the Ceph user lacks, by an error; "": it is about something else.
func Lacks(err error) string {
	if !IsDenied(err) {
		return ""
	}
	return fmt.Sprintf("the Ceph user lacks a right, and deploy/ceph-caps.txt has all of them: %v", err)
}

func hasCode(err error, code syscall.Errno) bool {
	var failed *CommandError
	return errors.As(err, &failed) && failed.Code == -int(code)
}
