// Stands for Longhorn's go-iscsi-helper: a volume is served at a socket and goes no further, since a lab has neither
// tgtd nor the kernel's iSCSI.
module github.com/longhorn/go-iscsi-helper

go 1.26.0

require github.com/longhorn/go-common-libs v0.0.0-20250921030719-16313e7f30b3
