package ceph_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
		"features":       {output: sessions(6)},
		"sessions":       named("012345"),
	}}
}

// sessions is the answer of monitors who have sessions with so many OSDs, half of them of an older release.
func sessions(osds int) string {
	return fmt.Sprintf(`{"mon": [{"num": 3}], "osd": [{"num": %d}, {"num": %d}], "client": [{"num": 9}]}`, osds/2, osds-osds/2)
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
	require.Equal(t, []string{
		"status", "osd stat", "osd dump", "osd crush dump", "osd stat", "features", "sessions", "sessions", "sessions",
		"quorum_status",
	}, mons.asked(), "for once each monitor is asked for the names of those who have a session")

	again, err := reader.Read(ctx)
	require.NoError(t, err)
	require.Same(t, first.Map, again.Map)
	require.Equal(t, []string{"status", "osd stat", "features", "quorum_status"}, mons.asked(),
		"an idle cluster costs four small commands")

	mons.change("status", `"epoch": 27`, `"epoch": 28`)
	mons.change("osd dump", `"epoch": 27`, `"epoch": 28`)
	mons.change("osd stat", "27", "28")
	moved, err := reader.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(28), moved.Map.Epoch)
	require.Same(t, first.Crush, moved.Crush, "the CRUSH map did not change")
	require.Equal(t, []string{"status", "osd stat", "osd dump", "features", "quorum_status"}, mons.asked())

	// The OSD map moves on between status and osd stat: the newer one counts.
	mons.change("osd dump", `"epoch": 28`, `"epoch": 29`)
	mons.change("osd dump", `"crush_version": 9`, `"crush_version": 10`)
	mons.change("osd stat", "28", "29")
	moved, err = reader.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(29), moved.Map.Epoch)
	require.NotSame(t, first.Crush, moved.Crush)
	require.Equal(t, []string{"status", "osd stat", "osd dump", "osd crush dump", "osd stat", "features", "quorum_status"},
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
			require.Equal(t, c.asks, asked[1:len(asked)-5])
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

// TestReadMissesSessions: an OSD that is up and has had no session with a monitor for longer than it takes to turn to
// another one has lost the monitors. Whoever is about to come up has a session, too, and hides that from who counts.
func TestReadMissesSessions(t *testing.T) {
	type step struct {
		after    time.Duration
		sessions int
		by       string // name, of osd.0 to osd.5; "-": nobody may ask
		want     ceph.Disconnected
	}
	for name, c := range map[string]struct {
		down  bool // osd.5 is
		steps []step
	}{
		"they turn to another monitor": {false, []step{
			{0, 6, "012345", ceph.Disconnected{}},
			{time.Second, 4, "0123", ceph.Disconnected{}},
			{5 * time.Second, 5, "01235", ceph.Disconnected{}},
			{2 * time.Second, 6, "012345", ceph.Disconnected{}},
		}},
		"two do not": {false, []step{
			{0, 6, "012345", ceph.Disconnected{}},
			{time.Second, 4, "0123", ceph.Disconnected{}},
			{5 * time.Second, 4, "0123", ceph.Disconnected{}},
			{time.Second, 4, "0123", ceph.Disconnected{OSDs: []int{4, 5}}},
			{3 * time.Second, 5, "01235", ceph.Disconnected{OSDs: []int{4}}},
			{3 * time.Second, 6, "012345", ceph.Disconnected{}},
		}},
		"one did not while nobody asked": {false, []step{
			{0, 6, "012345", ceph.Disconnected{}},
			{7 * time.Second, 5, "01234", ceph.Disconnected{Presumed: []int{5}}},
			{3 * time.Second, 4, "0124", ceph.Disconnected{Presumed: []int{5}}},
			{3 * time.Second, 4, "0124", ceph.Disconnected{OSDs: []int{5}}},
			{3 * time.Second, 4, "0124", ceph.Disconnected{OSDs: []int{3, 5}}},
		}},
		"they only turned to another one while nobody asked": {false, []step{
			{0, 6, "012345", ceph.Disconnected{}},
			{7 * time.Second, 4, "0123", ceph.Disconnected{Presumed: []int{4, 5}}},
			{3 * time.Second, 6, "012345", ceph.Disconnected{}},
		}},
		"one hides behind one that comes up": {true, []step{
			{0, 5, "01234", ceph.Disconnected{}},
			{7 * time.Minute, 5, "01234", ceph.Disconnected{}},
			{time.Second, 5, "01235", ceph.Disconnected{}},
			{3 * time.Second, 5, "01235", ceph.Disconnected{}},
			{6 * time.Second, 5, "01235", ceph.Disconnected{OSDs: []int{4}}},
		}},
		"one hides behind a session that another one left behind": {false, []step{
			{0, 7, "0012345", ceph.Disconnected{}},
			{time.Second, 6, "001235", ceph.Disconnected{}},
			{6 * time.Second, 6, "001235", ceph.Disconnected{OSDs: []int{4}}},
			{5 * time.Minute, 6, "001235", ceph.Disconnected{OSDs: []int{4}}},
			{time.Minute, 5, "01235", ceph.Disconnected{OSDs: []int{4}}},
		}},
		"at first one may have two": {false, []step{
			{0, 6, "001235", ceph.Disconnected{Presumed: []int{4}}},
			{6 * time.Second, 6, "001235", ceph.Disconnected{OSDs: []int{4}}},
		}},
		"later their number is enough": {false, []step{
			{0, 6, "012345", ceph.Disconnected{}},
			{6 * time.Minute, 6, "", ceph.Disconnected{}},
			{time.Minute, 6, "", ceph.Disconnected{}},
		}},
		"nobody may ask": {false, []step{
			{0, -1, "", ceph.Disconnected{Uncounted: true}},
			{time.Minute, -1, "", ceph.Disconnected{Uncounted: true}},
		}},
		"nobody may ask who": {false, []step{
			{0, 6, "-", ceph.Disconnected{}},
			{time.Second, 4, "-", ceph.Disconnected{}},
			{6 * time.Second, 4, "-", ceph.Disconnected{Unnamed: 2, Why: "ceph sessions: access denied (permission denied)"}},
			{time.Second, 6, "-", ceph.Disconnected{}},
		}},
		"nobody may ask who, nor did": {false, []step{
			{0, 4, "-", ceph.Disconnected{Unnamed: 2, Unsure: true, Why: "ceph sessions: access denied (permission denied)"}},
			{6 * time.Second, 4, "-", ceph.Disconnected{Unnamed: 2, Why: "ceph sessions: access denied (permission denied)"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mons := healthy(t)
				if c.down {
					dump := mons.answers["osd dump"].output
					last := strings.LastIndex(dump, `"up": 1`)
					mons.answers["osd dump"] = reply{output: dump[:last] + `"up": 0` + dump[last+len(`"up": 1`):]}
				}
				reader := ceph.NewReader(ceph.Client{Commander: mons})
				for _, step := range c.steps {
					time.Sleep(step.after)
					mons.answers["features"] = reply{output: sessions(step.sessions)}
					if step.sessions < 0 {
						mons.answers["features"] = reply{status: "access denied", code: -int(syscall.EACCES)}
					}
					mons.answers["sessions"] = named(step.by)
					r, err := reader.Read(t.Context())
					require.NoError(t, err)
					require.Empty(t, r.Unavailable)
					if step.want.Why != "" {
						require.Contains(t, r.Disconnected.Why, step.want.Why)
						r.Disconnected.Why = step.want.Why
					}
					require.Equal(t, step.want, r.Disconnected, "%+v", step)
				}
			})
		})
	}
}

// named are the sessions of a monitor, by the digits of OSDs.
func named(osds string) reply {
	if osds == "-" {
		return reply{status: "access denied", code: -int(syscall.EACCES)}
	}
	all := []string{}
	for _, id := range osds {
		all = append(all, fmt.Sprintf(`{"entity_name": "osd.%c", "authenticated": true, "open": true}`, id))
	}
	return reply{output: "[" + strings.Join(all, ",") + "]"}
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
