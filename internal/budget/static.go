package budget

// GroupMinAvailable is how many of a group of interchangeable daemons (mgr, mds, rgw, rbd-mirror) must stay: all but one.
// A single one has no budget: it could never be drained, and it comes back elsewhere by itself.
func GroupMinAvailable(replicas int) (minAvailable int, ok bool) {
	if replicas < 2 {
		return 0, false
	}
	return replicas - 1, true
}
