package kube

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestRelocated: what Longhorn is told about a node, in two steps, and that it is taken back when it is not wanted any
// more. What somebody else has set stays. A node is: whether it gets replicas, whether it keeps them, and what of that
// is ours.
func TestRelocated(t *testing.T) {
	node := func(scheduling, eviction bool, ours string) *unstructured.Unstructured {
		n := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"allowScheduling": scheduling, "evictionRequested": eviction},
		}}
		n.SetName("n")
		if ours != "" {
			n.SetAnnotations(map[string]string{Relocates: ours})
		}
		return n
	}
	none := []storage.Relocation{{Node: "other", Away: true}}
	closed, away := []storage.Relocation{{Node: "n"}}, []storage.Relocation{{Node: "n", Away: true}}
	const by, both = "ns/p scheduling", "ns/p scheduling eviction"
	type object = *unstructured.Unstructured
	others := node(true, false, "ns/q scheduling")
	open, shut, emptied := node(true, false, ""), node(false, false, by), node(false, true, both)
	for name, c := range map[string]struct {
		has, closes, evicts object // before, after the first step, and after the second
		want                []storage.Relocation
	}{
		"nothing":                {open, open, open, none},
		"no more replicas":       {open, shut, shut, closed},
		"closed before emptied":  {open, shut, emptied, away},
		"ours stays":             {emptied, emptied, emptied, away},
		"emptied no more":        {emptied, shut, shut, closed},
		"taken back":             {emptied, open, open, nil},
		"taken back from closed": {shut, open, open, none},
		"a person had closed it": {
			node(false, false, ""), node(false, false, ""), node(false, true, "ns/p eviction"), away,
		},
		"and it stays closed": {
			node(false, true, "ns/p eviction"), node(false, false, ""), node(false, false, ""), nil,
		},
		"a person empties it":           {node(false, true, ""), node(false, true, ""), node(false, true, ""), away},
		"and goes on with that":         {node(false, true, ""), node(false, true, ""), node(false, true, ""), nil},
		"somebody opened it again":      {node(true, false, both), node(false, false, both), emptied, away},
		"who opened it may keep it":     {node(true, false, both), open, open, nil},
		"another policy looks after it": {others, others, others, away},
	} {
		t.Run(name, func(t *testing.T) {
			first := patched(t, c.has, relocated(c.has, "ns/p", c.want, false))
			require.Equal(t, c.closes, first)
			second := patched(t, first, relocated(first, "ns/p", c.want, true))
			require.Equal(t, c.evicts, second)
			require.Empty(t, relocated(second, "ns/p", c.want, false), "once is enough")
			require.Empty(t, relocated(second, "ns/p", c.want, true), "once is enough")
		})
	}
}

func patched(t *testing.T, n *unstructured.Unstructured, change []operation) *unstructured.Unstructured {
	t.Helper()
	if len(change) == 0 {
		return n
	}
	raw, err := json.Marshal(change)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(raw)
	require.NoError(t, err)
	before, err := json.Marshal(n.Object)
	require.NoError(t, err)
	after, err := patch.Apply(before)
	require.NoError(t, err)
	out := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(after, &out.Object))
	if len(out.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(out.Object, "metadata", "annotations")
	}
	return out
}
