package ceph_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// slow answers "status" after a while.
type slow struct {
	ceph.Commander
	after time.Duration
}

func (s *slow) MonCommand(ctx context.Context, command []byte) ([]byte, string, error) {
	if strings.Contains(string(command), `"prefix":"status"`) {
		select {
		case <-time.After(s.after):
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
	return s.Commander.MonCommand(ctx, command)
}

func TestReadNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mons := &slow{Commander: healthy(t)}
		reader := ceph.NewReader(ceph.Client{Commander: mons})
		read := func() ceph.Reading {
			r, err := reader.Read(t.Context())
			require.NoError(t, err)
			return r
		}

		mons.after = time.Second
		assert.Zero(t, read().Silent, "an election that loses nobody")

		mons.after = time.Minute
		began := time.Now()
		silent := read()
		assert.Contains(t, silent.Unavailable, "no quorum answers: ceph status")
		assert.Less(t, time.Since(began), 2*time.Second, "closing must not wait for the end of an election")
		assert.Equal(t, time.Now(), silent.Silent, "they were silent until just now")

		mons.after = 0
		time.Sleep(time.Minute)
		assert.Equal(t, silent.Silent, read().Silent, "it is remembered")
	})
}
