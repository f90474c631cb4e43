package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/test/bench/keeperlog"
	"github.com/lockkeeper/lockkeeper/test/bench/spans"
)

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func TestReportWaits(t *testing.T) {
	log := keeperlog.Log{
		Questions: []keeperlog.Question{{Asked: at(1), Ended: at(3), Answered: true}, {Asked: at(4), Ended: at(5)}},
		Proved:    []time.Time{at(2), at(12), at(11)},
	}
	assert.Equal(t, []spans.Span{{From: at(1), To: at(3)}, {From: at(4), To: at(5)}, {From: at(10), To: at(11)}},
		reportWaits(log, at(10)),
		"a proof from before the end of the recovery is none of it")
	assert.Equal(t, []spans.Span{{From: at(1), To: at(3)}, {From: at(4), To: at(5)}}, reportWaits(log, at(13)))
}
