package pghealth

import (
	"slices"
	"time"
)

// cadence is how often OSDs report, learned from when the monitors told of it. They tell in ticks: with reports every 5
// s and ticks every 2 s, news of the same OSD are 4 s apart or 6 s, and no single interval is the period. The zero
// value knows nothing.
type cadence struct {
	intervals []time.Duration // the newest last
}

// remembered is how many intervals count.
const remembered = 64

func (c *cadence) learn(intervals []time.Duration) {
	c.intervals = append(c.intervals, intervals...)
	if n := len(c.intervals); n > remembered {
		c.intervals = slices.Clone(c.intervals[n-remembered:])
	}
}

// regular are the intervals in order of length without those in which an OSD was away, which took longer than half as
// long again as most did.
func (c *cadence) regular() []time.Duration {
	if len(c.intervals) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(c.intervals))
	usual := sorted[len(sorted)/2]
	return slices.DeleteFunc(sorted, func(d time.Duration) bool { return d > usual+usual/2+late })
}

// late is how much later than Ceph's own periods news may be seen: the monitors agree once a second, and looks take
// their turns.
const late = 500 * time.Millisecond

// period is the time between two reports; 0: not known.
func (c *cadence) period() time.Duration {
	regular := c.regular()
	if len(regular) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range regular {
		sum += d
	}
	return sum / time.Duration(len(regular))
}

// lasts is for how long a report counts as a sign of life after it was told of: as long as it takes at the most until
// the next one of the same OSD is told of, and a quarter of a period for those who act on it. In a proof each OSD
// counts with one report, so the first is that old when the last is told of. 0: not known.
func (c *cadence) lasts() time.Duration {
	regular := c.regular()
	if len(regular) == 0 {
		return 0
	}
	return regular[len(regular)-1] + c.period()/4
}
