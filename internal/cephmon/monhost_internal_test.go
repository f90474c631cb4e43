package cephmon

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfMonHost(t *testing.T) {
	const moved = "[v2:10.0.0.4:3300,v1:10.0.0.4:6789]"
	known := []string{"10.0.0.1:6789", "[fd00::1]:6789"}
	for before, after := range map[string]string{
		"[global]\nmon_host = 10.0.0.1,10.0.0.2\nfsid = x": "[global]\nmon_host = " + moved + "\nfsid = x",
		"mon host=[v2:10.0.0.1:3300,v1:10.0.0.1:6789]":     "mon host=" + moved,
		"  mon_host = fd00::1":                             "  mon_host = " + moved,
		"mon_host = 10.0.0.10":                             "mon_host = 10.0.0.10",
		"mon_host = ceph-mon.ceph.svc.cluster.local":       "mon_host = ceph-mon.ceph.svc.cluster.local",
		"# mon_host = 10.0.0.1":                            "# mon_host = 10.0.0.1",
		"":                                                 "",
	} {
		assert.Equal(t, after, confMonHost(before, moved, known))
	}
}

func TestCSIMonitors(t *testing.T) {
	const before = `[{"clusterID":"rook-ceph","cephFS":{"x":1},"monitors":["10.0.0.1:6789"]},` +
		`{"clusterID":"other","monitors":["10.0.0.1:6789"]}]`
	after, err := csiMonitors(before, "rook-ceph", []string{"10.0.0.4:6789", "10.0.0.2:6789"})
	require.NoError(t, err)
	assert.JSONEq(t, `[{"clusterID":"rook-ceph","cephFS":{"x":1},"monitors":["10.0.0.4:6789","10.0.0.2:6789"]},`+
		`{"clusterID":"other","monitors":["10.0.0.1:6789"]}]`, after)
	same, err := csiMonitors(before, "rook-ceph", []string{"10.0.0.1:6789"})
	require.NoError(t, err)
	assert.Equal(t, before, same)
	_, err = csiMonitors("{", "rook-ceph", nil)
	assert.Error(t, err, "what cannot be read is not written over")
}
