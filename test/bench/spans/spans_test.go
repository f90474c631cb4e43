package spans_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/test/bench/spans"
)

// from is the time from one second to another.
func from(first, last int64) spans.Span {
	return spans.Span{From: time.Unix(first, 0), To: time.Unix(last, 0)}
}

func TestWithout(t *testing.T) {
	tests := map[string]struct {
		others []spans.Span
		left   []spans.Span
	}{
		"nothing":           {left: []spans.Span{from(10, 20)}},
		"what is elsewhere": {others: []spans.Span{from(1, 10), from(20, 30)}, left: []spans.Span{from(10, 20)}},
		"the middle":        {others: []spans.Span{from(12, 15)}, left: []spans.Span{from(10, 12), from(15, 20)}},
		"the ends":          {others: []spans.Span{from(1, 12), from(19, 30)}, left: []spans.Span{from(12, 19)}},
		"twice the same": {
			others: []spans.Span{from(12, 15), from(12, 15)},
			left:   []spans.Span{from(10, 12), from(15, 20)},
		},
		"what overlaps itself": {
			others: []spans.Span{from(12, 15), from(14, 18)},
			left:   []spans.Span{from(10, 12), from(18, 20)},
		},
		"all": {others: []spans.Span{from(1, 30)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.left, spans.Without([]spans.Span{from(10, 20)}, tt.others))
		})
	}
}

func TestLength(t *testing.T) {
	assert.Equal(t, 5*time.Second, spans.Length([]spans.Span{from(10, 12), from(17, 20)}))
}
