package cephcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestInTheEnd: who asks only now and then is told who has lost the monitors, too.
func TestInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		known time.Duration // how long it takes until it is known of osd.3
		err   error
		takes time.Duration
		want  ceph.Disconnected
	}{
		"at once":      {0, nil, 0, ceph.Disconnected{OSDs: []int{3}}},
		"soon":         {6 * time.Second, nil, 6 * time.Second, ceph.Disconnected{OSDs: []int{3}}},
		"not for long": {time.Hour, nil, 8 * time.Second, ceph.Disconnected{Presumed: []int{3}}},
		"never":        {0, syscall.ECONNRESET, 0, ceph.Disconnected{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r, err := inTheEnd(t.Context(), func(context.Context) (r ceph.Reading, err error) {
					if r.Disconnected.Presumed = []int{3}; time.Since(began) >= c.known {
						r.Disconnected = ceph.Disconnected{OSDs: []int{3}}
					}
					if c.err != nil {
						r = ceph.Reading{}
					}
					return r, c.err
				})
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.want, r.Disconnected)
				require.Equal(t, c.takes, time.Since(began))
			})
		})
	}
}

func TestSpare(t *testing.T) {
	none := func([]int) bool { return false }
	for name, c := range map[string]struct {
		osds []int
		ok   func([]int) bool
		want []int // nil: none
	}{
		"all":          {[]int{1, 2, 3}, func([]int) bool { return true }, []int{1, 2, 3}},
		"none":         {[]int{1, 2, 3}, none, nil},
		"the only one": {[]int{1}, none, nil},
		"the first has to stay": {
			[]int{1, 2, 3, 4},
			func(s []int) bool { return !slices.Contains(s, 1) },
			[]int{2, 3, 4},
		},
		"the last has to stay": {
			[]int{1, 2, 3, 4, 5},
			func(s []int) bool { return !slices.Contains(s, 5) },
			[]int{1, 2, 3, 4},
		},
		"one of several": {[]int{1, 2, 3, 4}, func(s []int) bool { return len(s) <= 1 }, []int{1}},
		"two that need each other's PG": {
			[]int{1, 2, 3, 4},
			func(s []int) bool { return !slices.Contains(s, 2) || !slices.Contains(s, 3) },
			[]int{1, 2, 4},
		},
		"only the last one": {[]int{1, 2, 3}, func(s []int) bool { return slices.Equal(s, []int{3}) }, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			set, a, err := spare(c.osds, func(osds []int) (storage.Answer, error) {
				asked++
				if c.ok(osds) {
					return storage.Answer{OK: true}, nil
				}
				return storage.Answer{Reason: map[bool]string{true: "all", false: "some"}[len(osds) == len(c.osds)]}, nil
			})
			require.NoError(t, err)
			require.LessOrEqual(t, asked, 2*len(c.osds))
			if c.want == nil {
				require.Equal(t, storage.Answer{Reason: "all"}, a, "why not all of them")
				return
			}
			require.True(t, a.OK)
			require.Equal(t, c.want, set)
		})
	}
	broken := errors.New("nobody answers")
	_, _, err := spare([]int{1, 2}, func(osds []int) (storage.Answer, error) {
		if len(osds) == 1 {
			return storage.Answer{}, broken
		}
		return storage.Answer{}, nil
	})
	require.ErrorIs(t, err, broken)
}

// As long as a part of what may stop may stop, too, what was found may stop, and nothing can be added to it.
func TestSpareFindsWhatCannotGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		osds := rapid.SliceOfNDistinct(rapid.IntRange(0, 40), 1, 20, rapid.ID[int]).Draw(t, "osds")
		conflicts := rapid.SliceOfN(rapid.SliceOfNDistinct(rapid.SampledFrom(osds), 1, 3, rapid.ID[int]), 0,
			8).Draw(t, "conflicts")
		ok := func(set []int) bool {
			return !slices.ContainsFunc(conflicts, func(c []int) bool {
				return !slices.ContainsFunc(c, func(id int) bool { return !slices.Contains(set, id) })
			})
		}
		set, a, err := spare(osds, func(osds []int) (storage.Answer, error) { return storage.Answer{OK: ok(osds)}, nil })
		require.NoError(t, err)
		if !a.OK {
			set = nil
		}
		require.True(t, ok(set))
		for _, id := range osds {
			if !slices.Contains(set, id) {
				require.False(t, ok(append(slices.Clone(set), id)), "%d could stop, too", id)
			}
		}
	})
}

// TestSpareAndToleratedPools: of pools that somebody said may be away Ceph's no does not count; any other one does.
func TestSpareAndToleratedPools(t *testing.T) {
	for name, c := range map[string]struct {
		tolerated []string
		inactive  string
		spared    bool
	}{
		"its group alone":        {[]string{"scratch"}, `["2.1f"]`, true},
		"another one's, too":     {[]string{"scratch"}, `["1.0", "2.1f"]`, false},
		"a pool that is no more": {[]string{"gone"}, `["2.1f"]`, false},
		"none is tolerated":      {nil, `["2.1f"]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := cephPolicy()
			policy.Spec.Ceph.ToleratedPools = c.tolerated
			x := newCluster(&somePods{}, poolMons(c.inactive), policy)
			osds, a, err := x.spared(t.Context(), []int{3})
			require.NoError(t, err)
			require.Equal(t, []int{3}, osds)
			require.Equal(t, c.spared, a.OK, a.Reason)
		})
	}
}

// poolMons know two pools, and what would become inactive whatever stops.
type poolMons string

func (poolMons) Close() {}

func (m poolMons) MonCommand(_ context.Context, command []byte) (output []byte, status string, err error) {
	if bytes.Contains(command, []byte("osd dump")) {
		return []byte(`{"epoch": 7, "pools": [{"pool": 1, "pool_name": "rbd"}, {"pool": 2, "pool_name": "scratch"}]}`), "", nil
	}
	answer := fmt.Appendf(nil, `{"ok_to_stop": false, "osds": [3], "num_not_ok_pgs": %d, "bad_become_inactive": %s}`,
		strings.Count(string(m), "."), string(m))
	return answer, "", failure{syscall.EBUSY}
}
