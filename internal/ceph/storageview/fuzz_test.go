package storageview_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// FuzzBuild: whatever Ceph's maps and the pods' labels say, and however little they fit together, there is a View. No
// daemon is in it twice, and one whose pod contradicts the map is a problem, which keeps all closed, or in the domain
// of the map.
func FuzzBuild(f *testing.F) {
	read := func(name string) []byte {
		text, err := os.ReadFile("../testdata/answers/" + name + ".json")
		require.NoError(f, err)
		return text
	}
	crush := read("clean.osd-crush-dump")
	for _, dump := range [][]byte{
		read("clean.osd-dump"), read("osd0-down.osd-dump"), []byte(`{}`),
		[]byte(`{"osds":[{"osd":0,"up":1},{"osd":0},{"osd":-1}],"pools":[{"pool":1,"crush_rule":9}]}`),
	} {
		f.Add(dump, crush, "zone-x", "node-a", 0, 3)
		f.Add(dump, []byte(`{}`), "", "", -1, 0)
		f.Add(dump, crush, "zone-y", "NODE.A", 99, 1)
	}
	f.Fuzz(func(t *testing.T, dump, crush []byte, label, node string, osd, pods int) {
		var m ceph.OSDMap
		var c ceph.CrushMap
		if json.Unmarshal(dump, &m) != nil || json.Unmarshal(crush, &c) != nil {
			return
		}
		in := storageview.Input{
			Map: &m, Tree: failuredomain.NewTree(&c), IDLabel: "ceph-osd-id", FailureDomainLabel: "topology-location-{type}",
			Nodes:    []storageview.Node{{Name: node, Hostname: label, Unschedulable: true}, {Name: "node-b"}},
			Interest: storageview.Interest{Domains: []string{label, "zone-x"}, Nodes: []string{node}},
		}
		for i := range min(max(pods, 0), 8) {
			state := []storage.PodState{storage.PodReady, storage.PodPending, storage.PodTerminating, storage.PodNotReady}[i%4]
			in.Pods = append(in.Pods, storageview.Pod{
				Name: label, OSD: max(osd+i/2, storageview.NoOSD), State: state, Node: node,
				Labels: map[string]string{"topology-location-zone": label, "topology-location-host": node},
			})
		}
		v := storageview.Build(in)
		if v.Up > v.Daemons && v.Daemons > 0 || v.Podless > v.Up {
			t.Fatalf("%d up of %d, %d without pods", v.Up, v.Daemons, v.Podless)
		}
		seen := map[string]bool{}
		for _, d := range v.Domains {
			for _, x := range d.Troubled {
				if seen[x.Name] && len(v.Problems) == 0 {
					t.Fatalf("%s is in two places, and that is no problem: %+v", x.Name, v.Domains)
				}
				seen[x.Name] = true
			}
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	})
}
