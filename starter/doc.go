// Package starter is lockkeeper's watcher: it turns events of Kubernetes into signals to keepers and starts of jobs.
//
// It decides in one step and without I/O. Whenever something about a storage cluster may have changed, it takes a
// Snapshot of the little that matters from its caches, compares it with the last one, and Decide answers whom to tell.
// The watcher never acts on the storage cluster itself: a lost or superfluous signal costs time, never safety, because
// the keeper looks for itself before it decides anything.
//
// For a CephOSD it does the same with an OSDSetSnapshot and DecideOSDSet: what its rollout would not see by itself,
// since it is not at work, or looks elsewhere, starts it or makes it look again.
//
// At rest it makes no request: not to Temporal but the look once a minute whether every keeper runs, and not to the API
// server but the renewal of its Lease.
package starter
