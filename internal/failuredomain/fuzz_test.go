package failuredomain_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
)

// FuzzCrush: whatever a CRUSH map says, with loops, without parents, with rules about nothing, all questions have an
// answer, and all the answers fit together.
func FuzzCrush(f *testing.F) {
	whole, err := os.ReadFile("../ceph/testdata/answers/clean.osd-crush-dump.json")
	require.NoError(f, err)
	f.Add(whole, 1, "zone")
	f.Add([]byte(`{"types":[{"type_id":0,"name":"osd"},{"type_id":1,"name":"host"}],"buckets":[{"id":-1,"name":"a","type_id":1,"items":[{"id":-1},{"id":0}]}],
		"rules":[{"rule_id":0,"steps":[{"op":"take","item":-1},{"op":"chooseleaf_firstn","type":"host"},{"op":"take","item":-1},{"op":"choose_indep","type":"osd"},{"op":"emit"}]}]}`), 0, "host")
	f.Add([]byte(`{"types":[{"type_id":1,"name":"host"}],"buckets":[{"id":-1,"name":"a","type_id":1,"items":[{"id":-2}]},{"id":-2,"name":"b~ssd","type_id":1,"items":[{"id":-1}]}]}`), 0, "")
	f.Add([]byte(`{"rules":[{"rule_id":7,"steps":[{"op":"choose"},{"op":"emit"}]}]}`), 7, "osd")
	f.Fuzz(func(t *testing.T, text []byte, rule int, typeName string) {
		var m ceph.CrushMap
		if json.Unmarshal(text, &m) != nil {
			return
		}
		tree := failuredomain.NewTree(&m)
		pools := []ceph.Pool{{ID: 1, Name: "p", Size: 3, MinSize: 2, Rule: rule, PGNum: 8}}
		smallest, err := tree.Smallest(pools)
		if err == nil {
			tree.Intolerant(pools, smallest.Type, nil)
		}
		tree.Intolerant(pools, typeName, []string{"p"})
		tree.HostType()
		for osd := range 3 {
			located := tree.Located(osd)
			if where := tree.Find(osd, typeName); where != "" && typeName != failuredomain.OSDType &&
				tree.Location(osd)[typeName] == "" && !located {
				t.Fatalf("osd.%d is in %s %q, but nowhere at all", osd, typeName, where)
			}
		}
	})
}
