package cephcluster

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// TestNooutMovesNoData: a rollout flags its OSDs and takes the flags away again with every batch. That is worth another
// look, since a person may have done it, but what is known of the data stays known.
func TestNooutMovesNoData(t *testing.T) {
	of := func(state ...string) *ceph.OSDMap {
		return &ceph.OSDMap{OSDs: []ceph.OSD{
			{ID: 0, Up: true, In: true, Weight: 1, UpFrom: 5, State: append([]string{"exists", "up"}, state...)},
		}}
	}
	whole := of()
	assert.Equal(t, placement(whole), placement(of("noout")))
	assert.NotEqual(t, fingerprint(whole), fingerprint(of("noout")))
	assert.NotEqual(t, placement(whole), placement(of("destroyed")))
	out := of()
	out.OSDs[0].In = false
	assert.NotEqual(t, placement(whole), placement(out))
}
