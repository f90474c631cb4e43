package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/test/bench/keeperlog"
)

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func TestWithout(t *testing.T) {
	tests := map[string]struct {
		others []span
		left   []span
	}{
		"nothing":           {left: []span{{at(10), at(20)}}},
		"what is elsewhere": {others: []span{{at(1), at(10)}, {at(20), at(30)}}, left: []span{{at(10), at(20)}}},
		"the middle":        {others: []span{{at(12), at(15)}}, left: []span{{at(10), at(12)}, {at(15), at(20)}}},
		"the ends":          {others: []span{{at(1), at(12)}, {at(19), at(30)}}, left: []span{{at(12), at(19)}}},
		"twice the same": {
			others: []span{{at(12), at(15)}, {at(12), at(15)}},
			left:   []span{{at(10), at(12)}, {at(15), at(20)}},
		},
		"what overlaps itself": {
			others: []span{{at(12), at(15)}, {at(14), at(18)}},
			left:   []span{{at(10), at(12)}, {at(18), at(20)}},
		},
		"all": {others: []span{{at(1), at(30)}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.left, without([]span{{at(10), at(20)}}, tt.others)) })
	}
}

func TestReportWaits(t *testing.T) {
	log := keeperlog.Log{
		Questions: []keeperlog.Question{{Asked: at(1), Ended: at(3), Answered: true}, {Asked: at(4), Ended: at(5)}},
		Proved:    []time.Time{at(2), at(12), at(11)},
	}
	assert.Equal(t, []span{{at(1), at(3)}, {at(4), at(5)}, {at(10), at(11)}}, reportWaits(log, at(10)),
		"a proof from before the end of the recovery is none of it")
	assert.Equal(t, []span{{at(1), at(3)}, {at(4), at(5)}}, reportWaits(log, at(13)))
}
