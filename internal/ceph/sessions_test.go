package ceph_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// each answers for every monitor in its own words.
type each map[string]reply

func (e each) MonCommand(context.Context, []byte) ([]byte, string, error) {
	panic("no monitor was named")
}

func (e each) MonitorCommand(ctx context.Context, monitor string, command []byte) ([]byte, string, error) {
	return (&monitors{answers: map[string]reply{"sessions": e[monitor]}}).MonCommand(ctx, command)
}

// TestSessionsOf: what sessions any of the monitors has. Where one of them does not say nobody knows.
func TestSessionsOf(t *testing.T) {
	const of = `[{"entity_name": "osd.3", "authenticated": true, "open": true,
			"addrs": {"addrvec": [{"type": "v2", "addr": "10.0.0.3:6800", "nonce": 7}]}},
		{"entity_name": "osd.4", "authenticated": false, "open": true},
		{"entity_name": "osd.5", "authenticated": true, "open": false},
		{"entity_name": "", "name": "mon.1", "authenticated": true, "open": true},
		{"entity_name": "client.osd.6", "authenticated": true, "open": true},
		{"entity_name": "osd.x", "authenticated": true, "open": true},
		{"entity_name": "osd.10", "authenticated": true, "open": true}]`
	mons := each{
		"a": {output: of}, "b": {output: `[{"entity_name": "osd.2", "authenticated": true, "open": true},
		{"entity_name": "osd.3", "authenticated": true, "open": true}]`},
		"mute": {status: "access denied", code: -int(syscall.EACCES)},
		"odd":  {output: `{"sessions": []}`},
	}
	client := ceph.Client{Commander: mons}
	sessions, err := client.SessionsOf(t.Context(), []string{"a", "b"})
	require.NoError(t, err)
	require.ElementsMatch(t, []ceph.Session{
		{OSD: 2}, {OSD: 3, Addrs: ceph.Addrs{Vec: []ceph.Addr{{Nonce: 7}}}}, {OSD: 3}, {OSD: 10},
	}, sessions)
	for _, silent := range []string{"mute", "odd"} {
		_, err = client.SessionsOf(t.Context(), []string{"a", silent})
		require.ErrorContains(t, err, "mon."+silent)
	}
	_, err = ceph.Client{Commander: struct{ ceph.Commander }{mons}}.SessionsOf(t.Context(), []string{"a"})
	require.ErrorIs(t, err, ceph.ErrNoMonitorCommands)
}
