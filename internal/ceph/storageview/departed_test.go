package storageview

import (
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestDeparted: an OSD whose pod left is back when Ceph's map tells of a life that began later. While the mons elect,
// the map stands still: the pod may be ready again although the map still shows the OSD up in its former life.
func TestDeparted(t *testing.T) {
	for _, c := range []struct {
		what           string
		pod            storage.PodState
		upFrom, before int64
		departed       int64
		restarting     bool
	}{
		{what: "in service", pod: storage.PodReady, upFrom: 10},
		{what: "leaving", pod: storage.PodTerminating, upFrom: 10, departed: 40},
		{what: "still leaving", pod: storage.PodPending, upFrom: 10, before: 30, departed: 40},
		{
			what: "back, and the map stands still", pod: storage.PodReady, upFrom: 10, before: 40, departed: 40,
			restarting: true,
		},
		{what: "back, and the probe fails", pod: storage.PodNotReady, upFrom: 10, before: 40, departed: 40, restarting: true},
		{what: "back in a new life", pod: storage.PodReady, upFrom: 41, before: 40},
		{
			what: "a bare pod that was seen leaving leaves nothing behind", pod: storage.PodNone, upFrom: 10, before: 40,
			departed: 40, restarting: true,
		},
		{what: "without a pod Ceph alone is asked", pod: storage.PodNone, upFrom: 10},
	} {
		o := osd{OSD: &ceph.OSD{ID: 0, Up: true, UpFrom: c.upFrom}, pod: c.pod}
		o.depart(c.before, 40)
		if o.departed != c.departed || o.restarting() != c.restarting {
			t.Errorf("%s: departed %d, restarting %t; want %d, %t", c.what, o.departed, o.restarting(), c.departed, c.restarting)
		}
	}
}

// TestDepartedInSilence: while Ceph does not answer the pods alone tell who is leaving. One that ends, or has not
// begun, beside one that is ready takes nothing from that one: nobody would ever see its OSD come back in a later life.
func TestDepartedInSilence(t *testing.T) {
	for what, c := range map[string]struct {
		pods   []storage.PodState
		leaves bool
	}{
		"in service":               {pods: []storage.PodState{storage.PodReady}},
		"leaving":                  {pods: []storage.PodState{storage.PodTerminating}, leaves: true},
		"its successor waits":      {pods: []storage.PodState{storage.PodTerminating, storage.PodPending}, leaves: true},
		"its successor serves":     {pods: []storage.PodState{storage.PodTerminating, storage.PodReady}},
		"its successor hangs":      {pods: []storage.PodState{storage.PodTerminating, storage.PodNotReady}},
		"a copy that cannot begin": {pods: []storage.PodState{storage.PodReady, storage.PodPending}},
		"a copy that ends":         {pods: []storage.PodState{storage.PodReady, storage.PodTerminating}},
		"both end":                 {pods: []storage.PodState{storage.PodTerminating, storage.PodTerminating}, leaves: true},
	} {
		var pods []Pod
		for _, s := range c.pods {
			pods = append(pods, Pod{OSD: 3, State: s})
		}
		_, leaves := Departed(pods, nil, 40)["osd.3"]
		if leaves != c.leaves {
			t.Errorf("%s: leaves %t, want %t", what, leaves, c.leaves)
		}
	}
}
