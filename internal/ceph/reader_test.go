package ceph_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// healthy is a cluster in which all is well, at epoch 27.
func healthy(t testing.TB) *monitors {
	return &monitors{answers: map[string]reply{
		"status":         {output: answer(t, "clean.status")},
		"quorum_status":  {output: answer(t, "clean.quorum_status")},
		"osd dump":       {output: answer(t, "clean.osd-dump")},
		"osd crush dump": {output: answer(t, "clean.osd-crush-dump")},
		"osd stat":       {output: `{"epoch":27}`},
	}}
}

const minority = `{"election_epoch":12,"quorum_names":["a"],"monmap":{"mons":[{"name":"a"},{"name":"b"},{"name":"c"}]}}`

var timedOut = reply{status: "timed out", code: -int(syscall.ETIMEDOUT)}

func (m *monitors) change(prefix, from, to string) {
	r := m.answers[prefix]
	r.output = strings.ReplaceAll(r.output, from, to)
	m.answers[prefix] = r
}

// asked lists the prefixes of what was sent since it was last called.
func (m *monitors) asked() []string {
	var prefixes []string
	for _, command := range m.sent {
		prefixes = append(prefixes, strings.Split(command, `"`)[3])
	}
	m.sent = nil
	return prefixes
}

func TestReadFetchesMapsOnlyWhenTheyChanged(t *testing.T) {
	ctx := context.Background()
	mons := healthy(t)
	reader := ceph.NewReader(ceph.Client{Commander: mons})

	first, err := reader.Read(ctx)
	require.NoError(t, err)
	require.Empty(t, first.Unavailable)
	require.Equal(t, int64(27), first.Map.Epoch)
	require.Len(t, first.Crush.Rules, 2)
	require.Equal(t, []string{"status", "osd stat", "osd dump", "osd crush dump", "osd stat", "quorum_status"},
		mons.asked())

	again, err := reader.Read(ctx)
	require.NoError(t, err)
	require.Same(t, first.Map, again.Map)
	require.Equal(t, []string{"status", "osd stat", "quorum_status"}, mons.asked(),
		"an idle cluster costs three small commands")

	mons.change("status", `"epoch": 27`, `"epoch": 28`)
	mons.change("osd dump", `"epoch": 27`, `"epoch": 28`)
	mons.change("osd stat", "27", "28")
	moved, err := reader.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(28), moved.Map.Epoch)
	require.Same(t, first.Crush, moved.Crush, "the CRUSH map did not change")
	require.Equal(t, []string{"status", "osd stat", "osd dump", "quorum_status"}, mons.asked())

	// The OSD map moves on between status and osd stat: the newer one counts.
	mons.change("osd dump", `"epoch": 28`, `"epoch": 29`)
	mons.change("osd dump", `"crush_version": 9`, `"crush_version": 10`)
	mons.change("osd stat", "28", "29")
	moved, err = reader.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(29), moved.Map.Epoch)
	require.NotSame(t, first.Crush, moved.Crush)
	require.Equal(t, []string{"status", "osd stat", "osd dump", "osd crush dump", "osd stat", "quorum_status"},
		mons.asked())
}

// TestMapsBelongTogether: a bucket that is renamed between the two dumps has its flags under a name that the CRUSH map
// does not know.
func TestMapsBelongTogether(t *testing.T) {
	for name, c := range map[string]struct {
		changes int  // while the CRUSH map is being read, before it is given out
		crush   bool // it is the CRUSH map that changes
		asks    []string
		fails   bool
	}{
		"no change": {asks: []string{"osd stat", "osd dump", "osd crush dump", "osd stat"}},
		"another OSD map": {
			changes: 1,
			asks:    []string{"osd stat", "osd dump", "osd crush dump", "osd stat", "osd dump"},
		},
		"another CRUSH map": {
			changes: 1, crush: true,
			asks: []string{"osd stat", "osd dump", "osd crush dump", "osd stat", "osd dump", "osd crush dump", "osd stat"},
		},
		"another one all the time": {changes: 99, crush: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			mons := healthy(t)
			epoch := 27
			mons.before = func(prefix string) {
				if prefix != "osd crush dump" || c.changes == 0 {
					return
				}
				c.changes--
				next := func(prefix, key string, is int) {
					mons.change(prefix, fmt.Sprintf("%s%d", key, is), fmt.Sprintf("%s%d", key, is+1))
				}
				next("osd dump", `"epoch": `, epoch)
				next("osd stat", `"epoch":`, epoch)
				if c.crush {
					next("osd dump", `"crush_version": `, epoch-18)
				}
				epoch++
			}
			reading, err := ceph.NewReader(ceph.Client{Commander: mons}).Read(t.Context())
			require.NoError(t, err)
			if c.fails {
				require.Contains(t, reading.Unavailable, "changes faster than it can be read")
				require.Nil(t, reading.Map)
				return
			}
			require.Empty(t, reading.Unavailable)
			require.Equal(t, int64(epoch), reading.Map.Epoch)
			asked := mons.asked()
			require.Equal(t, c.asks, asked[1:len(asked)-1])
		})
	}
}

// TestReadDoesNotBelieve has the ways in which monitors answer although they should not.
func TestReadDoesNotBelieve(t *testing.T) {
	for name, c := range map[string]struct {
		lie    func(*monitors)
		reason string
	}{
		"a monitor without quorum that says HEALTH_OK": {
			func(m *monitors) { m.answers["status"] = reply{output: answer(t, "no-quorum.status")} },
			"in none",
		},
		"a monitor that has not noticed yet that it lost its quorum": {
			func(m *monitors) { m.answers["osd stat"], m.answers["osd dump"] = timedOut, timedOut },
			"no quorum answers",
		},
		"a quorum that is lost in the middle": {
			func(m *monitors) { m.answers["quorum_status"] = timedOut },
			"no quorum answers",
		},
		"nobody": {
			func(m *monitors) { m.answers["status"] = timedOut },
			"no quorum answers",
		},
		"a minority": {
			func(m *monitors) { m.answers["quorum_status"] = reply{output: minority} },
			"only [a] of 3 monitors",
		},
		"two elections": {
			func(m *monitors) { m.change("quorum_status", `"election_epoch": 12`, `"election_epoch": 14`) },
			"the quorum changed",
		},
		"an older OSD map than status has": {
			func(m *monitors) { m.change("status", `"epoch": 27`, `"epoch": 30`) },
			"monitors disagree",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cached := range []bool{false, true} {
				mons := healthy(t)
				reader := ceph.NewReader(ceph.Client{Commander: mons})
				if cached {
					_, err := reader.Read(context.Background())
					require.NoError(t, err)
				}
				c.lie(mons)
				reading, err := reader.Read(context.Background())
				require.NoError(t, err)
				require.Contains(t, reading.Unavailable, c.reason)
				require.Nil(t, reading.Map, "an unavailable cluster says nothing else")
				require.Empty(t, reading.Status.PGMap.States)

				mons.answers = healthy(t).answers
				reading, err = reader.Read(context.Background())
				require.NoError(t, err)
				require.Empty(t, reading.Unavailable, "it is over when it is over")
			}
		})
	}
}

func TestReadFails(t *testing.T) {
	for name, r := range map[string]reply{
		"denied":   {status: "access denied", code: -int(syscall.EACCES)},
		"nonsense": {output: "<html>"},
	} {
		for _, prefix := range []string{"status", "osd dump", "osd crush dump", "quorum_status"} {
			mons := healthy(t)
			mons.answers[prefix] = r
			reading, err := ceph.NewReader(ceph.Client{Commander: mons}).Read(context.Background())
			require.Error(t, err, name, prefix)
			require.Contains(t, err.Error(), prefix)
			require.Nil(t, reading.Map)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := ceph.NewReader(ceph.Client{Commander: healthy(t)}).Read(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// TestReadAtOnce: the observer and the watcher of a cluster share its reader.
func TestReadAtOnce(t *testing.T) {
	reader := ceph.NewReader(ceph.Client{Commander: healthy(t)})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				reading, err := reader.Read(context.Background())
				assert.NoError(t, err)
				assert.Equal(t, int64(27), reading.Map.Epoch)
				assert.NotNil(t, reading.Crush)
			}
		})
	}
	all.Wait()
}
