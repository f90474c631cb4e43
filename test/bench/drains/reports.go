package main

import (
	"time"

	"github.com/lockkeeper/lockkeeper/test/bench/keeperlog"
	"github.com/lockkeeper/lockkeeper/test/bench/spans"
)

// reportWaits is when the keeper waited for the storage's own reports: while it asked who lives, and after the manager
// had said that all data is clean until there was a proof of it, which takes a report of every OSD.
func reportWaits(log keeperlog.Log, whole time.Time) (out []spans.Span) {
	for _, q := range log.Questions {
		out = append(out, spans.Span{From: q.Asked, To: q.Ended})
	}
	var proved time.Time
	for _, at := range log.Proved {
		if at.After(whole) && (proved.IsZero() || at.Before(proved)) {
			proved = at
		}
	}
	if !proved.IsZero() {
		out = append(out, spans.Span{From: whole, To: proved})
	}
	return out
}
