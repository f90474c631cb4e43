package ceph_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestEveryRelease: what the adapter understands of the answers of real clusters is the same whichever release gave
// them. The clusters have three zones of two nodes with an OSD each, and a pool with a copy in every zone;
// hack/record-answers.sh asked them.
func TestEveryRelease(t *testing.T) {
	for release, poolOfTheManager := range map[string]bool{"16": false, "18": false, "20": true} {
		t.Run(release, func(t *testing.T) {
			pgs := 32
			if poolOfTheManager {
				pgs++
			}
			for situation, down := range map[string]bool{"clean": false, "osd0-down": true} {
				t.Run(situation, func(t *testing.T) {
					r := recorded{t, release, situation, pgs}
					r.status(down)
					r.quorum()
					if situation == "clean" {
						r.sessions()
					}
					r.osdMap(down)
					r.crush()
					r.questions(down)
					r.metadata()
					r.monVersions()
				})
			}
		})
	}
}

// recorded are the answers of one release in one situation.
type recorded struct {
	*testing.T
	release, situation string
	pgs                int
}

// client is of a cluster that was asked that command.
func (r recorded) client(command ...string) ceph.Client {
	name := r.situation + "." + strings.Join(strings.Fields(strings.Join(command, " ")), "-")
	dir := filepath.Join("testdata", "releases", r.release)
	output, err := os.ReadFile(filepath.Join(dir, name+".json"))
	require.NoError(r, err)
	return one(command[0], reply{output: string(output), code: -exitCode(r, dir, name)})
}

func exitCode(t testing.TB, dir, command string) int {
	f, err := os.Open(filepath.Join(dir, "exit-codes"))
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var code int
		if name, rest, _ := strings.Cut(lines.Text(), " "); name == command {
			_, err := fmt.Sscan(rest, &code)
			require.NoError(t, err)
			return code
		}
	}
	return 0
}

// metadata of an OSD that is down stays what it was when it started.
func (r recorded) metadata() {
	all, err := r.client("osd metadata").OSDMetadata(context.Background())
	require.NoError(r, err)
	require.Len(r, all, 6)
	for i, o := range all {
		require.Equal(r, i, o.ID)
		require.Regexp(r, "^node-[a-f]$", o.Hostname)
		require.Regexp(r, `^`+r.release+`\.2\.[0-9]+$`, o.Version)
		require.Equal(r, fmt.Sprintf("/var/lib/ceph/osd/ceph-%d", o.ID), o.Data)
	}
}

func (r recorded) monVersions() {
	all, err := r.client("mon metadata").MonVersions(context.Background())
	require.NoError(r, err)
	require.Len(r, all, 3)
	for _, version := range all {
		require.Regexp(r, `^`+r.release+`\.2\.[0-9]+$`, version)
	}
}

func (r recorded) status(down bool) {
	ctx := context.Background()
	s, err := r.client("status").Status(ctx)
	require.NoError(r, err)
	require.NotEmpty(r, s.FSID)
	require.Equal(r, []string{"a", "b", "c"}, s.QuorumNames)
	require.Positive(r, s.ElectionEpoch)
	require.Positive(r, s.OSDMap.Epoch)
	require.True(r, s.MgrMap.Available)
	require.Equal(r, r.pgs, s.PGMap.NumPGs)
	states := map[string]int{}
	for _, s := range s.PGMap.States {
		states[s.State] = s.Count
	}
	if down {
		require.Equal(r, r.pgs, states["active+clean"]+states["active+undersized"]+states["active+undersized+degraded"], "%v",
			states)
		require.Less(r, states["active+clean"], r.pgs)
	} else {
		require.Equal(r, map[string]int{"active+clean": r.pgs}, states)
	}
	m, err := r.client("mgr stat").Manager(ctx)
	require.NoError(r, err)
	require.True(r, m.Available)
	require.Equal(r, "a", m.Name)
}

func (r recorded) sessions() {
	n, err := r.client("features").OSDSessions(context.Background())
	require.NoError(r, err)
	require.Equal(r, 6, n)

	mons := each{}
	for _, name := range []string{"a", "b", "c"} {
		answer, err := os.ReadFile(filepath.Join("testdata", "releases", r.release,
			r.situation+".tell-mon."+name+"-sessions.json"))
		require.NoError(r, err)
		mons[name] = reply{output: string(answer)}
	}
	sessions, err := ceph.Client{Commander: mons}.SessionsOf(context.Background(), []string{"a", "b", "c"})
	require.NoError(r, err)
	require.Len(r, sessions, 6)
	m, err := r.client("osd dump").OSDDump(context.Background())
	require.NoError(r, err)
	for i, s := range sessions {
		require.Equal(r, i, s.OSD)
		require.True(r, s.Addrs.Same(m.OSDs[i].Addrs), "the session of the process that is in the map")
	}
}

func (r recorded) quorum() {
	q, err := r.client("quorum_status").QuorumStatus(context.Background())
	require.NoError(r, err)
	require.Len(r, q.MonMap.Mons, 3)
	for i, name := range []string{"a", "b", "c"} {
		require.Equal(r, name, q.MonMap.Mons[i].Name)
		require.Regexp(r, `^\[v[12]:127\.0\.0\.1:\d+(,v[12]:127\.0\.0\.1:\d+)*\]$`, q.MonMap.Mons[i].Address())
	}
	require.Positive(r, q.MonMap.Epoch)
	require.NotEmpty(r, q.MonMap.FSID)
	require.True(r, q.Majority())
}

func (r recorded) osdMap(down bool) {
	m, err := r.client("osd dump").OSDDump(context.Background())
	require.NoError(r, err)
	require.Len(r, m.OSDs, 6)
	for _, osd := range m.OSDs {
		require.Equal(r, down && osd.ID == 0, !bool(osd.Up), "%+v", osd)
		require.True(r, bool(osd.In), "%+v", osd)
		require.True(r, osd.Serving(), "%+v", osd)
		require.Positive(r, osd.UpFrom)
	}
	require.Positive(r, m.CrushVersion)
	require.NotEmpty(r, m.LastInChange)
	require.Contains(r, m.Pools, ceph.Pool{ID: 1, Name: "lab", Size: 3, MinSize: 2, Rule: 1, PGNum: 32})
	if down {
		require.Equal(r, m.OSDs[0].DownAt, m.ChangeEpoch())
		require.Empty(r, m.Noout())
	} else {
		require.Equal(r, []string{"node-b", "node-e"}, m.Noout())
	}
}

func (r recorded) crush() {
	m, err := r.client("osd crush dump").CrushDump(context.Background())
	require.NoError(r, err)
	require.Len(r, m.Devices, 6)
	types := map[int]string{}
	for _, t := range m.Types {
		types[t.ID] = t.Name
	}
	var hosts, zones int
	for _, b := range m.Buckets {
		switch {
		case strings.Contains(b.Name, "~"): // of a device class
		case types[b.TypeID] == "host":
			require.Len(r, b.Items, 1, b.Name)
			hosts++
		case types[b.TypeID] == "zone":
			require.Len(r, b.Items, 2, b.Name)
			zones++
		}
	}
	require.Equal(r, []int{6, 3}, []int{hosts, zones})
	require.Len(r, m.Rules, 2)
	var ops []string
	for _, s := range m.Rules[1].Steps {
		ops = append(ops, s.Op+" "+s.Type)
	}
	require.Equal(r, []string{"take ", "chooseleaf_firstn zone", "emit "}, ops)
}

// questions are about osd.0 and osd.3, of one zone, and osd.1 and osd.2, of the two others.
func (r recorded) questions(down bool) {
	ctx := context.Background()
	for ids, want := range map[string]storage.Answer{
		"0 3":   {OK: true},
		"1":     {OK: !down},
		"0 1 2": {},
	} {
		var osds []int
		for _, id := range strings.Fields(ids) {
			osds = append(osds, int(id[0]-'0'))
		}
		got, err := r.client("osd ok-to-stop", ids).OKToStop(ctx, osds)
		require.NoError(r, err)
		require.Equal(r, want.OK, got.OK, "%s: %+v", ids, got)
		require.False(r, got.Silence)
		if !want.OK {
			require.Contains(r, got.Reason, "PG", "%s: %+v", ids, got)
		}
	}
	destroy, err := r.client("osd safe-to-destroy", "0 1").SafeToDestroy(ctx, []int{0, 1})
	require.NoError(r, err)
	require.False(r, destroy[0].OK)
	require.False(r, destroy[1].OK)
}
