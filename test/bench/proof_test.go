package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProof(t *testing.T) {
	var p proof
	for _, c := range []struct {
		why     string
		numbers map[int]uint64
		want    bool
	}{
		{"all are up", map[int]uint64{0: 10, 1: 20}, false},
		{"nothing new", map[int]uint64{0: 10, 1: 20}, false},
		{"the first digest, whose reports may be from before", map[int]uint64{0: 11, 1: 21}, false},
		{"a report of one of them after it", map[int]uint64{0: 12, 1: 21}, false},
		{"and of the other", map[int]uint64{0: 12, 1: 22}, true},
	} {
		require.Equal(t, c.want, p.made(c.numbers), c.why)
	}
}
