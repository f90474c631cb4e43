package pghealth

import "time"

// FlushTakes is how long a proof takes at most at Ceph's default periods when OSDs are told to report: a second until
// they have taken in the change, a tick of the manager, and half a second until the monitors agree.
const FlushTakes = 3 * time.Second

// Takes is how long a proof takes: a tick of the manager, a period of reports, and a tick. lasts is what Tracker.Lived
// says, from which the tick follows. 0: not known.
func Takes(period, lasts time.Duration) time.Duration {
	if period <= 0 || lasts <= 0 {
		return 0
	}
	tick := max(lasts-period/4-period, 0)
	return period + 2*tick
}
