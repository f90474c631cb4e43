//go:build lab

package rados

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
)

// leastPrivilege is all that lockkeeper's Ceph user needs. The tests run with it, so that it stays true.
const leastPrivilege = `allow command "status", allow command "quorum_status", allow command "osd stat", allow command "osd dump",` +
	` allow command "osd crush dump", allow command "osd last-stat-seq", allow command "osd ok-to-stop", allow command "mgr stat",` +
	` allow command "pg stat", allow command "osd set-group" with flags=noout, allow command "osd unset-group" with flags=noout`

// confPath names the ceph.conf of a cluster in which all is well, with the admin's keyring. These tests change nothing for
// good: they make a user of their own and set noout on a host, and take both back.
func confPath(t *testing.T) string {
	path := os.Getenv("LOCKKEEPER_TEST_CEPH_CONF")
	require.NotEmpty(t, path, "set LOCKKEEPER_TEST_CEPH_CONF to the ceph.conf of a test cluster")
	return path
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	output, err := exec.Command(name, append([]string{"-c", confPath(t)}, args...)...).Output()
	require.NoError(t, err, "%s %v", name, args)
	return strings.TrimSpace(string(output))
}

// labConfig makes a user with the least privilege.
func labConfig(t *testing.T) Config {
	name := fmt.Sprintf("client.lockkeeper-test-%d", os.Getpid())
	key := command(t, "ceph", "auth", "get-or-create-key", name, "mon", leastPrivilege)
	t.Cleanup(func() { command(t, "ceph", "auth", "rm", name) })
	monHost, err := ceph.ParseMonEndpoints("mon_host", command(t, "ceph-conf", "--lookup", "mon_host"))
	require.NoError(t, err)
	return Config{MonHost: monHost, User: strings.TrimPrefix(name, "client."), Key: Key(key)}
}

func connect(t *testing.T) ceph.Client {
	conn, err := Connect(context.Background(), labConfig(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return ceph.Client{Commander: conn}
}

func TestLabReading(t *testing.T) {
	ctx := context.Background()
	client := connect(t)
	reader := ceph.NewReader(client)
	first, err := reader.Read(ctx)
	require.NoError(t, err)
	require.Empty(t, first.Unavailable)
	require.NotEmpty(t, first.Map.OSDs)
	require.NotEmpty(t, first.Map.LastInChange)
	require.True(t, first.Quorum.Majority())
	tree := failuredomain.NewTree(first.Crush)
	smallest, err := tree.Smallest(first.Map.Pools)
	require.NoError(t, err)
	for _, o := range first.Map.OSDs {
		require.True(t, tree.Located(o.ID))
		require.NotEmpty(t, tree.Find(o.ID, smallest.Type))
	}
	again, err := reader.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, first.Map.Epoch, again.Map.Epoch)
}

// TestLabHealth: a cluster at rest is proved clean within a few periods of its managers' statistics.
func TestLabHealth(t *testing.T) {
	ctx := context.Background()
	client := connect(t)
	reader := ceph.NewReader(client)
	tracker := pghealth.New(pghealth.Policy{Healthy: regexp.MustCompile(`^active(\+(clean|deep|scrubbing))+$`)})
	require.Eventually(t, func() bool {
		sample := pghealth.Sample{}
		if asks := tracker.Asks(); len(asks) > 0 {
			manager, err := client.Manager(ctx)
			require.NoError(t, err)
			reports, err := client.LastReports(ctx, asks)
			require.NoError(t, err)
			sample.Evidence = &pghealth.Evidence{Manager: manager, Reports: reports}
		}
		var err error
		sample.Reading, err = reader.Read(ctx)
		require.NoError(t, err)
		h := tracker.Observe(sample)
		t.Logf("fresh %v, clean %v: %s", h.Fresh, h.Clean, h.Reason)
		return h.Fresh && h.Clean
	}, 30*time.Second, 200*time.Millisecond)
	require.False(t, tracker.NeedsSeqs())
}

// TestLabSignOfLife: a round of reports of all OSDs takes no longer than two of the periods in which they report, and two ticks.
func TestLabSignOfLife(t *testing.T) {
	ctx := context.Background()
	client := connect(t)
	m, err := client.OSDDump(ctx)
	require.NoError(t, err)
	up := map[int]int64{}
	for _, o := range m.OSDs {
		if o.Up {
			up[o.ID] = o.UpFrom
		}
	}
	for range 5 {
		began := time.Now()
		round := pghealth.NewRound(up, nil)
		require.Eventually(t, func() bool {
			reports, err := client.LastReports(ctx, round.Asks())
			require.NoError(t, err)
			round.Weigh(time.Now(), reports)
			return len(round.Silent()) == 0
		}, 30*time.Second, 100*time.Millisecond)
		t.Logf("all %d OSDs live after %s, period %s", len(up), time.Since(began).Round(10*time.Millisecond), round.Period().Round(10*time.Millisecond))
		time.Sleep(370 * time.Millisecond) // another phase
	}
}

func TestLabManager(t *testing.T) {
	ctx := context.Background()
	client := connect(t)
	manager, err := client.Manager(ctx)
	require.NoError(t, err)
	require.True(t, manager.Available)
	pgs, err := client.PGStat(ctx)
	require.NoError(t, err)
	require.Positive(t, pgs.NumPGs)
	answer, err := client.OKToStop(ctx, []int{0})
	require.NoError(t, err)
	require.True(t, answer.OK, answer.Reason)

	m, err := client.OSDDump(ctx)
	require.NoError(t, err)
	var all []int
	for _, o := range m.OSDs {
		all = append(all, o.ID)
	}
	answer, err = client.OKToStop(ctx, all)
	require.NoError(t, err, "no is an answer")
	require.False(t, answer.OK)
	require.NotEmpty(t, answer.Reason)
	reports, err := client.LastReports(ctx, all)
	require.NoError(t, err)
	for _, o := range m.OSDs {
		require.Equal(t, o.UpFrom, reports[o.ID].UpFrom, "a report belongs to the OSD's present life")
	}
}

func TestLabNoout(t *testing.T) {
	ctx := context.Background()
	client := connect(t)
	crush, err := client.CrushDump(ctx)
	require.NoError(t, err)
	host := failuredomain.NewTree(crush).Find(0, "host")
	require.NotEmpty(t, host)
	noout := func() []string {
		m, err := client.OSDDump(ctx)
		require.NoError(t, err)
		return m.Noout()
	}
	t.Cleanup(func() { client.UnsetNoout(ctx, host) })
	for range 2 {
		require.NoError(t, client.SetNoout(ctx, host))
		require.Contains(t, noout(), host)
	}
	for range 2 {
		require.NoError(t, client.UnsetNoout(ctx, host))
		require.NotContains(t, noout(), host)
	}
	require.Error(t, client.SetNoout(ctx, "no-such-host"))
}

func TestLabRights(t *testing.T) {
	conn := connect(t).Commander
	for _, c := range []string{
		`{"prefix":"osd set","key":"noout"}`, `{"prefix":"osd out","ids":["0"]}`, `{"prefix":"auth ls"}`, `{"prefix":"config dump"}`,
		`{"prefix":"osd set-group","flags":"noin","who":["osd.0"]}`,
	} {
		_, _, err := conn.MonCommand(context.Background(), []byte(c))
		require.ErrorContains(t, err, "ermission denied", c)
	}
	config := labConfig(t)
	wrong := config
	wrong.Key = aKey
	wrong.ConnectTimeout = 2 * time.Second
	_, err := Connect(context.Background(), wrong)
	require.Error(t, err)
	require.NotContains(t, err.Error(), aKey)
	wrong = config
	wrong.User = "nobody-knows-me"
	_, err = Connect(context.Background(), wrong)
	require.Error(t, err)
}

func TestLabManyAtOnce(t *testing.T) {
	client := connect(t)
	var all sync.WaitGroup
	errs := make(chan error, 64*50)
	for range 64 {
		all.Go(func() {
			for range 50 {
				_, err := client.OSDEpoch(context.Background())
				errs <- err
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

func TestLabCloseUnderCommands(t *testing.T) {
	conn, err := Connect(context.Background(), labConfig(t))
	require.NoError(t, err)
	client := ceph.Client{Commander: conn}
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for {
				if _, err := client.OSDDump(context.Background()); err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					return
				}
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	conn.Close()
	conn.Close()
	all.Wait()
}
