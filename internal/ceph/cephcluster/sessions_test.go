package cephcluster

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestDisconnected: in which failure domains those are that have lost the monitors.
func TestDisconnected(t *testing.T) {
	crush := &ceph.CrushMap{}
	require.NoError(t, json.Unmarshal([]byte(`{
		"types": [{"type_id": 0, "name": "osd"}, {"type_id": 3, "name": "zone"}],
		"buckets": [
			{"id": -1, "name": "x", "type_id": 3, "items": [{"id": 0}, {"id": 1}]},
			{"id": -2, "name": "y", "type_id": 3, "items": [{"id": 2}, {"id": 3}, {"id": 4}]}]}`), crush))
	for name, c := range map[string]struct {
		of   ceph.Disconnected
		want *storage.Disconnected
	}{
		"nobody": {ceph.Disconnected{}, nil},
		"one": {
			ceph.Disconnected{OSDs: []int{1}},
			&storage.Disconnected{Daemons: 1, Domains: []string{"x"}, Examples: []string{"osd.1 in x"}},
		},
		"in two domains": {
			ceph.Disconnected{OSDs: []int{1, 2, 3, 4}},
			&storage.Disconnected{
				Daemons: 4, Domains: []string{"x", "y"}, Examples: []string{"osd.1 in x", "osd.2 in y", "osd.3 in y"},
			},
		},
		"perhaps": {
			ceph.Disconnected{Presumed: []int{3}},
			&storage.Disconnected{Daemons: 1, Presumed: 1, Domains: []string{"y"}, Examples: []string{"osd.3 in y"}},
		},
		"one for certain": {
			ceph.Disconnected{OSDs: []int{3}, Presumed: []int{0, 1}},
			&storage.Disconnected{Daemons: 3, Presumed: 2, Domains: []string{"x", "y"}, Examples: []string{"osd.3 in y"}},
		},
		"nobody says which": {
			ceph.Disconnected{Unnamed: 2, Why: "access denied"}, &storage.Disconnected{Daemons: 2, Why: "access denied"},
		},
		"nobody says which, nor since when": {
			ceph.Disconnected{Unnamed: 2, Unsure: true, Why: "access denied"},
			&storage.Disconnected{Daemons: 2, Presumed: 2, Why: "access denied"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, disconnected(c.of, failuredomain.NewTree(crush), "zone"))
		})
	}
}

// TestWhoIsDisconnected: it is news who has lost the monitors, and not who of many turns to another one a moment before
// the rest.
func TestWhoIsDisconnected(t *testing.T) {
	require.Empty(t, whoIsDisconnected(ceph.Disconnected{}))
	seen := map[string]int{}
	for i, d := range []ceph.Disconnected{
		{OSDs: []int{1}},
		{OSDs: []int{12}},
		{OSDs: []int{1, 2}},
		{OSDs: []int{1}, Presumed: []int{3}},
		{Presumed: []int{3, 4}},
		{Unnamed: 2},
		{Unnamed: 1},
		{Unnamed: 2, Unsure: true},
	} {
		stands := whoIsDisconnected(d)
		require.NotContains(t, seen, stands, "%+v", d)
		seen[stands] = i
	}
	require.Equal(t, whoIsDisconnected(ceph.Disconnected{OSDs: []int{1}, Presumed: []int{3}}),
		whoIsDisconnected(ceph.Disconnected{OSDs: []int{1}, Presumed: []int{3, 4}}))
}
