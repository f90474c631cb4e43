package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// TestJoin: two storage clusters have daemons on one node.
func TestJoin(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	machine := func(held bool) fencing.Patient {
		p := fencing.Patient{Machine: fencing.Machine{Name: "m", UID: "u", Held: held}}
		if held {
			p.Holders = 1
		}
		return p
	}
	for _, test := range []struct {
		what  string
		a, b  fencing.Patient
		check func(t *testing.T, p fencing.Patient)
	}{
		{"both hold it", machine(true), machine(true), func(t *testing.T, p fencing.Patient) {
			assert.True(t, p.Machine.Held)
			assert.Equal(t, 2, p.Holders)
		}},
		{"the second one alone holds it", machine(false), machine(true), func(t *testing.T, p fencing.Patient) {
			assert.True(t, p.Machine.Held, "nobody may take it for free")
			assert.Equal(t, 1, p.Holders)
		}},
		{"nobody holds it", machine(false), machine(false), func(t *testing.T, p fencing.Patient) {
			assert.False(t, p.Machine.Held)
			assert.Zero(t, p.Holders)
		}},
		{"the first one does not know its Machine", fencing.Patient{}, machine(true), func(t *testing.T, p fencing.Patient) {
			assert.Equal(t, "u", p.Machine.UID)
			assert.True(t, p.Machine.Held)
		}},
		{
			"the second one found it unhealthy earlier",
			fencing.Patient{Unhealthy: at, Condition: "Ready=Unknown"},
			fencing.Patient{Unhealthy: at.Add(-time.Second), Condition: "Ready=False"},
			func(t *testing.T, p fencing.Patient) {
				assert.Equal(t, at.Add(-time.Second), p.Unhealthy)
				assert.Equal(t, "Ready=False", p.Condition)
			},
		},
		{
			"the first one's condition is met sooner",
			fencing.Patient{Next: at},
			fencing.Patient{Next: at.Add(time.Second), DisksGo: true},
			func(t *testing.T, p fencing.Patient) {
				assert.Equal(t, at, p.Next)
				assert.True(t, p.DisksGo)
			},
		},
	} {
		t.Run(test.what, func(t *testing.T) { test.check(t, join(test.a, test.b)) })
	}
}
