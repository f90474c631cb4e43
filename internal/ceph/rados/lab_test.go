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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
)

// leastPrivilege is all that lockkeeper's Ceph user needs. The tests run with it, so that it stays true.
func leastPrivilege(t *testing.T) string {
	caps, err := os.ReadFile("../../../deploy/ceph-caps.txt")
	require.NoError(t, err)
	return strings.TrimSpace(string(caps))
}

// confPath names the ceph.conf of a cluster in which all is well, with the admin's keyring. These tests change nothing
// for good: they make a user of their own and set noout on a host, and take both back.
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
func labConfig(t *testing.T) Config { return labUser(t, "mon", leastPrivilege(t)) }

var users atomic.Int64

// labUser makes a user with these capabilities.
func labUser(t *testing.T, caps ...string) Config {
	name := fmt.Sprintf("client.lockkeeper-test-%d-%d", os.Getpid(), users.Add(1))
	key := command(t, "ceph", append([]string{"auth", "get-or-create-key", name}, caps...)...)
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
	require.NoError(t, reader.Commit(ctx), "which is within the least privilege")
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
	require.Empty(t, tracker.Asks())
}

// TestLabSignOfLife: a round of reports of all OSDs takes no longer than two of the periods in which they report, and
// two ticks.
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
		t.Logf("all %d OSDs live after %s", len(up), time.Since(began).Round(10*time.Millisecond))
		time.Sleep(370 * time.Millisecond) // another phase
	}
}

func TestLabManager(t *testing.T) {
	ctx := context.Background()
	client := connect(t)
	manager, err := client.Manager(ctx)
	require.NoError(t, err)
	require.True(t, manager.Available)
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
		`{"prefix":"osd set","key":"noout"}`, `{"prefix":"osd out","ids":["0"]}`, `{"prefix":"auth ls"}`,
		`{"prefix":"config dump"}`,
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

// TestLabFlush: with the capabilities that are documented for spec.ceph.flushPGStats an OSD reports at once. Without
// those for the monitors the client never learns where the OSDs are: no command arrives, and none hangs for longer than
// it may, nor anything else.
func TestLabFlush(t *testing.T) {
	ctx := context.Background()
	flush := func(t *testing.T, caps ...string) (map[int]ceph.Report, error) {
		config := labUser(t, caps...)
		config.CommandTimeout = 2 * time.Second
		conn, err := Connect(ctx, config)
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		reports, err := ceph.Client{Commander: conn}.FlushPGStats(within, []int{0, 1, 2})
		_, readable := ceph.Client{Commander: conn}.OSDDump(ctx)
		require.NoError(t, readable, "the connection goes on to serve")
		return reports, err
	}
	least := leastPrivilege(t)
	t.Run("allowed", func(t *testing.T) {
		reports, err := flush(t, "mon", least+", "+ceph.FlushMonCaps, "osd", ceph.FlushOSDCaps)
		require.NoError(t, err)
		require.Len(t, reports, 3)
	})
	t.Run("the OSDs refuse", func(t *testing.T) {
		_, err := flush(t, "mon", least+", "+ceph.FlushMonCaps, "osd", "allow rwx")
		require.True(t, ceph.IsDenied(err), "%v", err)
	})
	t.Run("the monitors do not tell where they are", func(t *testing.T) {
		reports, err := flush(t, "mon", least, "osd", ceph.FlushOSDCaps)
		require.Empty(t, reports)
		require.True(t, ceph.IsTimeout(err), "%v", err)
	})
}
