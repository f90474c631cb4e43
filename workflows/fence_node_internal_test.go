package workflows

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// TestFewerHold: a keeper that let go and died has told nobody, whoever else holds the Machine.
func TestFewerHold(t *testing.T) {
	seen := func(uid string, held bool, holders int) fencing.Patient {
		return fencing.Patient{Machine: fencing.Machine{UID: uid, Held: held}, Holders: holders}
	}
	for _, test := range []struct {
		what        string
		before, now fencing.Patient
		want        bool
	}{
		{"nothing changed", seen("u", true, 2), seen("u", true, 2), false},
		{"one of two let go", seen("u", true, 2), seen("u", true, 1), true},
		{"the last one let go", seen("u", true, 1), seen("u", false, 0), true},
		{"one more holds it", seen("u", true, 1), seen("u", true, 2), false},
		{"it is another Machine", seen("u", true, 2), seen("v", false, 0), false},
		{"a look of an older version, then one of this", seen("u", true, 0), seen("u", true, 1), false},
		{"looks of older versions", seen("u", true, 0), seen("u", false, 0), true},
	} {
		assert.Equal(t, test.want, fewerHold(test.before, test.now), test.what)
	}
}
