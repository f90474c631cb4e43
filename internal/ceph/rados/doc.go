// Package rados connects to a Ceph cluster with librados. It is the only package of lockkeeper that needs cgo.
//
// It sends commands to monitors, and to OSDs where a person granted that. librados cannot cancel a command, and after a
// manager command that timed out it crashes the process once the manager is back; so there is no MgrCommand here.
package rados
