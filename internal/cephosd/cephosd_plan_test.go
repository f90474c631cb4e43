package cephosd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

const (
	ownDBs   = `storage: [{hosts: [a], osds: [{data: /x, db: /1}, {data: /y, db: /2}, {data: /z, db: /3}]}]`
	swapped  = `storage: [{hosts: [a], osds: [{data: /x, db: /2}, {data: /y, db: /1}, {data: /z, db: /3}]}]`
	chained  = `storage: [{hosts: [a], osds: [{data: /x, db: /2}, {data: /y, db: /4}, {data: /z, db: /3}]}]`
	circled  = `storage: [{hosts: [a], osds: [{data: /x, db: /2}, {data: /y, db: /3}, {data: /z, db: /1}]}]`
	fromGone = `storage: [{hosts: [a], osds: [{data: /x, db: /2}, {data: /z, db: /3}]}]`
)

// TestDevicesThatMove plays a change of the DBs of three OSDs to its end, batch by batch. The bed fails it when a pod
// is made while another one has one of its devices.
func TestDevicesThatMove(t *testing.T) {
	for name, c := range map[string]struct {
		by, spec string
		batches  [][]string
	}{
		"two are exchanged":        {"updateDomain: Host", swapped, [][]string{{"a:/x", "a:/y"}}},
		"one moves, by host":       {"updateDomain: Host", chained, [][]string{{"a:/y"}, {"a:/x"}}},
		"one moves, one at a time": {"updateDomain: OSD", chained, [][]string{{"a:/y"}, {"a:/x"}}},
		"three in a circle":        {"updateDomain: Zone", circled, [][]string{{"a:/x", "a:/y", "a:/z"}}},
		"two, several at a time":   {"updateDomain: OSD\nmaxParallel: 2", swapped, [][]string{{"a:/x", "a:/y"}}},
		"a canary that cannot go alone": {
			"updateDomain: Host\ncanary: {}", swapped, [][]string{{"a:/x", "a:/y"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, ownDBs)
			b.serve()
			b.change(c.by + "\n" + c.spec)
			for _, batch := range c.batches {
				s := b.survey()
				require.Empty(t, s.Refused)
				require.Equal(t, rollout.DoReplace, s.Next.Do, s.Next.Why)
				require.Equal(t, batch, keysOf(s.Next.OSDs))
				require.Equal(t, "x", s.Next.Domain.Name)
				require.NotEmpty(t, s.Next.Why)
				spared, answer, err := b.osdSets.Spare(t.Context(), b.replacement(s))
				require.NoError(t, err)
				require.True(t, answer.OK, answer.Reason)
				require.Equal(t, batch, keysOf(spared))
				b.log = nil
				require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)))
				require.Len(t, b.log, 2*len(batch))
				for i, line := range b.log {
					require.Equal(t, i < len(batch), line[:4] == "stop", "all have stopped before one starts: %v", b.log)
				}
				for _, key := range batch { // they come back, are up, and are released
					b.arrives(key)
				}
			}
			s := b.survey()
			require.Equal(t, rollout.DoNothing, s.Next.Do)
			require.True(t, s.Counts.Settled())
		})
	}
}

// TestOneOfThoseThatExchangeIsGone: the pod of one is lost while the other one still has its device. To wait for it
// would be to wait for ever.
func TestOneOfThoseThatExchangeIsGone(t *testing.T) {
	for name, spec := range map[string]string{"two are exchanged": swapped, "one moves": chained} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, ownDBs)
			b.serve()
			b.change("updateDomain: Host\n" + spec)
			b.lose("a:/x")
			b.ceph.osds[0].Up = false
			s := b.survey()
			require.Equal(t, rollout.DoReplace, s.Next.Do, s.Next.Why)
			require.Equal(t, []string{"a:/y"}, keysOf(s.Next.OSDs))
			require.False(t, s.Next.Broken, "it serves, and needs the lease")
			require.NoError(t, b.osdSets.Replace(t.Context(), b.replacement(s)))
			require.Equal(t, []string{"stop a:/y", "make a:/y"}, b.log)
			s = b.survey()
			require.Equal(t, rollout.DoCreate, s.Next.Do)
			require.Equal(t, []string{"a:/x"}, keysOf(s.Next.OSDs))
		})
	}
}

// TestNeverTogether: OSDs that exchange devices stop together or not at all.
func TestNeverTogether(t *testing.T) {
	for name, c := range map[string]struct {
		by     string
		change func(*bed)
	}{
		"one at a time":           {"updateDomain: OSD", nil},
		"at most one":             {"updateDomain: Host\nmaxParallel: 1", nil},
		"another failure domain":  {"updateDomain: Host", func(b *bed) { b.ceph.osds[1].Domain = "y" }},
		"by default":              {"", nil},
		"and another is in order": {"updateDomain: OSD", func(b *bed) { b.ceph.osds[2].Up = false }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, ownDBs)
			b.serve()
			b.change(c.by + "\n" + swapped)
			if c.change != nil {
				c.change(b)
			}
			s := b.survey()
			require.Len(t, s.Refused, 1)
			require.Equal(t, "spec.storage[0].osds[0].db", s.Refused[0].Field)
			require.Equal(t, "/2", s.Refused[0].Value)
			require.Contains(t, s.Refused[0].Allowed, "a:/x, a:/y")
		})
	}
	t.Run("a person has excused one of them", func(t *testing.T) {
		b := newBed(t, ownDBs)
		b.serve()
		b.change("updateDomain: Host\n" + swapped)
		s := b.survey("osd.1")
		require.Equal(t, rollout.DoNothing, s.Next.Do)
		require.Len(t, s.Warned, 1, "who is left as it is waits for nothing: %v", s.Warned)
		require.Equal(t, "spec.storage[0].osds[0].data", s.Warned[0].Field)
		require.Contains(t, s.Next.Why, "still has /2, and a:/y was skipped until the template changes")
	})
	t.Run("Ceph spares only one of them", func(t *testing.T) {
		b := newBed(t, ownDBs)
		b.serve()
		b.change("updateDomain: Host\n" + swapped)
		b.ceph.spare = func([]int) []int { return []int{0} }
		in := b.replacement(b.survey())
		_, answer, err := b.osdSets.Spare(t.Context(), in)
		require.NoError(t, err)
		require.False(t, answer.OK)
		require.Contains(t, answer.Reason, "osd.0 waits for a device")
		in.OSDs = in.OSDs[:1]
		require.NoError(t, b.osdSets.Replace(t.Context(), in))
		require.Empty(t, b.log, "the other one has its device, and is not in the batch")
	})
}

// TestDeviceOfASuperfluousOSD: nobody replaces the pod that has the device, so the others go first, and a person hears
// of it.
func TestDeviceOfASuperfluousOSD(t *testing.T) {
	b := newBed(t, ownDBs)
	b.serve()
	b.ceph.needed = func(int) string { return "osd.1 stores placement groups" }
	b.change("updateDomain: Host\n" + fromGone)
	s := b.survey()
	require.Equal(t, rollout.DoNothing, s.Next.Do)
	require.Contains(t, s.Next.Why, "still has /2")
	require.Len(t, s.Warned, 1)
	require.Equal(t, "spec.storage[0].osds[0].data", s.Warned[0].Field)
	require.False(t, s.Counts.Settled())
	require.Equal(t, lookAgainLate, s.LookAgain)
	b.ceph.needed = nil
	s = b.survey()
	require.Len(t, s.Removable, 1)
	require.NoError(t, b.osdSets.Remove(t.Context(), b.ref, s.Removable))
	require.Equal(t, []string{"stop a:/y"}, b.log)
	require.Equal(t, rollout.DoNothing, b.survey().Next.Do, "it may still write")
	require.Eventually(t, func() bool { return b.survey().Next.Do == rollout.DoReplace }, time.Minute, time.Millisecond)
	require.Len(t, b.pods(), 2)
	require.Equal(t, []string{"a:/x"}, keysOf(b.survey().Next.OSDs))
}
