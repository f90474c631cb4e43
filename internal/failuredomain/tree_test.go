package failuredomain_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
)

// bucket adds a bucket to a CRUSH map.
func bucket(m *ceph.CrushMap, id int, name string, typeID int, items ...int) {
	b := ceph.CrushBucket{ID: id, Name: name, TypeID: typeID}
	for _, item := range items {
		b.Items = append(b.Items, struct {
			ID int `json:"id"`
		}{item})
	}
	m.Buckets = append(m.Buckets, b)
}

// threeZones is a CRUSH map of 3 zones × 2 hosts × 2 OSDs: the even ones are hdd, the odd ones ssd. It has the shadow
// trees of both classes, as Ceph has them.
func threeZones() *ceph.CrushMap {
	m := &ceph.CrushMap{Types: []ceph.CrushType{
		{ID: 0, Name: "osd"},
		{ID: 1, Name: "host"},
		{ID: 2, Name: "shelf"},
		{ID: 3, Name: "rack"},
		{ID: 9, Name: "zone"},
		{ID: 11, Name: "root"},
	}}
	id := -1
	next := func() int { id--; return id + 1 }
	for class, suffix := range []string{"~hdd", "~ssd", ""} {
		var zones []int
		for z, zone := range []string{"zone-x", "zone-y", "zone-z"} {
			var hosts []int
			for h := range 2 {
				osds := []int{4*z + 2*h, 4*z + 2*h + 1}
				if suffix != "" {
					osds = osds[class : class+1]
				}
				hosts = append(hosts, next())
				bucket(m, hosts[h], fmt.Sprintf("node-%d%s", 2*z+h, suffix), 1, osds...)
			}
			zones = append(zones, next())
			bucket(m, zones[z], zone+suffix, 9, hosts...)
		}
		bucket(m, next(), "default"+suffix, 11, zones...)
	}
	return m
}

func TestTree(t *testing.T) {
	tree := failuredomain.NewTree(threeZones())
	require.Equal(t, "zone-y", tree.Find(6, "zone"))
	require.Equal(t, "node-3", tree.Find(6, "host"))
	require.Equal(t, "osd.6", tree.Find(6, "osd"))
	require.Equal(t, "default", tree.Find(6, "root"))
	require.Empty(t, tree.Find(6, "rack"), "there are no racks")
	require.Empty(t, tree.Find(6, "planet"))
	require.Empty(t, tree.Find(99, "zone"))
	require.True(t, tree.Located(6))
	require.False(t, tree.Located(99))
	require.Equal(t, map[string]string{"host": "node-3", "zone": "zone-y", "root": "default"}, tree.Location(6))
	require.Empty(t, tree.Location(99))
}

func TestSetAside(t *testing.T) {
	m := threeZones()
	bucket(m, -100, "spare", 1, 12)
	bucket(m, -101, "taken", 1, 13)
	m.Rules = []ceph.CrushRule{{Steps: []ceph.CrushStep{{Op: "take", Item: -101}}}}
	tree := failuredomain.NewTree(m)
	require.Equal(t, "spare", tree.Find(12, "host"))
	require.False(t, tree.Located(12), "its host is under no root")
	require.True(t, tree.Located(13), "a rule takes its host")
	require.False(t, tree.Located(14), "it is nowhere")
}

func TestBrokenMapEnds(t *testing.T) {
	m := threeZones()
	bucket(m, -100, "loop-a", 1, 12, -101)
	bucket(m, -101, "loop-b", 1, -100)
	bucket(m, -102, "dangling", 11, -999)
	tree := failuredomain.NewTree(m)
	require.Empty(t, tree.Find(12, "zone"))
	require.False(t, tree.Located(12))
	require.NotNil(t, tree.Location(12))
	empty := failuredomain.NewTree(&ceph.CrushMap{})
	smallest, err := empty.Smallest(nil)
	require.NoError(t, err)
	require.Equal(t, "host", smallest.Type)
}

// TestRealMap: the map of a cluster with 3 zones × 2 hosts × 1 OSD, as Ceph 16 gave it.
func TestRealMap(t *testing.T) {
	text, err := os.ReadFile("../ceph/testdata/answers/clean.osd-crush-dump.json")
	require.NoError(t, err)
	var m ceph.CrushMap
	require.NoError(t, json.Unmarshal(text, &m))
	tree := failuredomain.NewTree(&m)
	for osd := range 6 {
		require.True(t, tree.Located(osd))
		require.Equal(t, fmt.Sprintf("n%d", osd+1), tree.Find(osd, "host"))
		require.Equal(t, fmt.Sprintf("z%d", osd%3+1), tree.Find(osd, "zone"))
	}
	smallest, err := tree.Smallest([]ceph.Pool{{Name: "lab", Size: 3, MinSize: 2, Rule: 1}})
	require.NoError(t, err)
	require.Equal(t, failuredomain.Smallest{Type: "zone", Because: `pool "lab" with CRUSH rule "zoned"`}, smallest)
}

// TestFindAgainstDumbModel compares the tree with looking through all buckets for the one that has the OSD.
func TestFindAgainstDumbModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &ceph.CrushMap{Types: threeZones().Types}
		below := []int{}
		for osd := range rapid.IntRange(0, 20).Draw(t, "osds") {
			below = append(below, osd)
		}
		id := -1
		for _, typeID := range []int{1, 3, 9, 11} {
			if typeID != 1 && rapid.Bool().Draw(t, "skip") {
				continue
			}
			var above []int
			for len(below) > 0 {
				n := rapid.IntRange(1, len(below)).Draw(t, "items")
				bucket(m, id, fmt.Sprintf("b%d", -id), typeID, below[:n]...)
				above = append(above, id)
				below = below[n:]
				id--
			}
			below = above
		}
		tree := failuredomain.NewTree(m)
		for osd := range 21 {
			for _, typ := range m.Types {
				if typ.ID != 0 {
					require.Equal(t, dumbFind(m, osd, typ.ID), tree.Find(osd, typ.Name))
				}
			}
		}
	})
}

func dumbFind(m *ceph.CrushMap, item, typeID int) string {
	for _, b := range m.Buckets {
		for _, i := range b.Items {
			if i.ID == item {
				if b.TypeID == typeID {
					return b.Name
				}
				return dumbFind(m, b.ID, typeID)
			}
		}
	}
	return ""
}
