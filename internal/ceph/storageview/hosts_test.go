package storageview_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func TestFindHosts(t *testing.T) {
	tree := failuredomain.NewTree(&ceph.CrushMap{
		Types: []ceph.CrushType{{ID: 1, Name: "host"}},
		Buckets: []ceph.CrushBucket{
			{ID: -2, Name: "a", TypeID: 1},
			{ID: -3, Name: "a~ssd", TypeID: 1},
			{ID: -4, Name: "new-b", TypeID: 1},
		},
	})
	found, gone := storageview.FindHosts(tree, []storage.Host{
		{Name: "a"},
		{Name: "a", ID: -2},
		{Name: "b", ID: -4},
		{Name: "b"},
		{Name: "c", ID: -9},
		{Name: "a~ssd"},
		{Name: "osd.7"},
	})
	require.Equal(t, []storage.Host{{Name: "a", ID: -2}, {Name: "new-b", ID: -4}}, found)
	require.Equal(t, []storage.Host{{Name: "b"}, {Name: "c", ID: -9}, {Name: "a~ssd"}}, gone)

	found, gone = storageview.FindHosts(failuredomain.NewTree(&ceph.CrushMap{}), []storage.Host{{Name: "a"}})
	require.Empty(t, found)
	require.Empty(t, gone, "an empty map is no answer")
}
