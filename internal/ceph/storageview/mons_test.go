package storageview

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func TestDescribeMons(t *testing.T) {
	ns := newNodes([]Node{
		{Name: "node-a", Unschedulable: true},
		{Name: "node-b"},
		{Name: "node-c", Hostname: "c.example"},
	})
	ns.put(&osd{expected: true, domain: "zone-x"}, ns.byName["node-a"])
	mons := Mons{
		Map: []string{"a", "b", "c", "d", "e"}, InQuorum: []string{"a", "b", "c"}, Label: "name",
		Pods: []MonPod{
			{Mon: "a", State: storage.PodReady, Node: "node-a"},
			// One on its way out, and its successor, which does not say where it could run.
			{Mon: "b", State: storage.PodPending},
			{Mon: "b", State: storage.PodTerminating, Node: "node-b"},
			{Mon: "c", State: storage.PodReady, Node: "c.example"},
			{Mon: "c", State: storage.PodTerminating, Node: "node-b"},
			{Mon: "d", State: storage.PodReady, Node: "node-z"},
		},
	}
	assert.Equal(t, []storage.Mon{
		{Name: "a", Node: "node-a", Domain: "zone-x", Leaving: true, InQuorum: true, Pod: storage.PodReady},
		{Name: "b", Node: "node-b", InQuorum: true, Pod: storage.PodTerminating},
		{Name: "c", Node: "node-c", InQuorum: true, Pod: storage.PodReady},
		{Name: "d", Node: "node-z", Leaving: true, Pod: storage.PodReady}, // its node is deleted
		{Name: "e", Pod: storage.PodNone},                                 // outside of this Kubernetes
	}, describeMons(mons, ns))
	assert.Equal(t, 1, mons.idle(), "d is ready, and nobody's")
	assert.True(t, mons.named())

	left := mons
	left.Map = []string{"a", "c"}
	assert.Equal(t, []string{"b", "d"}, left.stray())
	left.Pods = left.Pods[2:]
	assert.Equal(t, []string{"d"}, left.stray(), "that of b is on its way out, and needs nobody's leave any more")

	mons.Pods[0].Mon = ""
	assert.False(t, mons.named())
	assert.Equal(t, storage.PodNone, describeMons(mons, ns)[1].Pod, "whose pod it is cannot be told")
}
