package ceph_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

func TestParseMonEndpoints(t *testing.T) {
	for value, want := range map[string]string{
		"a=10.0.0.1:6789": "10.0.0.1:6789",
		"a=10.0.0.1:6789,b=10.0.0.2:6789,c=10.0.0.3:6789": "10.0.0.1:6789,10.0.0.2:6789,10.0.0.3:6789",
		"a=[fd00::1]:3300": "[fd00::1]:3300",
		"a=[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],b=10.0.0.2": "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],10.0.0.2",
		"[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0]":            "[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0]",
		"[v2:127.0.0.1:40101/0],[v2:127.0.0.1:40102/0]":        "[v2:127.0.0.1:40101/0],[v2:127.0.0.1:40102/0]",
		"10.0.0.1:3300,10.0.0.2:3300":                          "10.0.0.1:3300,10.0.0.2:3300",
		" 10.0.0.1 ; 10.0.0.2\n":                               "10.0.0.1,10.0.0.2",
		"mon-a.example.org, mon-b.example.org:6789":            "mon-a.example.org,mon-b.example.org:6789",
		"v2:10.0.0.1:3300/0":                                   "v2:10.0.0.1:3300/0",
		"fe80=[fd00::1]":                                       "[fd00::1]",
		"rook-ceph-mon-a.rook-ceph.svc.cluster.local:3300,,10.0.0.9,": "rook-ceph-mon-a.rook-ceph.svc.cluster.local:3300," +
			"10.0.0.9",
	} {
		got, err := ceph.ParseMonEndpoints("field", value)
		require.NoError(t, err, value)
		require.Equal(t, want, got)
	}
	for _, value := range []string{
		"", " , ", "a=", "=10.0.0.1", "a=b=10.0.0.1", "10.0.0", "10.0.0.256", "10.0.0.1:0", "10.0.0.1:65536",
		"10.0.0.1:+80", "10.0.0.1:",
		"10.0.0.1:6789:6789", "fd00::1", "[fd00::1", "fd00::1]", "[10.0.0.1]", "[fd00::1]3300", "[fe80::1%eth0]:3300",
		"[v2:10.0.0.1:3300/0", "[v2:10.0.0.1:3300/0,]",
		"[v2:10.0.0.1:3300,10.0.0.1:6789]", "v3:10.0.0.1", "v1:v2:10.0.0.1", "v2:mon.example.org", "10.0.0.1:3300/x",
		"a=10.0.0.1 --no-mon-config=1", "-h", "mon_a\x00",
		"-a=10.0.0.1", "a/b=10.0.0.1", "http://10.0.0.1", strings.Repeat("10.0.0.1,", 65),
	} {
		_, err := ceph.ParseMonEndpoints("spec.ceph.connection.monEndpoints", value)
		var invalid *ceph.InvalidError
		require.ErrorAs(t, err, &invalid, value)
		require.Contains(t, err.Error(), "spec.ceph.connection.monEndpoints")
		require.Contains(t, err.Error(), "a=10.0.0.1:6789", "it says what is allowed")
	}
}

// TestParseMonEndpointsTakesWhatRookWrites: whatever mons there are, their addresses come out in order.
func TestParseMonEndpointsTakesWhatRookWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.OneOf(
			rapid.StringMatching(`(10|192)\.[1-9][0-9]\.0\.[1-9]:(3300|6789)`),
			rapid.StringMatching(`\[fd00::[1-9a-f]{1,4}\]:(3300|6789)`),
			rapid.StringMatching(`\[v2:10\.0\.0\.[1-9]:3300/0,v1:10\.0\.0\.[1-9]:6789/0\]`),
		)
		addresses := rapid.SliceOfN(address, 1, 9).Draw(t, "addresses")
		named := rapid.Bool().Draw(t, "named")
		var entries []string
		for i, a := range addresses {
			if named {
				a = string(rune('a'+i)) + "=" + a
			}
			entries = append(entries, a)
		}
		got, err := ceph.ParseMonEndpoints("field", strings.Join(entries, ","))
		require.NoError(t, err)
		require.Equal(t, strings.Join(addresses, ","), got)
	})
}

// FuzzParseMonEndpoints: what comes out is safe to hand to librados, and parses to itself.
func FuzzParseMonEndpoints(f *testing.F) {
	for _, seed := range []string{
		"a=10.0.0.1:6789,b=[fd00::1]:3300", "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]",
		"mon.example.org;10.0.0.2", "a=[", "]", "v1:",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		host, err := ceph.ParseMonEndpoints("field", value)
		if err != nil {
			require.Empty(t, host)
			return
		}
		require.NotContains(t, host, "=")
		require.NotRegexp(t, `[^][0-9A-Za-z.,:/-]`, host)
		again, err := ceph.ParseMonEndpoints("field", host)
		require.NoError(t, err)
		require.Equal(t, host, again)
	})
}

func TestParseUser(t *testing.T) {
	for value, want := range map[string]string{
		"client.admin": "admin", "admin": "admin", "client.rook.keeper": "rook.keeper", "lock-keeper_1": "lock-keeper_1",
		"client.osd.reader": "osd.reader", " client.admin\n": "admin",
	} {
		id, err := ceph.ParseUser("field", value)
		require.NoError(t, err, value)
		require.Equal(t, want, id)
	}
	for _, value := range []string{
		"", "client.", "osd.3", "mon.", "mgr.x", "a b", "a\"b", "-h", "a\x00",
		"AQDYTgFrYYR7CxAAJ2nsV7k4eFrG/KKIqoHx9Q==",
	} {
		_, err := ceph.ParseUser("Secret rook-ceph-mon, key ceph-username", value)
		var invalid *ceph.InvalidError
		require.ErrorAs(t, err, &invalid, value)
		require.Contains(t, err.Error(), "ceph-username")
		require.NotContains(t, err.Error(), "AQDYTgFrYYR7", "a key in the wrong place is not told")
	}
}

func FuzzParseUser(f *testing.F) {
	for _, seed := range []string{"client.admin", "admin", "osd.1", "client.", "mon."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		id, err := ceph.ParseUser("field", value)
		if err != nil {
			return
		}
		again, err := ceph.ParseUser("field", "client."+id)
		require.NoError(t, err)
		require.Equal(t, id, again)
		require.NotRegexp(t, `[\s"'\\=]`, id)
	})
}
