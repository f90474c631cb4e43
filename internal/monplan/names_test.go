package monplan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

func TestNames(t *testing.T) {
	for name, number := range map[string]int{"a": 0, "d": 3, "z": 25, "aa": 26, "ab": 27, "ba": 52, "zz": 701} {
		assert.Equal(t, name, monplan.NameOf(number))
	}
	for _, other := range []string{"", "node-a", "A", "a1", "abcde"} {
		_, ok := monplan.NumberOf(other)
		assert.False(t, ok, other)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.IntRange(0, 10000).Draw(t, "number")
		if got, ok := monplan.NumberOf(monplan.NameOf(want)); !ok || got != want {
			t.Fatalf("%d became %s became %d", want, monplan.NameOf(want), got)
		}
	})
}
