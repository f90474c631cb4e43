package cephcluster

import (
	"testing"
	"time"

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

// TestPause: data that recovers for hours is looked at no oftener than data that is whole; but each time that something
// happens it begins anew.
func TestPause(t *testing.T) {
	c, now := &connected{}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		after   time.Duration
		settled bool
		want    time.Duration
	}{
		{0, true, lookAtRest},
		{time.Hour, false, lookUnsettle},
		{forSoLong - 1, false, lookUnsettle},
		{1, false, lookAtRest},
		{3 * time.Hour, false, lookAtRest},
		{time.Second, true, lookAtRest},
		{time.Second, false, lookUnsettle},
	} {
		now = now.Add(test.after)
		assert.Equal(t, test.want, c.pause(test.settled, now), now)
	}
}
