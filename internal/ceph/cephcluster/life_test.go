package cephcluster

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestElectionsAreSaidBesideSilence: mons that elect again and again keep every OSD from giving a sign of life that
// counts. Whoever reads that the OSDs are silent reads of the elections, too.
func TestElectionsAreSaidBesideSilence(t *testing.T) {
	mons := &clockMons{epoch: 10, election: 1, upFrom: map[int]int64{0: 3, 1: 3}, counts: map[int]uint32{}}
	q := question{
		cluster: newCluster(&somePods{}, mons, cephPolicy()), began: time.Now(),
		about: func(*failuredomain.Tree, int) bool { return true },
	}
	for range 3 {
		require.NoError(t, q.look(t.Context()))
		mons.digest()
		mons.election++
	}
	_, answered := q.answer(storage.FailureDomain{})
	require.False(t, answered)
	q.began = q.began.Add(-nobodyReports)
	life, answered := q.answer(storage.FailureDomain{})
	require.True(t, answered)
	require.Equal(t, 2, life.Silent)
	require.Equal(t, "no sign of life from osd.0, osd.1, up in the storage cluster's map all the same; meanwhile the "+
		"mons elected a leader, and what an OSD reported before that does not count", life.String())
}

// TestACommitThatIsRefused: rights that a person grants count only for a new connection. The line is made anew, and
// what was proved on the old one stays. A commit that is not answered is no reason for that.
func TestACommitThatIsRefused(t *testing.T) {
	for commit, anew := range map[error]bool{nil: false, syscall.ETIMEDOUT: false, syscall.EACCES: true} {
		synctest.Test(t, func(t *testing.T) {
			granted := &clockMons{epoch: 10, election: 1}
			c := newCluster(&somePods{}, &clockMons{epoch: 10, election: 1, commit: commit}, cephPolicy())
			c.line.redial = func(context.Context) (Conn, error) { return granted, nil }
			require.Equal(t, commit == nil, c.commit(t.Context()) == nil, commit)
			synctest.Wait()
			require.Equal(t, anew, c.line.now() == Conn(granted), commit)
			require.False(t, c.failed(), "the cluster is not begun anew")
			if anew {
				require.NoError(t, c.commit(t.Context()))
			}
		})
	}
}
