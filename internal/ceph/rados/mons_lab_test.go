//go:build lab

package rados

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// monConfig makes a user with what lockkeeper needs where it looks after the mons.
func monConfig(t *testing.T) Config {
	more, err := os.ReadFile("../../../deploy/ceph-caps-cephmon.txt")
	require.NoError(t, err)
	return labUser(t, "mon", leastPrivilege(t)+", "+strings.TrimSpace(string(more)))
}

// TestLabMons needs a cluster of three mons in which all is well, and changes nothing but the key of the proof.
func TestLabMons(t *testing.T) {
	conn, err := Connect(t.Context(), monConfig(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c := ceph.Client{Commander: conn}
	for range 3 { // the same value again is a commit again
		q, err := c.ProvedQuorum(t.Context())
		require.NoError(t, err)
		require.Len(t, q.QuorumNames, 3)
		assert.Contains(t, q.QuorumNames, "a")
		assert.Equal(t, command(t, "ceph", "fsid"), q.MonMap.FSID)
	}
	for _, ask := range []func(context.Context, string) (storage.Answer, error){c.OKToStopMon, c.OKToRemoveMon} {
		a, err := ask(t.Context(), "a")
		require.NoError(t, err)
		assert.True(t, a.OK, a.Reason)
		a, err = ask(t.Context(), "zz")
		require.NoError(t, err)
		assert.False(t, a.OK, "Ceph says yes to a mon that it does not know")
	}
	a, err := c.OKToAddMon(t.Context())
	require.NoError(t, err)
	assert.True(t, a.OK, a.Reason)
	require.NoError(t, c.RemoveMon(t.Context(), "zz"), "it has left already")

	_, _, err = conn.MonCommand(t.Context(), []byte(`{"prefix":"config-key set","key":"mgr/x","val":"1"}`))
	require.ErrorContains(t, err, "13", "no other key may be written")
	_, _, err = conn.MonCommand(t.Context(), []byte(`{"prefix":"config-key get","key":"lockkeeper/proof"}`))
	require.ErrorContains(t, err, "13", "and none read")
}

// TestLabAHungMon: quorum_status goes on naming a mon that hangs, and the proof does not. LOCKKEEPER_TEST_MON_PID is
// the process of mon c.
func TestLabAHungMon(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("LOCKKEEPER_TEST_MON_PID"))
	require.NoError(t, err, "set LOCKKEEPER_TEST_MON_PID to the process of mon c")
	config := monConfig(t)
	hosts := strings.Split(config.MonHost, ",")
	require.Len(t, hosts, 3)
	// Not to be left without an answer while the connection turns to another mon.
	config.MonHost = strings.Join(hosts[:2], ",")
	conn, err := Connect(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c := ceph.Client{Commander: conn}
	_, err = c.ProvedQuorum(t.Context())
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { assert.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) })
	q, err := c.QuorumStatus(t.Context())
	require.NoError(t, err)
	require.Len(t, q.QuorumNames, 3, "the lie that the proof is for")
	before := time.Now()
	for q, err = c.ProvedQuorum(t.Context()); err != nil; q, err = c.ProvedQuorum(t.Context()) {
		require.True(t, ceph.IsTimeout(err), "%v", err) // nobody knows, and asks again
		require.Less(t, time.Since(before), time.Minute)
	}
	t.Logf("proved after %s: %v", time.Since(before).Round(100*time.Millisecond), q.QuorumNames)
	require.Len(t, q.QuorumNames, 2)
	a, err := c.OKToStopMon(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, a.OK)
	a, err = c.OKToAddMon(t.Context())
	require.NoError(t, err)
	require.False(t, a.OK, "a newcomer beside a dead mon")
	a, err = c.OKToRemoveMon(t.Context(), "c")
	require.NoError(t, err)
	require.True(t, a.OK, a.Reason)
}
