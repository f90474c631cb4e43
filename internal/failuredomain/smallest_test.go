package failuredomain_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
)

// crushTypes are those that Ceph gives a new cluster.
var crushTypes = []ceph.CrushType{
	{ID: 0, Name: "osd"},
	{ID: 1, Name: "host"},
	{ID: 2, Name: "chassis"},
	{ID: 3, Name: "rack"},
	{ID: 4, Name: "row"},
	{ID: 5, Name: "pdu"},
	{ID: 6, Name: "pod"},
	{ID: 7, Name: "room"},
	{ID: 8, Name: "datacenter"},
	{ID: 9, Name: "zone"},
	{ID: 10, Name: "region"},
	{ID: 11, Name: "root"},
}

const rootID = -1

// hosts adds hosts of one OSD each and returns their ids, −100 and so on.
func hosts(m *ceph.CrushMap, n int) []int {
	var ids []int
	for i := range n {
		bucket(m, -100-i, "node-"+string(rune('a'+i)), 1, i)
		ids = append(ids, -100-i)
	}
	return ids
}

// twice is 2 × 2 × 2: two buckets of the outer type, in each two of the inner type, with two hosts each.
func twice(outer, inner int) *ceph.CrushMap {
	m := &ceph.CrushMap{Types: crushTypes}
	h := hosts(m, 8)
	bucket(m, rootID, "default", 11, -10, -11)
	bucket(m, -10, "east", outer, -20, -21)
	bucket(m, -11, "west", outer, -22, -23)
	for i := range 4 {
		bucket(m, -20-i, "inner-"+string(rune('a'+i)), inner, h[2*i], h[2*i+1])
	}
	return m
}

// over is a rule that puts each copy into another bucket of a type, below the root.
func over(id int, typeName string) ceph.CrushRule { return under(id, rootID, typeName) }

func under(id, root int, typeName string) ceph.CrushRule {
	return ceph.CrushRule{ID: id, Name: "by " + typeName, Steps: []ceph.CrushStep{
		{Op: "take", Item: root}, {Op: "chooseleaf_firstn", Type: typeName}, {Op: "emit"},
	}}
}

// twoByTwo is two buckets of a type, and two of another in each.
func twoByTwo(outer, inner string) ceph.CrushRule {
	return ceph.CrushRule{Name: "two by two", Steps: []ceph.CrushStep{
		{Op: "take", Item: rootID},
		{Op: "choose_firstn", Num: 2, Type: outer},
		{Op: "chooseleaf_firstn", Num: 2, Type: inner},
		{Op: "emit"},
	}}
}

// TestSmallerIsWhatIsInside: by its number datacenter is smaller than zone, and rack smaller than PDU; by the tree it
// is as people built it.
func TestSmallerIsWhatIsInside(t *testing.T) {
	const rack, pdu, datacenter, zone = 3, 5, 8, 9
	for _, c := range []struct {
		outer, inner         int
		outerName, innerName string
	}{
		{datacenter, zone, "datacenter", "zone"},
		{zone, datacenter, "zone", "datacenter"},
		{pdu, rack, "pdu", "rack"},
		{rack, pdu, "rack", "pdu"},
	} {
		m := twice(c.outer, c.inner)
		m.Rules = []ceph.CrushRule{over(0, c.outerName), over(1, c.innerName)}
		pools := []ceph.Pool{{Name: "far", Size: 2, MinSize: 1, Rule: 0}, {Name: "near", Size: 3, MinSize: 2, Rule: 1}}
		tree := failuredomain.NewTree(m)
		require.Equal(t, []string{"osd", "host", c.innerName, c.outerName, "root"}, tree.Types()[:5])
		smallest, err := tree.Smallest(pools)
		require.NoError(t, err)
		require.Equal(t, failuredomain.Smallest{Type: c.innerName, Because: `pool "near" with CRUSH rule "by ` +
			c.innerName + `"`}, smallest)
		require.Empty(t, tree.Intolerant(pools, c.innerName, nil))
		require.Equal(t, []string{`pool "near" (size 3, min_size 2) would become unavailable with any ` + c.outerName +
			`, which may hold 2 copies of the same data`},
			tree.Intolerant(pools, c.outerName, nil))
	}
}

// TestTwoByTwo: two copies in each of two datacenters. With min_size 3 a datacenter is not borne, a zone in it is;
// whatever their numbers.
func TestTwoByTwo(t *testing.T) {
	const datacenter, zone = 8, 9
	m := twice(datacenter, zone)
	m.Rules = []ceph.CrushRule{twoByTwo("datacenter", "zone")}
	tree := failuredomain.NewTree(m)
	pools := []ceph.Pool{{Name: "rbd", Size: 4, MinSize: 3}}
	smallest, err := tree.Smallest(pools)
	require.NoError(t, err)
	require.Equal(t, "zone", smallest.Type)
	require.Empty(t, tree.Intolerant(pools, "zone", nil))
	require.Equal(t, []string{`pool "rbd" (size 4, min_size 3) would become unavailable with any datacenter, which may hold 2 copies of the same data`},
		tree.Intolerant(pools, "datacenter", nil))
	pools[0].MinSize = 2
	require.Empty(t, tree.Intolerant(pools, "datacenter", nil))

	// Two hosts in each datacenter may be two hosts of one zone.
	m.Rules = []ceph.CrushRule{twoByTwo("datacenter", "host"), over(1, "zone")}
	pools = []ceph.Pool{{Name: "rbd", Size: 4, MinSize: 3}, {Name: "meta", Size: 3, MinSize: 2, Rule: 1}}
	tree = failuredomain.NewTree(m)
	smallest, err = tree.Smallest(pools)
	require.NoError(t, err)
	require.Equal(t, "host", smallest.Type)
	require.Len(t, tree.Intolerant(pools, "zone", nil), 1)
}

// cutAcross is two racks of two hosts in one root, and two PDUs in another, each of which feeds a host of either rack.
func cutAcross() *ceph.CrushMap {
	m := &ceph.CrushMap{Types: crushTypes}
	h := hosts(m, 4)
	bucket(m, rootID, "default", 11, -10, -11)
	bucket(m, -10, "rack-1", 3, h[0], h[1])
	bucket(m, -11, "rack-2", 3, h[2], h[3])
	bucket(m, -2, "power", 11, -12, -13)
	bucket(m, -12, "pdu-a", 5, h[0], h[2])
	bucket(m, -13, "pdu-b", 5, h[1], h[3])
	m.Rules = []ceph.CrushRule{over(0, "rack"), under(1, -2, "pdu")}
	return m
}

// TestCutAcross: a rack has hosts of two PDUs, and a PDU feeds hosts of two racks, so neither may go where one pool
// relies on the one and one on the other. A host may.
func TestCutAcross(t *testing.T) {
	pools := []ceph.Pool{{Name: "a", Size: 2, MinSize: 1, Rule: 0}, {Name: "b", Size: 2, MinSize: 1, Rule: 1}}
	tree := failuredomain.NewTree(cutAcross())
	smallest, err := tree.Smallest(pools)
	require.NoError(t, err)
	require.Equal(t, failuredomain.Smallest{
		Type: "host", Compromise: true,
		Because: `pool "a" with CRUSH rule "by rack" relies on type rack, pool "b" with CRUSH rule "by pdu" relies on type pdu, and none of these types is within all the others in the CRUSH tree`,
	}, smallest)
	require.Empty(t, tree.Intolerant(pools, "host", nil))
	require.Len(t, tree.Intolerant(pools, "rack", nil), 1)
	require.Len(t, tree.Intolerant(pools, "pdu", nil), 1)
	require.Equal(t, map[string]string{"host": "node-b", "rack": "rack-1", "pdu": "pdu-b"}, tree.Location(1),
		"it is under two roots")

	only, err := tree.Smallest(pools[:1])
	require.NoError(t, err)
	require.Equal(t, "rack", only.Type, "the PDUs are nobody's concern")
}

// TestFedTwice: a host with two power supplies is in two PDUs. A pool that relies on PDUs may have two copies there.
func TestFedTwice(t *testing.T) {
	m := cutAcross()
	bucket(m, -14, "pdu-c", 5, -100)
	m.Buckets = slices.DeleteFunc(m.Buckets, func(b ceph.CrushBucket) bool { return b.Name == "power" })
	bucket(m, -2, "power", 11, -12, -13, -14)
	tree := failuredomain.NewTree(m)
	pools := []ceph.Pool{{Name: "b", Size: 3, MinSize: 2, Rule: 1}}
	smallest, err := tree.Smallest(pools)
	require.NoError(t, err)
	require.Equal(t, "osd", smallest.Type)
	require.Equal(t, `pool "b" with CRUSH rule "by pdu" relies on type pdu, but node-a is in several buckets of type pdu at once`, smallest.Because)
	require.Empty(t, tree.Find(0, "pdu"))
	require.Equal(t, []string{"pdu-a", "pdu-c"}, tree.FindAll(0, "pdu"))
	require.Len(t, tree.Intolerant(pools, "host", nil), 1)
}

// TestSeparateRoots: one pool by rack, one by zone, and no OSD is in both a rack and a zone.
func TestSeparateRoots(t *testing.T) {
	m := &ceph.CrushMap{Types: crushTypes}
	h := hosts(m, 4)
	bucket(m, rootID, "fast", 11, -10, -11)
	bucket(m, -10, "rack-1", 3, h[0])
	bucket(m, -11, "rack-2", 3, h[1])
	bucket(m, -2, "slow", 11, -12, -13)
	bucket(m, -12, "zone-a", 9, h[2])
	bucket(m, -13, "zone-b", 9, h[3])
	m.Rules = []ceph.CrushRule{over(0, "rack"), under(1, -2, "zone")}
	smallest, err := failuredomain.NewTree(m).Smallest([]ceph.Pool{
		{Name: "a", Size: 2, MinSize: 1, Rule: 0},
		{Name: "b", Size: 2, MinSize: 1, Rule: 1},
	})
	require.NoError(t, err)
	require.Equal(t, "host", smallest.Type)
	require.True(t, smallest.Compromise)
}

// TestEqualsAreToldByTheirDepth: each rack has one host yet, so that the two divide the OSDs alike. The next host in a
// rack must not change what the failure domain is.
func TestEqualsAreToldByTheirDepth(t *testing.T) {
	m := &ceph.CrushMap{Types: crushTypes}
	h := hosts(m, 3)
	bucket(m, rootID, "default", 11, -10, -11, -12)
	for i, name := range []string{"rack-1", "rack-2", "rack-3"} {
		bucket(m, -10-i, name, 3, h[i])
	}
	m.Rules = []ceph.CrushRule{over(0, "rack"), over(1, "host")}
	smallest, err := failuredomain.NewTree(m).Smallest([]ceph.Pool{
		{Name: "a", Size: 3, MinSize: 2, Rule: 0},
		{Name: "b", Size: 3, MinSize: 2, Rule: 1},
	})
	require.NoError(t, err)
	require.Equal(t, "host", smallest.Type)
}

// TestRuleNotUnderstood: what a rule does must be known to the last step.
func TestRuleNotUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		step  ceph.CrushStep
		fails string
	}{
		"a tunable by name":   {step: ceph.CrushStep{Op: "set_chooseleaf_tries", Num: 5}},
		"a tunable by number": {step: ceph.CrushStep{Opcode: 12}},
		"nothing":             {step: ceph.CrushStep{Op: "noop"}},
		"a step of the future": {
			step:  ceph.CrushStep{Opcode: 17},
			fails: `has a step that lockkeeper does not know ("", code 17)`,
		},
		"a word of the future": {
			step:  ceph.CrushStep{Op: "double"},
			fails: `has a step that lockkeeper does not know ("double", code 0)`,
		},
		"a bucket that is not": {
			step:  ceph.CrushStep{Op: "take", Item: -77},
			fails: "takes the bucket -77, which does not exist",
		},
	} {
		m := threeZones()
		m.Rules = []ceph.CrushRule{over(0, "zone")}
		m.Rules[0].Steps[0].Item = m.Buckets[len(m.Buckets)-1].ID
		m.Rules[0].Steps = append([]ceph.CrushStep{c.step}, m.Rules[0].Steps...)
		pools := []ceph.Pool{{Name: "rbd", Size: 3, MinSize: 2}}
		tree := failuredomain.NewTree(m)
		smallest, err := tree.Smallest(pools)
		if c.fails == "" {
			require.NoError(t, err, name)
			require.Equal(t, "zone", smallest.Type, name)
			require.Empty(t, tree.Intolerant(pools, "zone", nil), name)
			continue
		}
		require.ErrorContains(t, err, c.fails, name)
		require.Len(t, tree.Intolerant(pools, "zone", nil), 1, "nobody knows where the copies are")
	}
}

// TestMultiStepRetry: the rules of Ceph 19 and later that try again from the top.
func TestMultiStepRetry(t *testing.T) {
	m := twice(8, 9)
	m.Rules = []ceph.CrushRule{{Name: "msr", Steps: []ceph.CrushStep{
		{Op: "set_msr_descents", Num: 10},
		{Op: "take", Item: rootID},
		{Op: "choosemsr", Num: 4, Type: "zone"},
		{Op: "choosemsr", Num: 2, Type: "osd"},
		{Op: "emit"},
	}}}
	pools := []ceph.Pool{{Name: "ec", Size: 8, MinSize: 5}}
	tree := failuredomain.NewTree(m)
	smallest, err := tree.Smallest(pools)
	require.NoError(t, err)
	require.Equal(t, "osd", smallest.Type)
	require.Empty(t, tree.Intolerant(pools, "zone", nil))
	require.Equal(t, []string{`pool "ec" (size 8, min_size 5) would become unavailable with any datacenter, which may hold 4 copies of the same data`},
		tree.Intolerant(pools, "datacenter", nil))
}

// TestHost: a machine is what is called a host, whatever its number, or what holds the OSDs.
func TestHost(t *testing.T) {
	m := twice(8, 9)
	require.Equal(t, "host", failuredomain.NewTree(m).HostType())
	m.Types = []ceph.CrushType{
		{ID: 0, Name: "osd"},
		{ID: 1, Name: "node"},
		{ID: 8, Name: "datacenter"},
		{ID: 9, Name: "zone"},
		{ID: 11, Name: "root"},
	}
	require.Equal(t, "node", failuredomain.NewTree(m).HostType())
	m.Types = []ceph.CrushType{{ID: 0, Name: "device"}, {ID: 1, Name: "disk"}, {ID: 7, Name: "host"}}
	tree := failuredomain.NewTree(m)
	require.Equal(t, "host", tree.HostType())
	require.Equal(t, "osd.3", tree.Find(3, "osd"), "old maps have another name for OSDs")
}

// TestRootsByTree: the type of the roots need not have the greatest number.
func TestRootsByTree(t *testing.T) {
	m := &ceph.CrushMap{Types: []ceph.CrushType{{ID: 0, Name: "osd"}, {ID: 40, Name: "host"}, {ID: 2, Name: "root"}}}
	bucket(m, -1, "default", 2, -2)
	bucket(m, -2, "node-a", 40, 0)
	bucket(m, -3, "spare", 40, 1)
	bucket(m, -4, "archive", 2, -5)
	bucket(m, -5, "node-b", 40, 2)
	m.Rules = []ceph.CrushRule{over(0, "host")}
	tree := failuredomain.NewTree(m)
	require.True(t, tree.Located(0))
	require.False(t, tree.Located(1), "it was set aside")
	require.True(t, tree.Located(2), "another root, which no rule takes")
}
