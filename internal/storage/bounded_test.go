package storage_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestDepartedInShort: nobody is forgotten, however many left and however their epochs are mixed.
func TestDepartedInShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was := storage.Departed{}
		for id := range rapid.IntRange(0, 3000).Draw(t, "how many") {
			was[fmt.Sprintf("osd.%d", id*rapid.SampledFrom([]int{1, 7}).Draw(t, "gap"))] = int64(
				rapid.IntRange(1, 5).Draw(t, "epoch"))
		}
		data, err := json.Marshal(was)
		require.NoError(t, err)
		var is storage.Departed
		require.NoError(t, json.Unmarshal(data, &is))
		require.Equal(t, was, is)
	})
	was := storage.Departed{}
	for id := range 20_000 {
		was[fmt.Sprintf("osd.%d", id)] = int64(1_000_000 + id%50)
	}
	data, err := json.Marshal(was)
	require.NoError(t, err)
	require.Less(t, len(data), 100<<10)
}

// TestDepartedAsBefore: a few are written as they always were, and an empty one is none.
func TestDepartedAsBefore(t *testing.T) {
	data, err := json.Marshal(storage.View{Departed: storage.Departed{"osd.3": 102}})
	require.NoError(t, err)
	require.Contains(t, string(data), `"departed":{"osd.3":102}`)
	data, err = json.Marshal(storage.View{})
	require.NoError(t, err)
	require.NotContains(t, string(data), "departed")
}
