// Package ceph speaks to the monitors of a Ceph cluster: one strict Go type for each command that lockkeeper sends, and
// small types with the few fields that it reads of the answers. It is pure Go; package rados below it has the
// connection.
//
// It sends only monitor commands. What a manager answers (ok-to-stop) goes through the monitors too, which relay it: a
// manager command of librados that timed out crashes the process once the manager is back.
//
// The field names are those of Ceph 16 (Pacific) and newer.
package ceph
