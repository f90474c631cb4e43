package main

import (
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/keeperlog"
)

// span is a time from one moment to another.
type span struct{ from, to time.Time }

// length of spans that do not overlap.
func length(spans []span) (d time.Duration) {
	for _, s := range spans {
		d += s.to.Sub(s.from)
	}
	return d
}

// without is what is left of spans when others are taken out.
func without(spans, others []span) []span {
	for _, o := range others {
		var left []span
		for _, s := range spans {
			if !o.to.After(s.from) || !o.from.Before(s.to) {
				left = append(left, s)
				continue
			}
			if s.from.Before(o.from) {
				left = append(left, span{s.from, o.from})
			}
			if o.to.Before(s.to) {
				left = append(left, span{o.to, s.to})
			}
		}
		spans = left
	}
	return spans
}

// reportWaits is when the keeper waited for the storage's own reports: while it asked who lives, and after the manager
// had said that all data is clean until there was a proof of it, which takes a report of every OSD.
func reportWaits(log keeperlog.Log, whole time.Time) (out []span) {
	for _, q := range log.Questions {
		out = append(out, span{q.Asked, q.Ended})
	}
	var proved time.Time
	for _, at := range log.Proved {
		if at.After(whole) && (proved.IsZero() || at.Before(proved)) {
			proved = at
		}
	}
	if !proved.IsZero() {
		out = append(out, span{whole, proved})
	}
	return out
}
