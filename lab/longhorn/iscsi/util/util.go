// Package util names the daemon whose namespaces Longhorn's manager enters.
package util

const ISCSIdProcess = "iscsid"
