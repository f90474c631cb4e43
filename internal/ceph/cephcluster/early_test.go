package cephcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
)

// TestADigestWhileTheMapIsRead: what is asked for as soon as the map has moved on counts, so that a digest of the
// manager that arrives while the map and the pods are being read begins the proof, and the next one ends it. Where the
// pods have changed, an earlier one may have made that report, so it takes one digest more. So it does where the mons
// have elected since, and where the only new number is that of an OSD that was not asked for the first time.
func TestADigestWhileTheMapIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		early, replaced, elected bool
		twoBoot, silence         bool // another OSD boots an epoch later; no digest arrives while the map is read
		digests                  int
	}{
		"asked at once":        {early: true, digests: 1},
		"asked after the look": {early: false, digests: 2},
		"another pod":          {early: true, replaced: true, digests: 2},
		"an election":          {early: true, elected: true, digests: 2},
		"two OSDs boot":        {early: true, twoBoot: true, digests: 1},
		"two, and no digest":   {early: true, twoBoot: true, silence: true, digests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			mons := &clockMons{epoch: 10, election: 1, upFrom: map[int]int64{0: 3, 1: 3}, counts: map[int]uint32{}}
			pods := &somePods{pods: []storageview.Pod{
				{OSD: 0, UID: "a"}, {OSD: 1, UID: "b"}, {OSD: 2, UID: "c"}, {OSD: 3, UID: "e"},
			}}
			x := newCluster(pods, mons, cephPolicy())
			look := func(since *early) bool {
				w, _, err := x.look(t.Context(), time.Time{}, since)
				require.NoError(t, err)
				require.Empty(t, w.Unavailable)
				return w.Health.Fresh
			}
			for proved := false; !proved; mons.digest() {
				proved = look(nil)
			}
			require.Nil(t, x.awaitEpoch(t.Context(), 20*time.Millisecond), "nothing has changed")

			mons.epoch, mons.upFrom[2] = 11, 11
			if c.twoBoot {
				mons.epoch, mons.upFrom[3] = 12, 12
				mons.counts[2] = 1
			}
			if c.replaced {
				pods.pods[2].UID = "d"
			}
			var since *early
			if c.early {
				since = x.awaitEpoch(t.Context(), time.Minute)
				require.NotNil(t, since)
			}
			if c.elected {
				mons.election = 2
			}
			if !c.silence {
				mons.meanwhile = mons.digest
			}
			require.False(t, look(since))
			require.Nil(t, mons.meanwhile)
			require.False(t, look(nil))
			require.False(t, look(nil))
			for range c.digests - 1 {
				mons.digest()
				require.False(t, look(nil))
			}
			mons.digest()
			require.True(t, look(nil))
			require.Equal(t, "a.0", x.watch.proved()[0])
		})
	}
}

// TestNoEpochIsWaitedFor: where the mons refuse to tell the epoch, or do not answer, the time until the next look is
// what it is otherwise: neither shorter, which would be to ask them without a pause, nor longer.
func TestNoEpochIsWaitedFor(t *testing.T) {
	const within = 20 * time.Millisecond
	for name, answer := range map[string]func(context.Context) error{
		"refused":   func(context.Context) error { return errors.New("refused") },
		"no answer": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			mons := &clockMons{epoch: 10, election: 1, upFrom: map[int]int64{0: 3}, counts: map[int]uint32{}}
			x := newCluster(&somePods{}, mons, cephPolicy())
			_, _, err := x.look(t.Context(), time.Time{}, nil)
			require.NoError(t, err)
			mons.stat, mons.stats = answer, 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			require.Nil(t, x.awaitEpoch(ctx, within))
			require.GreaterOrEqual(t, time.Since(began), within)
			require.NoError(t, ctx.Err(), "it waited for the mons")
			require.Equal(t, 1, mons.stats)
		})
	}
}

func cephPolicy() *v1alpha1.MaintenancePolicy {
	policy := &v1alpha1.MaintenancePolicy{}
	policy.Spec.Ceph = &v1alpha1.CephSpec{}
	return policy
}

// somePods are the pods that there are.
type somePods struct {
	Kubernetes
	pods []storageview.Pod
}

func (s *somePods) StoragePods(context.Context, *v1alpha1.MaintenancePolicy) ([]storageview.Pod, error) {
	return s.pods, nil
}

// clockMons answer for four OSDs. What the OSDs report is known with the next digest.
type clockMons struct {
	epoch     int64
	election  int64
	upFrom    map[int]int64 // of those that are up
	counts    map[int]uint32
	meanwhile func()                      // happens once, when the OSD map is asked for
	stat      func(context.Context) error // what "osd stat" fails with; nil: it does not
	stats     int                         // how often it was asked
	dump      error                       // what "osd dump" fails with
	commit    error                       // what "config-key set" fails with
}

func (m *clockMons) Close() {}

func (m *clockMons) digest() {
	for id := range m.upFrom {
		m.counts[id]++
	}
}

func (m *clockMons) MonCommand(ctx context.Context, command []byte) (output []byte, status string, err error) {
	var asked struct {
		Prefix string
		ID     int
	}
	if err := json.Unmarshal(command, &asked); err != nil {
		return nil, "", err
	}
	switch asked.Prefix {
	case "status":
		return m.says(`{"election_epoch": %d, "quorum_names": ["a"],
			"osdmap": {"epoch": %d}, "mgrmap": {"available": true},
			"pgmap": {"num_pgs": 3, "pgs_by_state": [{"state_name": "active+clean", "count": 3}]}}`, m.election, m.epoch)
	case "quorum_status":
		return m.says(`{"election_epoch": %d, "quorum_names": ["a"], "monmap": {"mons": [{"name": "a"}]}}`, m.election)
	case "features":
		return m.says(`{"osd": [{"num": 1000}]}`)
	case "mgr stat":
		return m.says(`{"epoch": 1, "available": true, "active_name": "x"}`)
	case "osd stat":
		m.stats++
		if m.stat != nil {
			return nil, "", m.stat(ctx)
		}
		return m.says(`{"epoch": %d}`, m.epoch)
	case "osd crush dump":
		return m.says(`{}`)
	case "osd last-stat-seq":
		return m.says("%d", uint64(m.upFrom[asked.ID])<<32|uint64(m.counts[asked.ID]))
	case "config-key set":
		if m.commit != nil {
			return nil, "", failure{m.commit}
		}
		return nil, "", nil
	case "osd dump":
		if m.dump != nil {
			return nil, "", failure{m.dump}
		}
		if m.meanwhile != nil {
			m.meanwhile()
			m.meanwhile = nil
		}
		var osds []map[string]any
		for id := range 4 {
			up := 0
			if m.upFrom[id] > 0 {
				up = 1
			}
			osds = append(osds, map[string]any{
				"osd": id, "up": up, "in": 1, "weight": 1, "up_from": m.upFrom[id],
				"state": []string{"exists"},
			})
		}
		list, err := json.Marshal(osds)
		if err != nil {
			return nil, "", err
		}
		return m.says(`{"epoch": %d, "osds": %s,
			"pools": [{"pool": 1, "size": 3, "min_size": 2, "pg_num": 3}]}`, m.epoch, list)
	}
	return nil, "", fmt.Errorf("ceph %s is not expected here", asked.Prefix)
}

func (m *clockMons) says(format string, values ...any) ([]byte, string, error) {
	return fmt.Appendf(nil, format, values...), "", nil
}

// failure is how librados fails: with a return code.
type failure struct{ error }

func (f failure) ErrorCode() int {
	var code syscall.Errno
	errors.As(f.error, &code)
	return -int(code)
}
