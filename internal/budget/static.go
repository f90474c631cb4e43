package budget

// MonMinAvailable is how many mon pods must stay, as a PodDisruptionBudget counts them. A majority of the monmap has to
// be left after every eviction; a mon whose pod is ready but which is not in quorum serves nobody, so it is kept on top.
//
// mons is the size of the monmap, idle the number of ready mon pods that are not in quorum. Clusters of one or two mons
// cannot lose any without losing quorum: their mons stay unless the administrator allows it; ok is false when no budget
// is wanted then.
func MonMinAvailable(mons, idle int, allowQuorumLoss bool) (minAvailable int, ok bool) {
	if mons <= 2 && allowQuorumLoss {
		return 0, false
	}
	return min(mons/2+1+idle, mons), true
}

// GroupMinAvailable is how many of a group of interchangeable daemons (mgr, mds, rgw, rbd-mirror) must stay: all but one.
// A single one has no budget: it could never be drained, and it comes back elsewhere by itself.
func GroupMinAvailable(replicas int) (minAvailable int, ok bool) {
	if replicas < 2 {
		return 0, false
	}
	return replicas - 1, true
}
