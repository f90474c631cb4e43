package ceph

import (
	"regexp"
	"strings"
)

// likeKey is what a Ceph key looks like. One that was put where the name belongs must not end up in a message.
var likeKey = regexp.MustCompile(`[A-Za-z0-9+/]{32}`)

func printable(value string) string {
	if likeKey.MatchString(value) {
		return "(not shown: it looks like a key)"
	}
	return value
}

var userID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@:/-]*$`)

// ParseUser takes the name of a Ceph user, with its type or without it ("client.lockkeeper", "lockkeeper"), and returns
// its id ("lockkeeper"), which is what librados wants. Only clients are allowed: a daemon's name is no user. Errors are
// *InvalidError and name field.
func ParseUser(field, value string) (string, error) {
	name := strings.TrimSpace(value)
	id, isClient := strings.CutPrefix(name, "client.")
	for _, daemon := range []string{"mon.", "mgr.", "osd.", "mds.", "auth."} {
		if !isClient && strings.HasPrefix(id, daemon) {
			id = ""
		}
	}
	if !userID.MatchString(id) {
		return "", &InvalidError{
			Field: field, Value: printable(value),
			Allowed: `the name of a client, such as "client.lockkeeper" or "lockkeeper"`,
		}
	}
	return id, nil
}
