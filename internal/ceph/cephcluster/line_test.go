package cephcluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestALineThatIsDeadIsMadeAnew: a connection that librados has given up, without a word, is replaced while the watch
// goes on.
func TestALineThatIsDeadIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &phones{}
		c := New(noPods{}, d)
		ask := func() error {
			client, err := c.Client(t.Context(), storage.ClusterKey{})
			require.NoError(t, err)
			_, err = client.Status(t.Context())
			return err
		}
		c.seen[storage.ClusterKey{}] = seenPolicy{cephPolicy(), time.Now().Add(time.Hour)}
		require.NoError(t, ask())

		d.made[0].dead = true
		began := time.Now()
		for ask() != nil {
			require.Less(t, time.Since(began), 20*time.Second, "the cluster lives, and is not asked")
		}
		require.GreaterOrEqual(t, time.Since(began), redialAfter, "librados is given a chance")
		require.Len(t, d.made, 2)
		require.True(t, d.made[0].closed)
		require.False(t, d.made[1].closed)

		// Without a quorum it is tried ever more seldom, and the old one stays.
		d.made[1].dead, d.away = true, true
		for range 40 {
			require.Error(t, ask()) // for 3 s each
		}
		require.False(t, d.made[1].closed)
		require.LessOrEqual(t, d.dialled, 10)
		d.made[1].dead = false
		require.NoError(t, ask())
		synctest.Wait()
		require.Len(t, d.made, 2)

		// Another cluster at the same addresses is one that nothing is known of.
		first, err := c.StorageCluster(t.Context(), storage.ClusterKey{})
		require.NoError(t, err)
		fsid := "one"
		first.(*cluster).fsid.Store(&fsid)
		d.made[1].dead, d.away, d.fsid = true, false, "another"
		watched := make(chan error, 1)
		go func() {
			var last activities.Watched
			for {
				now, err := first.Watch(t.Context(), activities.Watching{Last: last}, func(activities.Watched) {})
				if last = now; err != nil {
					watched <- err
					return
				}
			}
		}()
		for ask() != nil {
			require.Less(t, time.Since(began), 10*time.Minute)
		}
		second, err := c.StorageCluster(t.Context(), storage.ClusterKey{})
		require.NoError(t, err)
		require.ErrorIs(t, <-watched, errElsewhere)
		require.NotSame(t, first.(*cluster).connected, second.(*cluster).connected)
		c.Close()
		for _, p := range d.made {
			require.True(t, p.closed)
		}
	})
}

// What is asked at the moment at which the line is made anew is asked on the new one.
func TestAQuestionWhileTheLineIsMadeAnew(t *testing.T) {
	l := &line{}
	l.conn = &busyPhone{func() { l.conn = &phone{fsid: "f"} }}
	status, err := ceph.Client{Commander: l}.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, "f", status.FSID)
}

// busyPhone is a connection that is closed before it has an answer.
type busyPhone struct{ closes func() }

func (p *busyPhone) MonCommand(context.Context, []byte) ([]byte, string, error) {
	p.closes()
	return nil, "", errors.New("the connection is closed")
}

func (p *busyPhone) Close() {}

// A refusal is an answer: the mons live.
func TestWhatIsAnAnswer(t *testing.T) {
	for err, want := range map[error]bool{
		nil: true, code(syscall.EACCES): true, code(syscall.EBUSY): true,
		code(syscall.ETIMEDOUT): false, context.DeadlineExceeded: false, context.Canceled: false,
	} {
		require.Equal(t, want, isAnswer(err), err)
	}
}

type code syscall.Errno

func (c code) Error() string  { return syscall.Errno(c).Error() }
func (c code) ErrorCode() int { return -int(c) }

// noPods are the objects of a policy that finds no pods.
type noPods struct{ objects }

func (noPods) StoragePods(context.Context, *v1alpha1.MaintenancePolicy) ([]storageview.Pod, error) {
	return nil, nil
}

// phones dials, and remembers what it made.
type phones struct {
	made    []*phone
	dialled int
	away    bool // no mon lets anybody in
	fsid    string
}

func (d *phones) Dial(context.Context, Address) (Conn, error) {
	d.dialled++
	if d.away {
		time.Sleep(5 * time.Second)
		return nil, &ceph.CommandError{Command: "connect", Code: -int(syscall.ETIMEDOUT), Err: syscall.ETIMEDOUT}
	}
	p := &phone{fsid: d.fsid}
	d.made = append(d.made, p)
	return p, nil
}

// phone is a connection to a cluster whose status is all that it tells.
type phone struct {
	dead, closed bool
	fsid         string
}

func (p *phone) MonCommand(ctx context.Context, _ []byte) ([]byte, string, error) {
	if p.dead {
		select {
		case <-time.After(3 * time.Second):
			return nil, "", code(syscall.ETIMEDOUT)
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
	return fmt.Appendf(nil, `{"fsid": %q}`, p.fsid), "", nil
}

func (p *phone) Close() { p.closed = true }
