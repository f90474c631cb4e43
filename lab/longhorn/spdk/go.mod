// Stands for Longhorn's longhorn-spdk-engine, which serves data engine v2 and needs SPDK. All that the other modules
// name is here; all of it answers that it is not there.
module github.com/longhorn/longhorn-spdk-engine

go 1.26.0

require github.com/longhorn/types v0.0.0-20250915085125-0638a2eac534
