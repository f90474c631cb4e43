package ceph_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// mons is a client of a cluster with the mons a, b and c, whose answers are those of Ceph 16 and 20.
func mons(t *testing.T, answers map[string]reply) ceph.Client {
	t.Helper()
	answers["quorum_status"] = reply{output: answer(t, "clean.quorum_status")}
	return ceph.Client{Commander: &monitors{answers: answers}}
}

const busy = -int(syscall.EBUSY)

func TestOKForMons(t *testing.T) {
	c := mons(t, map[string]reply{
		"mon ok-to-stop": {code: busy, status: "not enough monitors would be available (b) after stopping mons [a]"},
		"mon ok-to-rm":   {code: busy, status: "removing mon.a would break quorum"},
		"mon ok-to-add-offline": {
			code: busy, status: "adding a monitor may break quorum (until that monitor starts)",
		},
	})
	a, err := c.OKToStopMon(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, storage.Answer{
		Reason: "not enough monitors would be available (b) after stopping mons [a]", Refusal: storage.RefusalHarm,
	}, a)
	a, err = c.OKToRemoveMon(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "removing mon.a would break quorum", a.Reason)
	a, err = c.OKToAddMon(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "adding a monitor may break quorum (until that monitor starts)", a.Reason)

	c = mons(t, map[string]reply{
		"mon ok-to-stop": {status: "quorum should be preserved (b,c) after stopping [a]"},
		"mon ok-to-rm":   {status: "safe to remove mon.a"}, "mon ok-to-add-offline": {},
	})
	for _, ask := range []func() (storage.Answer, error){
		func() (storage.Answer, error) { return c.OKToStopMon(t.Context(), "a") },
		func() (storage.Answer, error) { return c.OKToRemoveMon(t.Context(), "a") },
		func() (storage.Answer, error) { return c.OKToAddMon(t.Context()) },
	} {
		a, err := ask()
		require.NoError(t, err)
		assert.Equal(t, storage.Answer{OK: true}, a)
	}
}

// Ceph says yes to a mon that it does not know.
func TestAnUnknownMonIsNoYes(t *testing.T) {
	c := mons(t, map[string]reply{
		"mon ok-to-rm":   {status: "mon.zz does not exist"},
		"mon ok-to-stop": {status: "quorum should be preserved (a,b,c) after stopping [zz]"},
	})
	for _, ask := range []func() (storage.Answer, error){
		func() (storage.Answer, error) { return c.OKToStopMon(t.Context(), "zz") },
		func() (storage.Answer, error) { return c.OKToRemoveMon(t.Context(), "zz") },
	} {
		a, err := ask()
		require.NoError(t, err)
		assert.Equal(t, storage.Answer{Reason: "mon.zz is not in the monmap", Refusal: storage.RefusalUnknown}, a)
	}
}

// A failed command is no answer.
func TestNoAnswerOfMonsIsAnError(t *testing.T) {
	late := reply{code: -int(syscall.ETIMEDOUT)}
	c := mons(t, map[string]reply{"mon ok-to-rm": late, "config-key set": late, "mon rm": late})
	_, err := c.OKToRemoveMon(t.Context(), "a")
	require.True(t, ceph.IsTimeout(err))
	_, err = c.ProvedQuorum(t.Context())
	require.True(t, ceph.IsTimeout(err), "what quorum_status says is no proof")
	require.True(t, ceph.IsTimeout(c.RemoveMon(t.Context(), "a")))
	require.Error(t, c.RemoveMon(t.Context(), ""))
	c = mons(t, map[string]reply{"config-key set": {code: -int(syscall.EACCES)}})
	_, err = c.ProvedQuorum(t.Context())
	require.True(t, ceph.IsDenied(err))
}

func TestProvedQuorum(t *testing.T) {
	q, err := mons(t, map[string]reply{"config-key set": {status: "set lockkeeper/proof"}}).ProvedQuorum(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, q.QuorumNames)
}
