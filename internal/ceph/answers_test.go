package ceph_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// one is a client whose cluster knows one command.
func one(prefix string, r reply) ceph.Client {
	return ceph.Client{Commander: &monitors{answers: map[string]reply{prefix: r}}}
}

func TestStatus(t *testing.T) {
	s, err := one("status", reply{output: answer(t, "osd0-down.status")}).Status(context.Background())
	require.NoError(t, err)
	require.Equal(t, "HEALTH_WARN", s.Health.Status)
	require.Equal(t, []string{"a", "b", "c"}, s.QuorumNames)
	require.Equal(t, int64(12), s.ElectionEpoch)
	require.Equal(t, int64(29), s.OSDMap.Epoch)
	require.True(t, s.MgrMap.Available)
	require.Equal(t, ceph.PGSummary{NumPGs: 32, States: []ceph.PGStateCount{
		{State: "active+clean", Count: 18}, {State: "active+undersized", Count: 14},
	}}, s.PGMap)

	s, err = one("status", reply{output: answer(t, "mgr-down.status")}).Status(context.Background())
	require.NoError(t, err)
	require.False(t, s.MgrMap.Available)
}

func TestQuorumStatus(t *testing.T) {
	q, err := one("quorum_status", reply{output: answer(t, "clean.quorum_status")}).QuorumStatus(context.Background())
	require.NoError(t, err)
	require.Equal(t, int64(12), q.ElectionEpoch)
	require.Len(t, q.MonMap.Mons, 3)
	for i, name := range []string{"a", "b", "c"} {
		require.Equal(t, name, q.MonMap.Mons[i].Name)
	}
	require.True(t, q.Majority())
	q.QuorumNames = q.QuorumNames[:2]
	require.True(t, q.Majority())
	q.QuorumNames = q.QuorumNames[:1]
	require.False(t, q.Majority())
	q.MonMap.Mons = nil
	q.QuorumNames = nil
	require.False(t, q.Majority())
}

func TestOSDDump(t *testing.T) {
	m, err := one("osd dump", reply{output: answer(t, "osd0-down.osd-dump")}).OSDDump(context.Background())
	require.NoError(t, err)
	require.Equal(t, int64(29), m.Epoch)
	require.Equal(t, int64(28), m.ChangeEpoch(), "osd.0 went down at 28")
	require.Equal(t, []ceph.Pool{{ID: 1, Name: "lab", Size: 3, MinSize: 2, Rule: 1, PGNum: 32}}, m.Pools)
	require.Len(t, m.OSDs, 6)
	require.Equal(t, ceph.OSD{ID: 0, In: true, Weight: 1, UpFrom: 26, DownAt: 28, State: []string{"exists"}}, m.OSDs[0])
	require.Equal(t, ceph.OSD{ID: 5, Up: true, In: true, Weight: 1, UpFrom: 13, State: []string{"exists", "up"}},
		m.OSDs[5])
	require.NotEmpty(t, m.LastInChange)
	require.Empty(t, m.Noout())

	m.CrushNodeFlags = map[string][]string{"node-b": {"noout"}, "node-a": {"noin", "noout"}, "node-c": {"noin"}}
	require.Equal(t, []string{"node-a", "node-b"}, m.Noout())
}

func TestServing(t *testing.T) {
	for name, c := range map[string]struct {
		osd  ceph.OSD
		want bool
	}{
		"up":                      {ceph.OSD{Up: true, UpFrom: 5, State: []string{"exists", "up"}}, true},
		"down":                    {ceph.OSD{UpFrom: 5, DownAt: 9, State: []string{"exists"}}, true},
		"down and out":            {ceph.OSD{UpFrom: 5, DownAt: 9, State: []string{"autoout", "exists"}}, true},
		"new, never up":           {ceph.OSD{State: []string{"exists", "new"}}, false},
		"new and up, not in":      {ceph.OSD{Up: true, UpFrom: 5, State: []string{"exists", "up", "new"}}, true},
		"destroyed":               {ceph.OSD{UpFrom: 5, DownAt: 9, State: []string{"destroyed", "exists"}}, false},
		"a hole in the numbering": {ceph.OSD{}, false},
	} {
		require.Equal(t, c.want, c.osd.Serving(), name)
	}
}

func TestManager(t *testing.T) {
	m, err := one("mgr stat", reply{output: answer(t, "clean.mgr-stat")}).Manager(context.Background())
	require.NoError(t, err)
	require.Equal(t, ceph.Manager{Epoch: 4, Available: true, Name: "x"}, m)
}

func TestLastReports(t *testing.T) {
	ctx := context.Background()
	// 26 << 32 + 2: the second report since the OSD went up at epoch 26.
	reports, err := one("osd last-stat-seq", reply{output: "111669149698\n"}).LastReports(ctx, []int{0, 1, 2})
	require.NoError(t, err)
	r := ceph.Report{UpFrom: 26, Count: 2}
	require.Equal(t, map[int]ceph.Report{0: r, 1: r, 2: r}, reports)

	many := make([]int, 1000)
	for i := range many {
		many[i] = i
	}
	reports, err = one("osd last-stat-seq", reply{output: "0"}).LastReports(ctx, many)
	require.NoError(t, err)
	require.Len(t, reports, 1000)

	for name, r := range map[string]reply{
		"no answer":    {code: -int(syscall.ETIMEDOUT)},
		"empty":        {output: ""},
		"not a number": {output: "{}"},
	} {
		_, err := one("osd last-stat-seq", r).LastReports(ctx, many)
		require.Error(t, err, name)
		require.Equal(t, name == "no answer", ceph.IsTimeout(err), name)
	}
}

func TestOKToStop(t *testing.T) {
	for name, c := range map[string]struct {
		osds   []int
		reply  reply
		ok     bool
		kind   storage.Refusal
		reason string
		fails  bool
		toler  []int
	}{
		"no, of a pool that counts": {
			osds:   []int{0, 1},
			reply:  reply{output: answer(t, "clean.osd-ok-to-stop-0-1"), code: -int(syscall.EBUSY)},
			toler:  []int{2, 11},
			kind:   storage.RefusalHarm,
			reason: "7 PGs would become unavailable, 1.8 among them",
		},
		"tolerated": {
			osds:  []int{0, 1},
			reply: reply{output: answer(t, "clean.osd-ok-to-stop-0-1"), code: -int(syscall.EBUSY)}, toler: []int{1}, ok: true,
		},
		"tolerated, with code 0": {
			osds:  []int{1},
			reply: reply{output: `{"ok_to_stop":false,"num_not_ok_pgs":1,"bad_already_inactive":["3.a"],"bad_become_inactive":["3.a"]}`}, toler: []int{3}, ok: true,
		},
		"tolerated and not": {
			osds:  []int{1},
			reply: reply{output: `{"ok_to_stop":false,"num_not_ok_pgs":2,"bad_become_inactive":["3.a","31.a"]}`},
			toler: []int{3}, kind: storage.RefusalHarm, reason: "1 PGs would become unavailable, 31.a among them",
		},
		"tolerated, but not all": {
			osds:  []int{1},
			reply: reply{output: `{"ok_to_stop":false,"num_not_ok_pgs":3,"bad_become_inactive":["3.a"]}`}, toler: []int{3},
			kind: storage.RefusalHarm, reason: "2 PGs would become unavailable",
		},
		"a no that names no reason": {
			osds: []int{1}, reply: reply{output: `{"ok_to_stop":false}`}, toler: []int{3},
			kind: storage.RefusalHarm, reason: "0 PGs would become unavailable",
		},
		"yes": {osds: []int{0}, reply: reply{output: answer(t, "clean.osd-ok-to-stop-0")}, ok: true},
		"no": {
			osds: []int{0, 1},
			reply: reply{
				output: answer(t, "clean.osd-ok-to-stop-0-1"), status: "unsafe to stop osd(s) at this time",
				code: -int(syscall.EBUSY),
			},
			kind:   storage.RefusalHarm,
			reason: "7 PGs would become unavailable, 1.8 among them",
		},
		"no, without a report": {
			osds:   []int{1},
			reply:  reply{status: "unsafe to stop osd(s) at this time", code: -int(syscall.EBUSY)},
			kind:   storage.RefusalHarm,
			reason: "ceph osd ok-to-stop: unsafe to stop osd(s) at this time (device or resource busy)",
		},
		"not known yet": {
			osds:  []int{1},
			reply: reply{status: "3 pgs have unknown state; cannot draw any conclusions", code: -int(syscall.EAGAIN)},
			kind:  storage.RefusalUnknown,
			reason: "ceph osd ok-to-stop: 3 pgs have unknown state; cannot draw any conclusions (resource temporarily " +
				"unavailable)",
		},
		"no with code 0": {
			osds:  []int{1},
			reply: reply{output: `{"ok_to_stop":false,"osds":[1],"num_not_ok_pgs":3}`}, kind: storage.RefusalHarm,
			reason: "3 PGs would become unavailable",
		},
		"unavailable already, and more": {
			osds:  []int{1},
			reply: reply{output: `{"ok_to_stop":false,"num_not_ok_pgs":2,"bad_already_inactive":["1.2"],"bad_become_inactive":["1.3"]}`}, kind: storage.RefusalHarm, reason: "1 PGs are unavailable already, 1.2 among them",
		},
		"unavailable already, and fewer": {
			osds:  []int{1},
			reply: reply{output: `{"ok_to_stop":false,"num_not_ok_pgs":2,"bad_already_inactive":["3.2"],"bad_become_inactive":["1.3"]}`}, toler: []int{3}, kind: storage.RefusalHarm, reason: "1 PGs would become unavailable, 1.3 among them",
		},
		"unavailable already": {
			osds:  []int{1},
			reply: reply{output: `{"ok_to_stop":false,"osds":[1],"bad_already_inactive":["1.2"]}`}, kind: storage.RefusalAlready,
			reason: "1 PGs are unavailable already, 1.2 among them",
		},
		"a yes about other OSDs": {
			osds: []int{0, 1}, reply: reply{output: answer(t, "clean.osd-ok-to-stop-0")},
			fails: true,
		},
		"nobody answers": {
			osds: []int{0}, reply: reply{status: "timed out", code: -int(syscall.ETIMEDOUT)},
			fails: true,
		},
		"not allowed to ask": {
			osds: []int{0}, reply: reply{status: "access denied", code: -int(syscall.EACCES)},
			fails: true,
		},
		"an answer without a form": {osds: []int{0}, reply: reply{output: "ok"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := one("osd ok-to-stop", c.reply).OKToStop(context.Background(), c.osds, c.toler...)
			if c.fails {
				require.Error(t, err)
				require.False(t, got.OK)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.ok, got.OK)
			require.Equal(t, c.reason, got.Reason)
			require.Equal(t, c.kind, got.Refusal)
		})
	}
}

func TestCommandError(t *testing.T) {
	for code, is := range map[syscall.Errno]func(error) bool{
		syscall.ETIMEDOUT: ceph.IsTimeout, syscall.EBUSY: ceph.IsBusy, syscall.EAGAIN: ceph.IsAgain,
		syscall.EACCES: ceph.IsDenied,
	} {
		_, err := one("osd dump", reply{code: -int(code)}).OSDDump(context.Background())
		var failed *ceph.CommandError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "osd dump", failed.Command)
		require.Equal(t, -int(code), failed.Code)
		require.True(t, is(err))
		require.Contains(t, err.Error(), "osd dump")
		for other, isOther := range map[syscall.Errno]func(error) bool{
			syscall.ETIMEDOUT: ceph.IsTimeout, syscall.EBUSY: ceph.IsBusy, syscall.EAGAIN: ceph.IsAgain,
			syscall.EACCES: ceph.IsDenied,
		} {
			require.Equal(t, other == code, isOther(err))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := one("osd dump", reply{}).OSDDump(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, ceph.IsTimeout(err))
}

func TestSafeToDestroy(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		ok     bool
		reason string
	}{
		"safe": {`{"safe_to_destroy":[3],"active":[],"missing_stats":[],"stored_pgs":[]}`, true, ""},
		"it serves": {
			`{"safe_to_destroy":[],"active":[3],"missing_stats":[],"stored_pgs":[]}`, false,
			"osd.3 serves placement groups",
		},
		"it is down and stores": {
			`{"safe_to_destroy":[],"active":[],"missing_stats":[],"stored_pgs":[3]}`, false,
			"osd.3 stores placement groups",
		},
		"nobody knows": {
			`{"safe_to_destroy":[],"active":[],"missing_stats":[3],"stored_pgs":[]}`,
			false, "is not known",
		},
		"the answer is about others": {
			`{"safe_to_destroy":[4],"active":[],"missing_stats":[],"stored_pgs":[]}`,
			false, "is not known",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answers, err := one("osd safe-to-destroy", reply{output: c.output}).SafeToDestroy(context.Background(), []int{3})
			require.NoError(t, err)
			require.Equal(t, c.ok, answers[3].OK)
			require.Contains(t, answers[3].Reason, c.reason)
		})
	}
	_, err := one("osd safe-to-destroy", reply{output: "no JSON"}).SafeToDestroy(context.Background(), []int{3})
	require.Error(t, err)
	several, err := one("osd safe-to-destroy",
		reply{output: `{"safe_to_destroy":[3,5],"active":[4],"missing_stats":[],"stored_pgs":[]}`}).SafeToDestroy(
		context.Background(), []int{3, 4, 5})
	require.NoError(t, err)
	require.Equal(t, map[int]storage.Answer{3: {OK: true}, 4: {Reason: "osd.4 serves placement groups"}, 5: {OK: true}},
		several)
}

func TestOSDMetadata(t *testing.T) {
	all, err := one("osd metadata",
		reply{output: `[{"id":3,"hostname":"node-a","pod_name":"osd-x","pod_namespace":"ceph","osd_data":"/dev/lab/osd-0","osd_objectstore":"bluestore"},{"id":4}]`}).OSDMetadata(context.Background())
	require.NoError(t, err)
	require.Equal(t, []ceph.OSDMetadata{{ID: 3, Hostname: "node-a", PodName: "osd-x", Data: "/dev/lab/osd-0"}, {ID: 4}},
		all)
}
