// Package input reads what people write: the JSON that starts a workflow, names, selectors, durations. It refuses at
// once what makes no sense, and says which field has which value and what is allowed. Everything here is a pure
// function, so that the command line, the workflows and the activities refuse the same things with the same words.
package input

import (
	"fmt"
	"strings"
)

// Error says which field has which value, and what is allowed.
type Error struct{ Field, Value, Allowed string }

func (e *Error) Error() string { return fmt.Sprintf("%s: %q: %s", e.Field, e.Value, e.Allowed) }

// Wrong makes an Error. A value that nobody could read at a glance is cut.
func Wrong(field, value, allowed string) *Error {
	const most = 100
	if r := []rune(value); len(r) > most {
		value = string(r[:most]) + "…"
	}
	return &Error{Field: field, Value: value, Allowed: allowed}
}

// Clip keeps a text for people short, at most that many characters.
func Clip(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return strings.TrimSpace(text)
}
