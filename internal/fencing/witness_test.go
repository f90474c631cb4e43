package fencing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestHear: two storage clusters have OSDs on one node.
func TestHear(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	machine := func(held bool) fencing.Patient {
		return fencing.Patient{Machine: fencing.Machine{Name: "m", UID: "u", Held: held}}
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
		t.Run(test.what, func(t *testing.T) {
			h := fencing.Hear([]fencing.Witness{
				{Cluster: storage.ClusterKey{Name: "b"}, Hosts: true, Fences: true, Patient: test.a},
				{Cluster: storage.ClusterKey{Name: "a"}, Hosts: true, Fences: true, Patient: test.b},
			}, false)
			test.check(t, h.Patient)
			assert.Equal(t, []storage.ClusterKey{{Name: "a"}, {Name: "b"}}, h.Clusters)
			assert.Empty(t, h.Passing)
		})
	}
}

// TestHearingsOfMany: whoever stays and holds a Machine is asked, whatever the others say and whoever is heard first.
func TestHearingsOfMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked := rapid.Bool().Draw(t, "asked")
		all := make([]fencing.Witness, rapid.IntRange(0, 5).Draw(t, "witnesses"))
		stay, held := 0, 0
		for i := range all {
			all[i] = fencing.Witness{
				Cluster: storage.ClusterKey{Name: fmt.Sprint(i)}, Hosts: rapid.Bool().Draw(t, "hosts"),
				Gone:   rapid.IntRange(0, 3).Draw(t, "gone") == 0,
				Leaves: rapid.SampledFrom([]string{"", "", "it is being deleted"}).Draw(t, "leaves"),
				Fences: rapid.Bool().Draw(t, "fences"),
			}
			w := &all[i]
			w.Patient.Machine.UID = "u"
			w.Patient.Machine.Held = w.Fences && rapid.Bool().Draw(t, "holds")
			counts := !w.Gone && w.Fences && (w.Leaves == "" || asked)
			if counts && w.Patient.Machine.Held {
				held++
			}
			if counts && (w.Patient.Machine.Held || w.Hosts && w.Leaves == "") {
				stay++
			}
		}
		h := fencing.Hear(all, asked)
		assert.Len(t, h.Clusters, stay)
		assert.Equal(t, held, h.Patient.Holders)
		assert.Equal(t, held > 0, h.Patient.Machine.Held)
		if h.Passing != "" {
			assert.Empty(t, h.Clusters, "somebody is in charge")
			assert.False(t, asked)
		}
		again := fencing.Hear(rapid.Permutation(all).Draw(t, "order"), asked)
		assert.Equal(t, h.Clusters, again.Clusters)
		assert.Equal(t, h.Patient, again.Patient)
	})
}
